"""Fit of a model's step time to measured steps, and its goodput on any number of devices.

What was not observed is assumed to be free, so that a job is allowed to try it: no gradient exchange before it has run
on two devices, no network before it has run on two nodes (Qiao et al., OSDI 2021, section 4.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rota.perf.training.goodput import Batches, Sample, StepTime

Floats = NDArray[np.float64]
_OVERLAPS = (1.0, 1.25, 1.5, 1.75, 2.0, 3.0, 5.0, 10.0)


class Seen(NamedTuple):
    """Steps measured on a number of devices of one node or several."""

    devices: int
    several_nodes: bool
    steps: tuple[Sample, ...]


def fit_steps(seen: Sequence[Seen]) -> StepTime:
    """Fit the step time to observations."""
    alone = [(step.batch, step.step_s) for one in seen if one.devices == 1 for step in one.steps]
    if not alone:
        return _fit_together(seen)
    compute_s, per_example_s = _line(np.array([batch for batch, _ in alone]), np.array([step_s for _, step_s in alone]))
    shared = [one for one in seen if one.devices > 1]
    bare = StepTime(compute_s, per_example_s)
    if not shared:
        return bare
    fits = [_fit_exchange(bare._replace(overlap=overlap), shared) for overlap in _OVERLAPS]
    return min(fits, key=lambda times: _error(times, shared))


def _fit_exchange(times: StepTime, shared: Sequence[Seen]) -> StepTime:
    """Fit the exchange to what remains of each step without its gradient time."""
    parts: dict[bool, tuple[float, float]] = {}
    for several in (False, True):
        more, exchange_s = [], []
        for one in shared:
            for step in one.steps if one.several_nodes is several else ():
                gradient_s = times.gradient_s(step.batch, one.devices)
                rest = max(step.step_s**times.overlap - gradient_s**times.overlap, 0.0)
                more.append(float(one.devices - 2))
                exchange_s.append(rest ** (1.0 / times.overlap))
        if more:
            parts[several] = _line(np.array(more), np.array(exchange_s))
    local = parts.get(False, (0.0, 0.0))
    remote = parts.get(True, local)
    return times._replace(local_s=local[0], local_more_s=local[1], remote_s=remote[0], remote_more_s=remote[1])


def _fit_together(seen: Sequence[Seen]) -> StepTime:
    """Fit all parts at once, without overlap, where no step ran on one device."""
    from scipy.optimize import nnls

    rows, times = [], []
    for one in seen:
        far = float(one.several_nodes)
        for step in one.steps:
            more = one.devices - 2.0
            rows.append([1.0, step.batch / one.devices, 1.0 - far, (1.0 - far) * more, far, far * more])
            times.append(step.step_s)
    if not rows:
        return StepTime(1.0, 0.0)
    found = [float(part) for part in nnls(np.array(rows), np.array(times))[0]]
    if not any(one.several_nodes for one in seen):
        found[4:] = found[2:4]
    return StepTime(*found)


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    """Return the least-squares line with neither coefficient negative: (intercept, slope)."""
    from scipy.optimize import nnls

    found, _ = nnls(np.stack([np.ones_like(x), x], axis=1), y)
    return float(found[0]), float(found[1])


def _error(times: StepTime, seen: Sequence[Seen]) -> float:
    return sum(
        (times.step_s(step.batch, one.devices, one.several_nodes) / step.step_s - 1.0) ** 2
        for one in seen
        for step in one.steps
    )


def goodputs(times: StepTime, batches: Batches, devices: Sequence[int], node_devices: int) -> Floats:
    """Return the goodput with the best batch on each number of devices; more than a node's span several nodes."""
    count = np.array(devices, dtype=np.float64)[:, None]
    largest = np.maximum(np.minimum(batches.most, batches.most_per_device * count), batches.own)
    batch = batches.own * (largest / batches.own) ** np.linspace(0.0, 1.0, 24)
    far = count > node_devices
    more = count - 2.0
    exchange = np.where(far, times.remote_s + times.remote_more_s * more, times.local_s + times.local_more_s * more)
    exchange = np.where(count < 2, 0.0, np.maximum(exchange, 0.0))
    gradient = times.compute_s + times.per_example_s * batch / count
    step = np.maximum((gradient**times.overlap + exchange**times.overlap) ** (1.0 / times.overlap), 1e-12)
    worth = (batches.noise + batches.own) / (batches.noise + batch)
    best: Floats = (batch / step * worth).max(axis=1)
    return best
