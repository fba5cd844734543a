"""How often to save: the interval of Young and of Daly, and the effective training time that it leads to.

Times are in one unit, whichever it is. A failure comes on average every `mttf`; a checkpoint takes `write`; after a
failure a job loses `restart` until it works again, and the work since its last checkpoint.
"""

from __future__ import annotations

import math

from rota.core.errors import RotaError

DAY_S = 86_400.0


def mean_time_to_failure(nodes: float, per_1000_node_days: float) -> float:
    """Seconds between two failures of a job on so many nodes; infinite where nothing fails."""
    per_day = nodes * per_1000_node_days / 1000.0
    return DAY_S / per_day if per_day > 0 else math.inf


def young(write: float, mttf: float) -> float:
    """The interval of work between two checkpoints that loses least time, for writes that are short against `mttf`."""
    _refuse(write, mttf)
    return math.sqrt(2.0 * write * mttf)


def daly(write: float, mttf: float) -> float:
    """Young's interval with Daly's terms for writes that are not short; `mttf` itself from `write` = 2 `mttf` on."""
    _refuse(write, mttf)
    if write >= 2.0 * mttf:
        return mttf
    part = write / (2.0 * mttf)
    return math.sqrt(2.0 * write * mttf) * (1.0 + math.sqrt(part) / 3.0 + part / 9.0) - write


def most_available(write: float, mttf: float, restart: float) -> float:
    """The period, write included, at which a machine is available longest (arXiv 2410.18124)."""
    _refuse(write, mttf)
    return write + math.sqrt(2.0 * (mttf + restart) * write + write * write)


def expected_ettr(interval: float, write: float, mttf: float, restart: float) -> float:
    """The fraction of time that is productive, to first order (Kokolis et al., arXiv 2410.21680); not below 0."""
    _refuse(write, mttf)
    if not interval > 0:
        raise RotaError(f"checkpoint interval is {interval:g}; it must be above 0")
    lost = 0.0 if mttf == math.inf else (restart + interval / 2.0) / mttf
    return max(1.0 - lost, 0.0) / (1.0 + write / interval)


def exact_ettr(interval: float, write: float, mttf: float, restart: float) -> float:
    """The same without the approximation, for exponential failures that spare the restart.

    An interval and its write are repeated until one attempt survives, which takes (mttf + restart) (e^(t/mttf) - 1).
    """
    _refuse(write, mttf)
    if mttf == math.inf:
        return interval / (interval + write)
    attempts = math.expm1((interval + write) / mttf)
    return interval / ((mttf + restart) * attempts)


def _refuse(write: float, mttf: float) -> None:
    if not 0 <= write < math.inf:
        raise RotaError(f"the time to write a checkpoint is {write:g}; it must be 0 or more")
    if not mttf > 0:
        raise RotaError(f"mean time to failure is {mttf:g}; it must be above 0")
