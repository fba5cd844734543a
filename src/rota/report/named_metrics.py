"""Metrics by name, each with its formula: what the literature means by a word, and where meanings differ, all of them.

A quantile is NumPy's, linear between two values. `rota sim` without a window keeps those of `report/metrics.py`, the
value at position `int(q * n)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from rota.core.errors import RotaError, did_you_mean
from rota.perf.device_facts import IDLE, OTHER_PRICE, OTHER_W, board_w, price
from rota.report.measured_run import MeasuredRun
from rota.report.series import Floats


class MetricUnit(Enum):
    """How a metric's values are shown."""

    SECONDS = "s"
    RATIO = ""
    FRACTION = "%"
    COUNT = "count"
    KWH = "kWh"
    DOLLARS = "USD"


class Direction(Enum):
    """Which values of a metric are better."""

    LOW = "low"
    HIGH = "high"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedMetric:
    """One metric: its name in results, what it is, its formula, and how to compute it."""

    name: str
    title: str
    formula: str
    unit: MetricUnit
    better: Direction
    of: Callable[[MeasuredRun], float | None]
    tail: str = ""
    """The column of jobs that it is a quantile of, whose interval is a bootstrap; empty for others."""
    quantile: float = 0.0
    least: float = 0.0
    most: float = math.inf
    """What no value of it is below, and above."""


def _known(values: Floats) -> Floats:
    found: Floats = values[~np.isnan(values)]
    return found


def _mean(values: Floats) -> float | None:
    known = _known(values)
    return float(known.mean()) if known.size else None


def quantile_of(values: Floats, q: float) -> float | None:
    """The quantile as NumPy has it; None of no values."""
    known = _known(values)
    return float(np.quantile(known, q)) if known.size else None


def _most(values: Floats) -> float | None:
    known = _known(values)
    return float(known.max()) if known.size else None


def _jain(values: Floats) -> float | None:
    known = _known(values)
    squares = float((known * known).sum())
    return float(known.sum()) ** 2 / (known.size * squares) if squares else None


def _allocation(run: MeasuredRun) -> float | None:
    return _ratio(sum(run.held_s.values()), sum(run.capacity_s.values()))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _energy_kwh(run: MeasuredRun) -> float:
    joules = 0.0
    for kind, capacity_s in run.capacity_s.items():
        known, held_s = board_w(kind), run.held_s.get(kind, 0.0)
        watts = OTHER_W if known is None else known
        joules += watts * (held_s + IDLE * max(capacity_s - held_s, 0.0))
    return joules / 3.6e6


def _cost(run: MeasuredRun) -> float:
    cost = 0.0
    for kind, held_s in run.held_s.items():
        known = price(kind)
        cost += (OTHER_PRICE if known is None else known) * held_s / 3600
    return cost


COLUMNS: Mapping[str, Callable[[MeasuredRun], Floats]] = {
    "jct_s": lambda run: run.jct_s,
    "queueing_s": lambda run: run.queueing_s,
    "wait_s": lambda run: run.wait_s,
    "slowdown": lambda run: run.jct_s / run.ideal_s,
    "ftf": lambda run: run.own_n,
    "ftf_fluid": lambda run: run.fluid,
    "ftf_themis": lambda run: run.themis,
}
"""What is known of each job, by name."""
_FORMULAS = {
    "jct_s": ("JCT", "end - submit"),
    "queueing_s": ("queueing delay", "first start - submit"),
    "wait_s": ("waiting time", "JCT - time running (also after preemptions and faults)"),
    "slowdown": ("slowdown", "JCT / run time alone at nominal speed"),
    "ftf": ("finish-time fairness, own n", "JCT / (alone * max(1, gpus * n / devices)), n: mean jobs in its life"),
    "ftf_fluid": ("finish-time fairness, fluid", "JCT / JCT under fluid processor sharing of the same jobs"),
    "ftf_themis": (
        "finish-time fairness, Themis",
        "JCT / (alone * n), n: mean jobs in its life (Mahajan et al., 2020)",
    ),
}


def _of_column(column: str) -> Iterable[NamedMetric]:
    title, formula = _FORMULAS[column]
    unit = MetricUnit.SECONDS if column.endswith("_s") else MetricUnit.RATIO
    of = COLUMNS[column]

    def metric(prefix: str, word: str, value: Callable[[Floats], float | None], q: float = 0.0) -> NamedMetric:
        return NamedMetric(
            name=f"{prefix}_{column}",
            title=f"{word} {title}",
            formula=f"{word} of {formula}",
            unit=unit,
            better=Direction.LOW,
            of=lambda run: value(of(run)),
            tail=column if q else "",
            quantile=q,
        )

    yield metric("avg", "mean", _mean)
    for prefix, word, q in (("median", "median", 0.5), ("p90", "p90", 0.9), ("p95", "p95", 0.95), ("p99", "p99", 0.99)):
        yield metric(prefix, word, lambda values, q=q: quantile_of(values, q), q)  # type: ignore[misc] # q is bound
    if column.startswith("ftf"):
        yield metric("worst", "worst", _most)


def _single(
    name: str,
    title: str,
    formula: str,
    unit: MetricUnit,
    better: Direction,
    of: Callable[[MeasuredRun], float | None],
    most: float = math.inf,
) -> NamedMetric:
    return NamedMetric(name=name, title=title, formula=formula, unit=unit, better=better, of=of, most=most)


_SINGLE = (
    _single(
        "jain_ftf",
        "Jain's index",
        "(sum x)^2 / (n * sum x^2) over finish-time fairness x, own n",
        MetricUnit.RATIO,
        Direction.HIGH,
        lambda run: _jain(run.own_n),
        most=1.0,
    ),
    _single(
        "unfair_fluid",
        "unfairly treated",
        "fraction of jobs whose JCT is above that of fluid processor sharing",
        MetricUnit.FRACTION,
        Direction.LOW,
        lambda run: _mean(np.where(np.isnan(run.fluid), np.nan, (run.fluid > 1.0 + 1e-9).astype(np.float64))),
        most=1.0,
    ),
    _single(
        "makespan_s",
        "makespan",
        "last end - first submit, of the whole run",
        MetricUnit.SECONDS,
        Direction.LOW,
        lambda run: run.makespan_s,
    ),
    _single(
        "throughput_per_h",
        "jobs an hour",
        "jobs submitted in the window that ended / window length",
        MetricUnit.RATIO,
        Direction.HIGH,
        lambda run: _ratio(3600.0 * run.finished, run.span_s),
    ),
    _single(
        "goodput",
        "goodput",
        "device-seconds of work done at nominal speed / (devices up * time), in the window",
        MetricUnit.FRACTION,
        Direction.HIGH,
        lambda run: _ratio(run.useful_s, sum(run.capacity_s.values())),
    ),
    _single(
        "allocation",
        "allocation",
        "device-seconds held / (devices up * time), in the window",
        MetricUnit.FRACTION,
        Direction.HIGH,
        _allocation,
        most=1.0,
    ),
    _single(
        "utilisation",
        "utilisation",
        "device-seconds in which devices were busy / (devices up * time), in the window; unknown without profiles",
        MetricUnit.FRACTION,
        Direction.HIGH,
        lambda run: None if run.busy_s is None else _ratio(run.busy_s, sum(run.capacity_s.values())),
        most=1.0,
    ),
    _single(
        "preemptions",
        "preemptions",
        "stops of running jobs that were not their end, of jobs in the window",
        MetricUnit.COUNT,
        Direction.LOW,
        lambda run: run.preemptions,
    ),
    _single(
        "energy_kwh",
        "energy",
        f"sum over types of board power * (held + {IDLE:g} * free) device-seconds, in the window",
        MetricUnit.KWH,
        Direction.LOW,
        _energy_kwh,
    ),
    _single(
        "cost_usd",
        "cost",
        "sum over types of price per hour * held device-hours, in the window",
        MetricUnit.DOLLARS,
        Direction.LOW,
        _cost,
    ),
)

METRICS_BY_NAME: Mapping[str, NamedMetric] = {
    metric.name: metric for metric in (*(m for column in COLUMNS for m in _of_column(column)), *_SINGLE)
}
"""Every metric by its name."""
USUAL = (
    "avg_jct_s",
    "median_jct_s",
    "p99_jct_s",
    "avg_wait_s",
    "p99_ftf_fluid",
    "jain_ftf",
    "allocation",
    "preemptions",
)
"""The metrics that are shown unless others are asked for."""


def find_metrics(names: Sequence[str]) -> tuple[NamedMetric, ...]:
    """The metrics of these names; an unknown one is refused with the nearest."""
    for name in names:
        if name not in METRICS_BY_NAME:
            raise RotaError(f"unknown metric {name!r}; {did_you_mean(name, METRICS_BY_NAME)}")
    return tuple(METRICS_BY_NAME[name] for name in names)


def measure_named(run: MeasuredRun) -> dict[str, float | None]:
    """The value of every metric."""
    return {name: metric.of(run) for name, metric in METRICS_BY_NAME.items()}
