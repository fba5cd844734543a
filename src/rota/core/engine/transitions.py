"""What each event does to the state: users' wishes, drivers' answers; of nodes, see `changed_nodes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rota.core.engine import node_transitions
from rota.core.engine.dispatch import Dispatch
from rota.core.engine.protocols import Changes
from rota.core.engine.timers import Timers
from rota.core.errors import InvariantBroken
from rota.core.messages.decisions import Cause
from rota.core.messages.events import (
    End,
    Event,
    Interrupted,
    JobArrived,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobReleased,
    Lapsed,
    Moved,
    Resized,
    Resumed,
    SpeedChanged,
    Started,
    StartFailed,
    Stopped,
    Suspended,
    TimerFired,
    WorkDone,
)
from rota.core.model.job import JobId, JobState
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State

_FINAL_BY_END = {
    End.SUCCEEDED: JobState.SUCCEEDED,
    End.FAILED: JobState.FAILED,
    End.CANCELLED: JobState.CANCELLED,
}


class Transitions:
    """Takes events in, one by one, and gathers what they change for the policy.

    An event that makes no sense is refused before it changes anything.
    """

    def __init__(self, state: State, orders: Dispatch, timers: Timers) -> None:
        self._state = state
        self._orders = orders
        self._timers = timers
        self.changes = Changes()
        """What the policy has not been told yet."""
        self._handlers: dict[type, Callable[[Any], None]] = {
            JobArrived: self._job_arrived,
            JobCancelled: self._job_cancelled,
            JobHeld: self._job_held,
            JobReleased: self._job_released,
            Started: self._started,
            StartFailed: self._start_failed,
            Stopped: self._stopped,
            Resized: self._resized,
            Moved: self._moved,
            Suspended: self._suspended,
            Resumed: self._resumed,
            SpeedChanged: self._speed_changed,
            Lapsed: self._lapsed,
            WorkDone: self._work_done,
            JobEnded: self._job_ended,
            Interrupted: self._interrupted,
            TimerFired: lambda event: None,
            **dict.fromkeys(node_transitions.HANDLERS, self._nodes_changed),
        }

    def take(self, event: Event) -> None:
        """One event."""
        self._handlers[type(event)](event)

    def enforce_limits(self) -> None:
        """Stop jobs that have run for as long as they may."""
        for live in self._timers.over_limit(self._state.now_s):
            self._evict(live, Cause.TIME_LIMIT)

    def end_pauses(self) -> None:
        """Jobs whose pause after a failure is over contend again."""
        for live in self._timers.rested(self._state.now_s):
            live.retry_s = None
            live.unmet -= 1
            if live.state is JobState.WAITING and not live.unmet:
                self.changes.arrived.append(live)

    def send_back(self, live: LiveJob) -> bool:
        """A suspended job that nobody would resume waits like any other; False while it is not suspended yet."""
        if live.state is JobState.SUSPENDED and live.stopping is None:
            self._evict(live, Cause.PREEMPTED)
        return live.suspended_on is None or live.stopping is not None

    def _evict(self, live: LiveJob, cause: Cause) -> None:
        """Stop a job for good; its claim ends now, its hold on the devices when it answers."""
        held = self._state.where(live)
        if not held:
            raise InvariantBroken(f"job {live.job.id} holds nothing and can't be stopped")
        self._state.give_up_claim(live)
        self._orders.stop(live, held, cause)
        self.changes.left.append(live)
        self.changes.freed = True

    # -- what users do ---------------------------------------------------------------------------

    def _job_arrived(self, event: JobArrived) -> None:
        live = self._state.admit(event.job, event.nominal_rate)
        if live.unmet and any(self._state.jobs[d].state.is_final for d in live.job.depends_on if self._unmet(d)):
            self._finish(live, JobState.CANCELLED)
        elif event.held:
            live.state = JobState.HELD
        elif not live.unmet:
            self.changes.arrived.append(live)

    def _unmet(self, job_id: JobId) -> bool:
        return self._state.jobs[job_id].state is not JobState.SUCCEEDED

    def _job_cancelled(self, event: JobCancelled) -> None:
        live = self._state.live(event.job_id)
        if live.state.is_final or live.stopping in (Cause.CANCELLED, Cause.TIME_LIMIT):
            return
        if live.stopping is not None:
            self._leave(live)
            live.stopping = Cause.CANCELLED
        elif live.state in (JobState.STARTING, JobState.RUNNING, JobState.SUSPENDED):
            self._evict(live, Cause.CANCELLED)
        else:
            self._leave(live)
            self._finish(live, JobState.CANCELLED)

    def _job_held(self, event: JobHeld) -> None:
        live = self._state.live(event.job_id)
        if live.state is JobState.WAITING:
            self._leave(live)
            live.state = JobState.HELD

    def _job_released(self, event: JobReleased) -> None:
        live = self._state.live(event.job_id)
        if live.state is JobState.HELD:
            live.state = JobState.WAITING
            live.since_s = self._state.now_s
            if not live.unmet:
                self.changes.arrived.append(live)

    def _leave(self, live: LiveJob) -> None:
        """A waiting job stops contending."""
        if live.reserved:
            self._state.give_up_claim(live)
            self.changes.freed = True
        self.changes.left.append(live)

    # -- what drivers answer ---------------------------------------------------------------------

    def _started(self, event: Started) -> None:
        live = self._state.live(event.job_id)
        if live.state is not JobState.STARTING:
            raise InvariantBroken(f"job {event.job_id} started, but it is {live.state.value}")
        self._state.running(live, event.rate, event.work_from_s)
        if live.stopping is not None:
            return
        self.changes.started.append(live)
        self._timers.limit(live)

    def _start_failed(self, event: StartFailed) -> None:
        live = self._state.live(event.job_id)
        self._requeue(live, live.work, event.retry_s)

    def _stopped(self, event: Stopped) -> None:
        live = self._state.live(event.job_id)
        cause = live.stopping
        if cause is None:
            raise InvariantBroken(f"job {event.job_id} stopped without an order")
        has_run = live.run_since_s is not None or live.state is JobState.SUSPENDED
        if has_run and cause in (Cause.PREEMPTED, Cause.MOVED):
            live.preemptions += 1
        self._state.halt(live, event.work)
        self._orders.vacated = True
        match cause:
            case Cause.PREEMPTED:
                self.changes.arrived.append(live)
            case Cause.MOVED:
                if live.placement is None:
                    self.changes.arrived.append(live)
            case Cause.CANCELLED:
                self._finish(live, JobState.CANCELLED)
            case Cause.TIME_LIMIT:
                self._finish(live, JobState.FAILED)

    def _resized(self, event: Resized) -> None:
        live = self._state.live(event.job_id)
        if live.stopping is not None or live.suspended_on is not None:
            return
        self._state.vacating.pop(event.job_id, None)
        self._orders.vacated = True
        live.settle(self._state.now_s)
        live.work = event.work
        live.run_milli = live.gpu_milli
        self._state.running(live, event.rate, event.work_from_s)
        self.changes.started.append(live)

    def _moved(self, event: Moved) -> None:
        live = self._state.live(event.job_id)
        if live.stopping is None:
            live.moves += 1
            live.suspended_on = None
            self.changes.freed = True
            self._resized(Resized(event.job_id, event.work, event.rate, event.work_from_s))
            self._timers.limit(live)

    def _suspended(self, event: Suspended) -> None:
        live = self._state.live(event.job_id)
        if live.stopping is not None:
            return
        if live.state is not JobState.RUNNING or live.suspended_on is None:
            raise InvariantBroken(f"job {event.job_id} was suspended without an order")
        self._state.suspend(live, event.work)
        self._orders.vacated = True
        self.changes.started.append(live)

    def _resumed(self, event: Resumed) -> None:
        live = self._state.live(event.job_id)
        if live.stopping is not None:
            return
        if live.state is not JobState.SUSPENDED or live.reserved:
            raise InvariantBroken(f"job {event.job_id} was resumed without an order")
        self._state.running(live, event.rate, event.work_from_s)
        self.changes.started.append(live)
        self._timers.limit(live)

    def _speed_changed(self, event: SpeedChanged) -> None:
        live = self._state.live(event.job_id)
        if live.run_since_s is None:
            return
        live.settle(self._state.now_s)
        live.work = event.work
        live.rate = event.rate
        only_saves = not event.rate and live.job.work is not None and event.work >= live.job.work
        if live.stopping is None and not only_saves:
            self.changes.started.append(live)

    def _lapsed(self, event: Lapsed) -> None:
        live = self._state.live(event.job_id)
        if live.run_since_s is None:
            return
        self._state.lapse(live, event.work)
        if live.stopping is None:
            self.changes.lapsed.append(live)

    def _work_done(self, event: WorkDone) -> None:
        live = self._state.live(event.job_id)
        if live.run_since_s is None or live.saves:
            return
        live.settle(self._state.now_s)
        live.work = event.work
        live.rate = 0.0
        is_under_orders = live.stopping is not None or live.job.id in self._state.vacating
        if not is_under_orders and not live.job.exclusive:
            self._state.leave_devices(live)
            self.changes.started.append(live)
            self.changes.freed = True

    def _job_ended(self, event: JobEnded) -> None:
        live = self._state.live(event.job_id)
        if live.state.is_final:
            raise InvariantBroken(f"job {event.job_id} ended twice")
        self._clear_off(live, event.work)
        self._finish(live, _FINAL_BY_END[event.end])

    def _interrupted(self, event: Interrupted) -> None:
        live = self._state.live(event.job_id)
        self._requeue(live, event.work, event.retry_s)
        if event.job is not None and not live.state.is_final:
            self._state.ask_anew(live, event.job)

    def _requeue(self, live: LiveJob, work: float, retry_s: float | None) -> None:
        """A run came to nothing; the job waits again, or has had its last chance."""
        cause = live.stopping
        self._clear_off(live, work)
        live.restarts += 1
        limit = live.job.max_restarts
        if cause is Cause.CANCELLED:
            self._finish(live, JobState.CANCELLED)
        elif cause is Cause.TIME_LIMIT or (limit is not None and live.restarts > limit):
            self._finish(live, JobState.FAILED)
        elif retry_s is not None and retry_s > self._state.now_s:
            live.retry_s = retry_s
            live.unmet += 1
            self._timers.retry(live, retry_s)
        else:
            self.changes.arrived.append(live)

    def _clear_off(self, live: LiveJob, work: float) -> None:
        """The job's tasks are gone, ordered or not: free what it held and claimed."""
        self.changes.left.append(live)
        if live.placement is not None:
            self._state.give_up_claim(live)
            self.changes.freed = True
        if live.job.id in self._state.vacating:
            self._orders.vacated = True
        self._state.halt(live, work)

    def _nodes_changed(self, event: Any) -> None:
        node_transitions.HANDLERS[type(event)](self._state, self.changes, event)

    def _finish(self, live: LiveJob, final: JobState) -> None:
        """The job has ended; those that wait for it may go on, or never will."""
        ended = [(live, final)]
        while ended:
            live, final = ended.pop()
            self._state.finish(live, final)
            for waiting in self._state.dependents.pop(live.job.id, ()):
                if waiting.state.is_final:
                    continue
                waiting.unmet -= 1
                if final is not JobState.SUCCEEDED:
                    ended.append((waiting, JobState.CANCELLED))
                elif not waiting.unmet and waiting.state is JobState.WAITING:
                    self.changes.arrived.append(waiting)
