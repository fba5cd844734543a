"""The outcome of each job in one row, and the totals of the cluster. The input of every report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rota.core.model.job import JobState
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State


class JobRow(NamedTuple):
    """One job's life in numbers. Times are seconds on the engine's clock; None where it did not happen.

    A plain tuple: a history has a hundred thousand of them.
    """

    id: str
    name: str
    tenant: str
    user: str
    state: str
    gpus: float
    tasks: int
    priority: int
    submit_s: float
    start_s: float | None
    end_s: float | None
    run_s: float
    wait_s: float
    fragmented_s: float
    """The part of its waiting time in which enough devices were free, but not together."""
    gpu_s: float
    ideal_s: float
    """How long it would have run without interruption at its nominal speed."""
    preemptions: int
    restarts: int
    overhead_s: float
    lost_s: float
    """Work undone by faults, in seconds at nominal speed."""
    deadline_s: float | None
    suspensions: int = 0
    moves: int = 0
    busy_s: float | None = None
    """Device-seconds in which it kept devices busy; None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All jobs in order of submission, and the cluster's totals."""

    jobs: tuple[JobRow, ...]
    devices: int
    free_device_s: float
    fragmented_device_s: float
    """Device-seconds that were free on nodes with other jobs; part of `free_device_s`."""


def history_of(state: State) -> History:
    """What a state remembers of its jobs."""
    return History(
        jobs=tuple(_row(live, state.now_s) for live in state.jobs.values()),
        devices=state.inventory.devices,
        free_device_s=state.free_device_s,
        fragmented_device_s=state.fragmented_device_s,
    )


def _row(live: LiveJob, now_s: float) -> JobRow:
    job = live.job
    until_s = now_s if live.ended_s is None else live.ended_s
    nominal = live.nominal_rate or 1.0
    run_s = live.run_s(until_s)
    # By position, in the order of the fields above: a hundred thousand rows by name take twice as long.
    return JobRow(
        job.id,
        job.name,
        job.tenant,
        job.user,
        live.state.value if live.state is not JobState.STARTING else JobState.RUNNING.value,
        job.gpus,
        job.tasks,
        job.priority,
        live.submitted_s,
        live.first_start_s,
        live.ended_s,
        run_s,
        until_s - live.submitted_s - run_s,
        live.scattered_s,
        live.attained_gpu_s(until_s),
        live.work_done(until_s) / nominal,
        live.preemptions,
        live.restarts,
        live.overhead_s,
        live.lost_work / nominal,
        job.deadline_s,
        live.suspensions,
        live.moves,
    )
