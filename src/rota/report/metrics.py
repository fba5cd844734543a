"""The metrics of runs. Every definition is here, once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rota.core.state.history import History, JobRow

Floats = NDArray[np.float64]

# Columns of a hundred thousand rows, at C speed.
_FRAGMENTED_S = attrgetter("fragmented_s")
_GPU_S = attrgetter("gpu_s")
_GPUS = attrgetter("gpus")
_IDEAL_S = attrgetter("ideal_s")
_MOVES = attrgetter("moves")
_PREEMPTIONS = attrgetter("preemptions")
_RESTARTS = attrgetter("restarts")
_RUN_S = attrgetter("run_s")
_STATE = attrgetter("state")
_SUBMIT_S = attrgetter("submit_s")
_SUSPENSIONS = attrgetter("suspensions")
_WAIT_S = attrgetter("wait_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The metrics of a run, or of one tenant's jobs in it. None where there is nothing to take a mean of."""

    jobs: int
    finished: int
    """Jobs that ran and ended, in any final state."""
    avg_jct_s: float | None
    """Completion time is end - submit."""
    median_jct_s: float | None
    p99_jct_s: float | None
    makespan_s: float
    """Last end - first submit."""
    avg_wait_s: float | None
    """All time between submit and end in which the job did not run."""
    avg_fair_share_delay_s: float | None
    """The part of the wait in which too few devices were free: all but the fragmentation delay."""
    avg_fragmentation_delay_s: float | None
    """The part of the wait in which enough devices were free, but not together."""
    gpu_allocation: float
    """Device-seconds held by running jobs, over devices x the run's makespan."""
    gpu_busy: float | None
    """The fraction of all device-seconds in which devices were busy (utilisation); None where that is not known."""
    preemptions: int
    """Stops of a running job that were not its end."""
    worst_finish_time_fairness: float | None
    """Completion time over the completion time with a 1/n share of the cluster, at its worst."""
    jain_fairness: float | None
    """Jain's index over those ratios: 1 when they are all equal."""
    fragmentation: float
    """The fraction of free device-seconds that were on nodes with other jobs."""
    preemption_overhead: float
    """The fraction of the time that jobs held devices that went into restarts and lost work."""
    restarts: int
    succeeded: int
    failed: int
    cancelled: int
    deadlines: int
    deadlines_met: int
    suspensions: int
    moves: int
    """Moves of jobs to other devices, with their state."""

    @property
    def gpu_utilization(self) -> float:
        """The allocation, by the name that it had before."""
        return self.gpu_allocation

    def encode(self) -> dict[str, Any]:
        """All metrics as JSON values; `gpu_utilization` repeats `gpu_allocation` for older readers."""
        value = asdict(self)
        at = list(value).index("gpu_allocation") + 1
        items = list(value.items())
        return dict([*items[:at], ("gpu_utilization", self.gpu_allocation), *items[at:]])


def measure(history: History) -> Metrics:
    """The metrics of a whole run."""
    return _measure(history.jobs, finish_time_fairness(history), history, _makespan_s(history.jobs))


def measure_tenants(history: History) -> dict[str, Metrics]:
    """The metrics of each tenant's jobs.

    Fragmentation is the whole cluster's, and allocation is relative to all device-seconds of the run.
    """
    return measure_with_tenants(history)[1]


def measure_with_tenants(history: History) -> tuple[Metrics, dict[str, Metrics]]:
    """The metrics of a whole run, and those of each tenant's jobs."""
    ratios = finish_time_fairness(history)
    span_s = _makespan_s(history.jobs)
    whole = _measure(history.jobs, ratios, history, span_s)
    rows: dict[str, list[int]] = {}
    for index, row in enumerate(history.jobs):
        rows.setdefault(row.tenant, []).append(index)
    if len(rows) == 1:
        return whole, dict.fromkeys(rows, whole)
    return whole, {
        tenant: _measure([history.jobs[i] for i in indexes], ratios[indexes], history, span_s)
        for tenant, indexes in sorted(rows.items())
    }


def _measure(rows: Sequence[JobRow], ratios: Floats, history: History, span_s: float) -> Metrics:
    done = [row for row in rows if row.end_s is not None and row.start_s is not None]
    jct = sorted((row.end_s or 0.0) - row.submit_s for row in done)
    busy_s = math.fsum(map(_GPU_S, rows))
    run_s = math.fsum(map(_RUN_S, rows))
    lost_s = math.fsum(row.overhead_s + row.lost_s for row in rows)
    kept_busy_s = [row.busy_s for row in rows if row.busy_s is not None]
    known = ratios[~np.isnan(ratios)]
    with_deadline = [row for row in rows if row.deadline_s is not None]
    states = list(map(_STATE, rows))
    return Metrics(
        jobs=len(rows),
        finished=len(done),
        avg_jct_s=_mean(jct),
        median_jct_s=quantile(jct, 0.5),
        p99_jct_s=quantile(jct, 0.99),
        makespan_s=_makespan_s(rows),
        avg_wait_s=_mean(list(map(_WAIT_S, done))),
        avg_fair_share_delay_s=_mean([row.wait_s - row.fragmented_s for row in done]),
        avg_fragmentation_delay_s=_mean(list(map(_FRAGMENTED_S, done))),
        gpu_allocation=_ratio(busy_s, history.devices * span_s),
        gpu_busy=_ratio(math.fsum(kept_busy_s), history.devices * span_s) if kept_busy_s else None,
        preemptions=sum(map(_PREEMPTIONS, rows)),
        worst_finish_time_fairness=float(known.max()) if known.size else None,
        jain_fairness=jain(known),
        fragmentation=_ratio(history.fragmented_device_s, history.free_device_s),
        preemption_overhead=_ratio(lost_s, run_s),
        restarts=sum(map(_RESTARTS, rows)),
        succeeded=states.count("succeeded"),
        failed=states.count("failed"),
        cancelled=states.count("cancelled"),
        deadlines=len(with_deadline),
        deadlines_met=sum(_met_deadline(row) for row in with_deadline),
        suspensions=sum(map(_SUSPENSIONS, rows)),
        moves=sum(map(_MOVES, rows)),
    )


def _makespan_s(rows: Sequence[JobRow]) -> float:
    ends = [row.end_s for row in rows if row.end_s is not None and row.start_s is not None]
    return max(ends) - min(row.submit_s for row in rows) if ends else 0.0


def _met_deadline(row: JobRow) -> bool:
    if row.deadline_s is None or row.end_s is None:
        return False
    return row.state == "succeeded" and row.end_s <= row.deadline_s


def quantile(ordered: Sequence[float], q: float) -> float | None:
    """The quantile of sorted values as NumPy has it, between the two nearest; None of no values."""
    if not ordered:
        return None
    low, part = divmod(q * (len(ordered) - 1), 1.0)
    here = ordered[int(low)]
    return here + (ordered[min(int(low) + 1, len(ordered) - 1)] - here) * part


def jain(values: Floats) -> float | None:
    """Jain's fairness index: (sum x)^2 / (n sum x^2)."""
    squares = float((values * values).sum())
    return float(values.sum()) ** 2 / (values.size * squares) if squares else None


def finish_time_fairness(history: History) -> Floats:
    """Each job's completion time over the one that a 1/n share of the cluster would have given it.

    n is the mean number of jobs in the system while this one lived. With a 1/n share, a job that asks for
    more devices than the share holds takes proportionally longer. NaN for jobs that did no work or have not
    ended; those count as present until the last moment of any job.
    """
    jobs = history.jobs
    ended = [row.end_s is not None and row.start_s is not None and row.ideal_s > 0 for row in jobs]
    submit = np.array(list(map(_SUBMIT_S, jobs)), dtype=np.float64)
    last_s = max((max(row.submit_s, row.start_s or 0.0, row.end_s or 0.0) for row in jobs), default=0.0)
    end = np.array([last_s if row.end_s is None else row.end_s for row in jobs], dtype=np.float64)
    ideal = np.array(list(map(_IDEAL_S, jobs)), dtype=np.float64)
    gpus = np.array(list(map(_GPUS, jobs)), dtype=np.float64)
    ratios = np.full(len(jobs), np.nan)
    here = np.array(ended, dtype=np.bool_) & (end > submit)
    if not here.any():
        return ratios
    present = mean_present(submit, end)[here]
    share = max(history.devices, 1) / np.maximum(present, 1.0)
    alone = ideal[here] * np.maximum(1.0, gpus[here] / share)
    ratios[here] = (end[here] - submit[here]) / alone
    return ratios


def mean_present(submit: Floats, end: Floats) -> Floats:
    """The mean number of jobs in the system while each job was in it."""
    times = np.concatenate([submit, end])
    steps = np.concatenate([np.ones_like(submit), -np.ones_like(end)])
    order = np.argsort(times, kind="stable")
    times = times[order]
    count = np.cumsum(steps[order])
    area = np.concatenate([[0.0], np.cumsum(count[:-1] * np.diff(times))])
    life = np.maximum(end - submit, np.finfo(np.float64).tiny)
    mean: Floats = (np.interp(end, times, area) - np.interp(submit, times, area)) / life
    return mean


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
