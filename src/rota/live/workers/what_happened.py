"""What really happened to the jobs of a journal, in the form of a simulation's history, to compare both."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rota.core.codec.values import decode_event
from rota.core.messages import events as ev
from rota.core.messages.events import Event
from rota.core.model.job import Job, JobId
from rota.core.state.history import History, JobRow

Json = dict[str, Any]
UNKNOWN = (
    "avg_fair_share_delay_s",
    "avg_fragmentation_delay_s",
    "fragmentation",
    "preemption_overhead",
    "gpu_busy",
)
"""Metrics that a journal does not tell."""


@dataclass(slots=True)
class _Life:
    job: Job
    submit_s: float
    start_s: float | None = None
    since_s: float | None = None
    end_s: float | None = None
    run_s: float = 0.0
    starts: int = 0
    failures: int = 0
    state: str = "succeeded"

    def run(self, now_s: float) -> None:
        """Begin to run."""
        self.starts += 1
        self.since_s = now_s
        self.start_s = now_s if self.start_s is None else self.start_s

    def rest(self, now_s: float) -> None:
        """Stop running."""
        if self.since_s is not None:
            self.run_s += now_s - self.since_s
            self.since_s = None


def what_happened(journal: Path, wanted: Collection[JobId], devices: int, *, from_s: float = 0.0) -> History:
    """Return the history of jobs that were submitted since a time and ended; times count from the first submission."""
    lives: dict[JobId, _Life] = {}
    with journal.open(encoding="utf-8") as lines:
        next(lines)
        for line in lines:
            value = json.loads(line)
            for each in value["in"]:
                _take(lives, decode_event(each), float(value["t"]))
    over = [
        life
        for name, life in lives.items()
        if name in wanted and life.submit_s >= from_s and life.end_s is not None and life.start_s is not None
    ]
    first_s = min((life.submit_s for life in over), default=0.0)
    rows = tuple(_row(life, first_s) for life in sorted(over, key=lambda life: life.submit_s))
    return History(jobs=rows, devices=devices, free_device_s=0.0, fragmented_device_s=0.0)


def _take(lives: dict[JobId, _Life], event: Event, now_s: float) -> None:
    if isinstance(event, ev.JobArrived):
        lives[event.job.id] = _Life(event.job, now_s)
        return
    life = lives.get(getattr(event, "job_id", JobId("")))
    if life is None:
        return
    match event:
        case ev.Started():
            life.run(now_s)
        case ev.Resumed():
            life.since_s = now_s
        case ev.Stopped() | ev.Suspended():
            life.rest(now_s)
            if life.state == "cancelled":
                life.end_s = now_s
        case ev.Interrupted():
            life.failures += 1
            life.rest(now_s)
        case ev.JobEnded(end=end):
            life.rest(now_s)
            life.end_s, life.state = now_s, end.value
        case ev.JobCancelled():
            life.state, life.end_s = "cancelled", now_s
        case _:
            pass


def _row(life: _Life, first_s: float) -> JobRow:
    job = life.job
    assert life.end_s is not None
    assert life.start_s is not None
    return JobRow(
        id=job.id,
        name=job.name,
        tenant=job.tenant,
        user=job.user,
        state=life.state,
        gpus=job.gpus,
        tasks=job.tasks,
        priority=job.priority,
        submit_s=life.submit_s - first_s,
        start_s=life.start_s - first_s,
        end_s=life.end_s - first_s,
        run_s=life.run_s,
        wait_s=life.end_s - life.submit_s - life.run_s,
        fragmented_s=0.0,
        gpu_s=life.run_s * job.gpus,
        ideal_s=life.run_s,
        preemptions=max(life.starts - 1 - life.failures, 0),
        restarts=life.failures,
        overhead_s=0.0,
        lost_s=0.0,
        deadline_s=job.deadline_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationError:
    """How far the simulation of the present policy is from what really happened: the error bar of a what-if."""

    jobs: int
    metrics: dict[str, float | None]
    """By metric: simulated over real, less one."""
    per_job_median: float
    """The median over jobs of the distance of completion times, as a part of the real one."""
    per_job_p90: float
    by_chance: list[float] | None = None
    """The least and the largest distance of mean completion if submissions come slightly later; None if not tried."""


def error_of(
    simulated: History, real: History, metrics: Json, real_metrics: Json, moved: Sequence[History] = ()
) -> SimulationError | None:
    """Compare a simulation with what happened; None where no job is in both. `moved` are others by chance."""
    real_s = {row.id: (row.end_s or 0.0) - row.submit_s for row in real.jobs}
    distances = sorted(
        abs((row.end_s - row.submit_s) - real_s[row.id]) / max(real_s[row.id], 1e-9)
        for row in simulated.jobs
        if row.id in real_s and row.end_s is not None and row.start_s is not None
    )
    if not distances:
        return None
    return SimulationError(
        jobs=len(distances),
        metrics={name: _distance(metrics.get(name), real_metrics.get(name)) for name in real_metrics},
        per_job_median=_at(distances, 0.5),
        per_job_p90=_at(distances, 0.9),
        by_chance=_by_chance((simulated, *moved), real_s) if moved else None,
    )


def _by_chance(runs: Sequence[History], real_s: Mapping[str, float]) -> list[float]:
    """Return the least and the largest distance of the mean completion time of several simulations."""
    found = []
    for run in runs:
        pairs = [
            (row.end_s - row.submit_s, real_s[row.id]) for row in run.jobs if row.id in real_s and row.end_s is not None
        ]
        found.append(math.fsum(each for each, _ in pairs) / max(math.fsum(each for _, each in pairs), 1e-9) - 1.0)
    return [min(found), max(found)]


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _distance(simulated: object, real: object) -> float | None:
    if not isinstance(simulated, int | float) or not isinstance(real, int | float) or not real:
        return None
    found = simulated / real - 1.0
    return found if math.isfinite(found) else None
