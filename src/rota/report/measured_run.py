"""A run as columns, with the part of it that is measured: the input of every named metric.

Jobs are chosen by their submission: those of the warm-up and of the cool-down still run, but do not count. Device time
is counted between the first and the last submission of the chosen jobs, so that the drain of the cluster is left out.
Without a window, all jobs count, and device time from the first submission to the last end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.state.history import History, JobRow
from rota.report.fluid_sharing import fluid_completion_s
from rota.report.metrics import finish_time_fairness, mean_present
from rota.report.series import Floats
from rota.report.timeline import Timeline
from rota.scenario.window import SteadyWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """The measured jobs of a run in columns, NaN where a job has no such value, and its device time by type."""

    jobs: int
    """Jobs in the window."""
    finished: int
    from_s: float
    until_s: float
    """Bounds of the time in which devices count."""
    excludes_drain: bool
    devices: float
    """Mean number of devices that were up in that time."""
    jct_s: Floats
    queueing_s: Floats
    wait_s: Floats
    ideal_s: Floats
    own_n: Floats
    """Finish-time fairness against a 1/n share, n being the mean number of jobs under the policy itself."""
    fluid: Floats
    """Completion time over that of fluid processor sharing."""
    themis: Floats
    """Completion time over n times the run time alone, as in Themis."""
    preemptions: float
    makespan_s: float
    held_s: Mapping[str, float]
    """Device-seconds held in the window, by device type."""
    capacity_s: Mapping[str, float]
    """Device-seconds of devices that were there in the window, by device type."""
    useful_s: float
    """Device-seconds of work done in the window, at nominal speed."""
    busy_s: float | None
    ids: tuple[str, ...]

    @property
    def span_s(self) -> float:
        """The length of the window."""
        return self.until_s - self.from_s


def measured_run(history: History, timeline: Timeline, cluster: Cluster, window: SteadyWindow) -> MeasuredRun:
    """A run cut to a window; an empty window is refused."""
    rows = history.jobs
    chosen = _chosen(rows, window)
    from_s, until_s = _bounds(rows, chosen, window)
    held = _held_by_job(timeline, from_s, until_s)
    own = finish_time_fairness(history)[chosen]
    picked = [rows[index] for index in chosen]
    done = np.array([row.end_s is not None and row.start_s is not None for row in picked], dtype=np.bool_)
    columns = _columns(picked)
    jct_s = np.where(done, columns["end"] - columns["submit"], np.nan)
    useful = [
        seconds * row.ideal_s * row.gpus / row.gpu_s
        for row in rows
        if (seconds := held.get(row.id, 0.0)) and row.gpu_s > 0
    ]
    busy = [
        seconds * row.busy_s / row.gpu_s
        for row in rows
        if row.busy_s is not None and (seconds := held.get(row.id, 0.0)) and row.gpu_s > 0
    ]
    capacity_s = _capacity_by_type(timeline, cluster, from_s, until_s)
    return MeasuredRun(
        jobs=len(picked),
        finished=int(done.sum()),
        from_s=from_s,
        until_s=until_s,
        excludes_drain=bool(window),
        devices=sum(capacity_s.values()) / max(until_s - from_s, 1e-9),
        jct_s=jct_s,
        queueing_s=np.where(done, columns["start"] - columns["submit"], np.nan),
        wait_s=np.where(done, columns["wait"], np.nan),
        ideal_s=np.where(done & (columns["ideal"] > 0), columns["ideal"], np.nan),
        own_n=own,
        fluid=jct_s / _fluid(history)[chosen],
        themis=jct_s / _alone_times_n(history)[chosen],
        preemptions=float(columns["preemptions"].sum()),
        makespan_s=_makespan_s(rows),
        held_s=_held_by_type(timeline, cluster, from_s, until_s),
        capacity_s=capacity_s,
        useful_s=float(sum(useful)),
        busy_s=float(sum(busy)) if busy else None,
        ids=tuple(row.id for row in picked),
    )


def _columns(rows: list[JobRow]) -> dict[str, Floats]:
    def column(values: list[float]) -> Floats:
        return np.array(values, dtype=np.float64)

    return {
        "submit": column([row.submit_s for row in rows]),
        "start": column([np.nan if row.start_s is None else row.start_s for row in rows]),
        "end": column([np.nan if row.end_s is None else row.end_s for row in rows]),
        "wait": column([row.wait_s for row in rows]),
        "ideal": column([row.ideal_s for row in rows]),
        "preemptions": column([row.preemptions for row in rows]),
    }


def _chosen(rows: tuple[JobRow, ...], window: SteadyWindow) -> NDArray[np.intp]:
    """The places of the jobs in the window, by submission."""
    submit = np.array([row.submit_s for row in rows], dtype=np.float64)
    order = np.argsort(submit, kind="stable")
    first = window.warm_up.of(len(rows))
    last = len(rows) - window.cool_down.of(len(rows))
    kept = order[first : max(last, first)]
    if len(rows):
        low, high = submit.min() + window.warm_up.seconds, submit.max() - window.cool_down.seconds
        kept = kept[(submit[kept] >= low) & (submit[kept] <= high)]
    if not kept.size:
        raise RotaError(
            f"no job is left between a warm-up of {window.warm_up} and a cool-down of {window.cool_down} "
            f"({len(rows):,} jobs); leave out less, or simulate more jobs"
        )
    chosen: NDArray[np.intp] = np.sort(kept)
    return chosen


def _bounds(rows: tuple[JobRow, ...], chosen: NDArray[np.intp], window: SteadyWindow) -> tuple[float, float]:
    submits = [rows[index].submit_s for index in chosen]
    if window:
        return min(submits), max(submits)
    first_s = min(row.submit_s for row in rows)
    return first_s, first_s + _makespan_s(rows)


def _makespan_s(rows: tuple[JobRow, ...]) -> float:
    ends = [row.end_s for row in rows if row.end_s is not None and row.start_s is not None]
    return max(ends) - min(row.submit_s for row in rows) if ends else 0.0


def _overlaps(timeline: Timeline, from_s: float, until_s: float) -> tuple[Floats, Floats]:
    """The seconds of each held interval that lie in the window, and its devices."""
    held = timeline.segments()
    inside = np.minimum(held.end_s, until_s) - np.maximum(held.start_s, from_s)
    return np.maximum(inside, 0.0), held.devices()


def _held_by_job(timeline: Timeline, from_s: float, until_s: float) -> dict[str, float]:
    seconds, devices = _overlaps(timeline, from_s, until_s)
    held: dict[str, float] = {}
    for job, amount in zip(timeline.segments().job_ids, (seconds * devices).tolist(), strict=True):
        if amount:
            held[job] = held.get(job, 0.0) + amount
    return held


def _types(timeline: Timeline, cluster: Cluster) -> list[str]:
    kinds = {node.id: str(node.device_type) for node in cluster.nodes}
    return [kinds.get(node, "unknown") for node in timeline.node_ids]


def _held_by_type(timeline: Timeline, cluster: Cluster, from_s: float, until_s: float) -> dict[str, float]:
    seconds, devices = _overlaps(timeline, from_s, until_s)
    kinds = _types(timeline, cluster)
    by_node = np.bincount(timeline.segments().nodes, weights=seconds * devices, minlength=len(kinds))
    held: dict[str, float] = {}
    for kind, amount in zip(kinds, by_node.tolist(), strict=True):
        held[kind] = held.get(kind, 0.0) + amount
    return held


def _capacity_by_type(timeline: Timeline, cluster: Cluster, from_s: float, until_s: float) -> dict[str, float]:
    """Device-seconds of all devices; those of nodes that were down are left out in proportion to their number."""
    count: dict[str, float] = {}
    for kind, devices in zip(_types(timeline, cluster), timeline.node_devices, strict=True):
        count[kind] = count.get(kind, 0.0) + devices
    up = timeline.capacity()
    edges = np.concatenate([[from_s], up.times_s[(up.times_s > from_s) & (up.times_s < until_s)], [until_s]])
    levels = np.array([up.at(edge) for edge in edges[:-1]], dtype=np.float64)
    up_s = float((levels * np.diff(edges)).sum())
    total = sum(count.values())
    return {kind: up_s * devices / total if total else 0.0 for kind, devices in count.items()}


def _fluid(history: History) -> Floats:
    rows = history.jobs
    return fluid_completion_s(
        np.array([row.submit_s for row in rows], dtype=np.float64),
        np.array([row.gpus for row in rows], dtype=np.float64),
        np.array([row.ideal_s if row.end_s is not None else 0.0 for row in rows], dtype=np.float64),
        float(history.devices),
    )


def _alone_times_n(history: History) -> Floats:
    """The independent finish time as in Themis: the run time alone times the mean number of jobs in its life."""
    rows = history.jobs
    last_s = max((max(row.submit_s, row.end_s or 0.0) for row in rows), default=0.0)
    submit = np.array([row.submit_s for row in rows], dtype=np.float64)
    end = np.array([last_s if row.end_s is None else row.end_s for row in rows], dtype=np.float64)
    ideal = np.array([row.ideal_s if row.ideal_s > 0 else np.nan for row in rows], dtype=np.float64)
    present: Floats = np.maximum(mean_present(submit, end), 1.0)
    alone: Floats = ideal * present
    return alone
