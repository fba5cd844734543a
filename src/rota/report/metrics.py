"""The metrics of runs. Every definition is here, once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from operator import add, sub
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rota.core.state.history import History, JobRow

Floats = NDArray[np.float64]


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
    columns = _columns(history.jobs)
    return _measure(columns, _finish_time_fairness(columns, history.devices), history)


def measure_tenants(history: History) -> dict[str, Metrics]:
    """The metrics of each tenant's jobs.

    Fragmentation is the whole cluster's, and allocation is relative to all device-seconds of the run.
    """
    return measure_with_tenants(history)[1]


def measure_with_tenants(history: History) -> tuple[Metrics, dict[str, Metrics]]:
    """The metrics of a whole run, and those of each tenant's jobs."""
    columns = _columns(history.jobs)
    ratios = _finish_time_fairness(columns, history.devices)
    whole = _measure(columns, ratios, history)
    rows: dict[str, list[int]] = {}
    for index, tenant in enumerate(columns.tenant):
        rows.setdefault(tenant, []).append(index)
    if len(rows) == 1:
        return whole, dict.fromkeys(rows, whole)
    return whole, {
        tenant: _measure(_columns([history.jobs[i] for i in indexes]), ratios[indexes], history, whole.makespan_s)
        for tenant, indexes in sorted(rows.items())
    }


def _measure(every: Any, ratios: Floats, history: History, span_s: float | None = None) -> Metrics:
    """The metrics of jobs given as columns, in a run of so many seconds; of a whole run without."""
    finished = every
    if None in every.end_s or None in every.start_s:
        rows = map(JobRow._make, zip(*every, strict=True))
        finished = _columns([row for row in rows if row.end_s is not None and row.start_s is not None])
    jct = sorted(map(sub, finished.end_s, finished.submit_s))
    makespan_s = max(finished.end_s) - min(every.submit_s) if jct else 0.0
    device_s = history.devices * (makespan_s if span_s is None else span_s)
    lost_s = math.fsum(map(add, every.overhead_s, every.lost_s))
    kept_busy_s = [busy_s for busy_s in every.busy_s if busy_s is not None]
    known = ratios[~np.isnan(ratios)]
    deadlines = [
        (deadline_s, end_s, state)
        for deadline_s, end_s, state in zip(every.deadline_s, every.end_s, every.state, strict=True)
        if deadline_s is not None
    ]
    return Metrics(
        jobs=len(every.id),
        finished=len(jct),
        avg_jct_s=_mean(jct),
        median_jct_s=quantile(jct, 0.5),
        p99_jct_s=quantile(jct, 0.99),
        makespan_s=makespan_s,
        avg_wait_s=_mean(finished.wait_s),
        avg_fair_share_delay_s=_mean(list(map(sub, finished.wait_s, finished.fragmented_s))),
        avg_fragmentation_delay_s=_mean(finished.fragmented_s),
        gpu_allocation=_ratio(math.fsum(every.gpu_s), device_s),
        gpu_busy=_ratio(math.fsum(kept_busy_s), device_s) if kept_busy_s else None,
        preemptions=sum(every.preemptions),
        worst_finish_time_fairness=float(known.max()) if known.size else None,
        jain_fairness=jain(known),
        fragmentation=_ratio(history.fragmented_device_s, history.free_device_s),
        preemption_overhead=_ratio(lost_s, math.fsum(every.run_s)),
        restarts=sum(every.restarts),
        succeeded=every.state.count("succeeded"),
        failed=every.state.count("failed"),
        cancelled=every.state.count("cancelled"),
        deadlines=len(deadlines),
        deadlines_met=sum(
            state == "succeeded" and end_s is not None and end_s <= deadline_s for deadline_s, end_s, state in deadlines
        ),
        suspensions=sum(every.suspensions),
        moves=sum(every.moves),
    )


def _columns(rows: Sequence[JobRow]) -> Any:
    """A row whose fields are those of all rows, as tuples: made at C speed, and so is what is made of them."""
    return JobRow._make(zip(*rows, strict=True)) if rows else JobRow._make([()] * len(JobRow._fields))


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
    return _finish_time_fairness(_columns(history.jobs), history.devices)


def _finish_time_fairness(columns: Any, devices: int) -> Floats:
    """The same, of jobs given as columns. None becomes NaN."""
    submit, start, end, ideal, gpus = (
        np.array(column, dtype=np.float64)
        for column in (columns.submit_s, columns.start_s, columns.end_s, columns.ideal_s, columns.gpus)
    )
    ended = ~np.isnan(end) & ~np.isnan(start)
    last_s = np.nanmax(np.concatenate([submit, start, end]), initial=0.0)
    end = np.where(np.isnan(end), last_s, end)
    ratios = np.full(len(submit), np.nan)
    here = ended & (ideal > 0) & (end > submit)
    if not here.any():
        return ratios
    present = mean_present(submit, end)[here]
    share = max(devices, 1) / np.maximum(present, 1.0)
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
