"""The engine's parts without a policy: tests apply single events and plans, and see what each does by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from builders import cluster, job, node, on
from rota.core.engine.dispatch import Dispatch
from rota.core.engine.draft import Draft
from rota.core.engine.lifecycle import JobEvent
from rota.core.engine.timers import Timers
from rota.core.engine.transitions import Transitions
from rota.core.messages import events as told
from rota.core.messages.events import End, Event, JobArrived
from rota.core.model.job import Checkpoint, JobId
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import Phase
from rota.core.state.state import State
from rota.placement import style
from rota.tenancy import allocator

HERE, THERE = on("n1", 1), on("n2", 1)
"""The first devices of the two nodes."""


class Kernel:
    """Two nodes of two devices each, on which events and plans are applied one at a time."""

    def __init__(self) -> None:
        self.cluster = cluster(node("n1", 2), node("n2", 2))
        self.state = State(self.cluster)
        self.dispatch = Dispatch(self.state)
        self.timers = Timers(self.state)
        self.transitions = Transitions(self.state, self.dispatch, self.timers)
        self._allocator = allocator("none", style("any"), self.cluster)

    def arrive(self, name: str, *, held: bool = False, **fields: Any) -> LiveJob:
        """A job is submitted."""
        self.take(JobArrived(job(name, **fields), held=held))
        return self.state.live(JobId(name))

    def take(self, event: Event) -> None:
        """One event; no plan follows."""
        self.transitions.take(event)

    def tell(self, kind: type[JobEvent], live: LiveJob, *, retry_s: float | None = None) -> None:
        """An event of this kind about a job, with values that are possible now."""
        self.take(event_about(kind, live, self.state.now_s, retry_s=retry_s))

    def plan(self, *acts: Callable[[Draft], None]) -> None:
        """Carry out a plan of these acts."""
        draft = self.draft()
        for act in acts:
            act(draft)
        self.dispatch.carry_out(draft)

    def draft(self) -> Draft:
        """A draft for a plan."""
        return Draft(self.state.inventory, self._allocator, self.state.now_s)


def event_about(kind: type[JobEvent], live: LiveJob, now_s: float, *, retry_s: float | None = None) -> JobEvent:
    """An event of one kind about a job, with values that are possible now."""
    name, work = live.job.id, live.work_done(now_s)
    if kind in (told.JobCancelled, told.JobHeld, told.JobReleased, told.JobRequeued):
        return kind(name)
    by_kind: dict[type, JobEvent] = {
        told.CheckpointChanged: told.CheckpointChanged(name, replace(live.job, checkpoint=Checkpoint(interval_s=7.0))),
        told.JobUpdated: told.JobUpdated(name, replace(live.job, priority=live.job.priority + 1)),
        told.Started: told.Started(name, 1.0, now_s),
        told.StartFailed: told.StartFailed(name, "no such image", retry_s),
        told.Stopped: told.Stopped(name, work),
        told.Resized: told.Resized(name, work, 1.0, now_s),
        told.Moved: told.Moved(name, work, 1.0, now_s),
        told.Suspended: told.Suspended(name, work),
        told.Resumed: told.Resumed(name, 1.0, now_s),
        told.SpeedChanged: told.SpeedChanged(name, work, 0.5),
        told.Lapsed: told.Lapsed(name, work),
        told.WorkDone: told.WorkDone(name, work),
        told.JobEnded: told.JobEnded(name, End.SUCCEEDED, work),
        told.Interrupted: told.Interrupted(name, work, retry_s),
    }
    return by_kind[kind]


def assign(live: LiveJob, placement: Placement) -> Callable[[Draft], None]:
    """Let a job hold these devices."""
    return lambda draft: draft.assign(live, placement)


def release(live: LiveJob) -> Callable[[Draft], None]:
    """Let a job hold nothing."""
    return lambda draft: draft.release(live)


def move(live: LiveJob, placement: Placement) -> Callable[[Draft], None]:
    """Let a job continue on these devices."""
    return lambda draft: draft.move(live, placement)


def suspend(live: LiveJob) -> Callable[[Draft], None]:
    """Let a job pause and leave its devices."""
    return lambda draft: draft.suspend(live)


def resume(live: LiveJob) -> Callable[[Draft], None]:
    """Let a suspended job continue where it is."""
    return lambda draft: draft.resume(live)


def job_in(phase: Phase, kernel: Kernel) -> LiveJob:
    """Bring job `j` into a phase by events and plans alone."""
    if phase is Phase.HELD:
        return kernel.arrive("j", held=True)
    if phase is Phase.BLOCKED:
        kernel.arrive("needed")
        return kernel.arrive("j", depends_on=(JobId("needed"),))
    live = kernel.arrive("j", work=100.0)
    if phase is Phase.WAITING:
        return live
    if phase is Phase.RESERVED:
        other = _running(kernel, kernel.arrive("o"), HERE)
        kernel.plan(release(other), assign(live, HERE))
    elif phase in (Phase.STARTING, Phase.STOPPING_START, Phase.RELOCATING_START):
        kernel.plan(assign(live, HERE))
        _stop(phase, kernel, live)
    elif phase in _PAUSED:
        _running(kernel, live, HERE)
        kernel.plan(suspend(live))
        kernel.tell(told.Suspended, live)
        _after_suspension(phase, kernel, live)
    else:
        _running(kernel, live, HERE)
        _after_start(phase, kernel, live)
    return live


_PAUSED = (
    Phase.SUSPENDED,
    Phase.RESUME_RESERVED,
    Phase.RESUMING,
    Phase.MOVING,
    Phase.STOPPING_SUSPENDED,
    Phase.RELOCATING_SUSPENDED,
)


def _running(kernel: Kernel, live: LiveJob, placement: Placement) -> LiveJob:
    kernel.plan(assign(live, placement))
    kernel.tell(told.Started, live)
    return live


def _stop(phase: Phase, kernel: Kernel, live: LiveJob) -> None:
    if phase in (Phase.STOPPING_START, Phase.STOPPING, Phase.STOPPING_SUSPENDED):
        kernel.plan(release(live))
    elif phase in (Phase.RELOCATING_START, Phase.RELOCATING):
        kernel.plan(release(live), assign(live, THERE))


def _after_start(phase: Phase, kernel: Kernel, live: LiveJob) -> None:
    match phase:
        case Phase.RESIZING:
            kernel.plan(move(live, THERE))
        case Phase.SUSPENDING:
            kernel.plan(suspend(live))
        case Phase.SAVING:
            kernel.tell(told.WorkDone, live)
        case Phase.SUCCEEDED:
            kernel.take(told.JobEnded(live.job.id, End.SUCCEEDED, 0.0))
        case Phase.FAILED:
            kernel.take(told.JobEnded(live.job.id, End.FAILED, 0.0))
        case Phase.CANCELLED:
            kernel.take(told.JobEnded(live.job.id, End.CANCELLED, 0.0))
        case _:
            _stop(phase, kernel, live)


def _after_suspension(phase: Phase, kernel: Kernel, live: LiveJob) -> None:
    match phase:
        case Phase.RESUME_RESERVED:
            other = _running(kernel, kernel.arrive("o"), HERE)
            kernel.plan(release(other), resume(live))
        case Phase.RESUMING:
            kernel.plan(resume(live))
        case Phase.MOVING:
            kernel.plan(move(live, THERE))
        case Phase.RELOCATING_SUSPENDED:
            other = _running(kernel, kernel.arrive("o"), THERE)
            kernel.plan(release(other), move(live, THERE))
        case _:
            _stop(phase, kernel, live)
