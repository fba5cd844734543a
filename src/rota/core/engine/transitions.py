"""What each event does to the state, dispatched by the table of `lifecycle`; for nodes, see `node_transitions`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rota.core.engine import node_transitions
from rota.core.engine.dispatch import Dispatch
from rota.core.engine.lifecycle import EVENTS, TRIGGERS, Action, Row, Trigger
from rota.core.engine.protocols import Changes
from rota.core.engine.timers import Timers
from rota.core.errors import InvariantBroken
from rota.core.messages.decisions import Cause
from rota.core.messages.events import (
    CheckpointChanged,
    End,
    Event,
    Interrupted,
    JobArrived,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobUpdated,
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
from rota.core.model.job import JobState
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import Phase
from rota.core.state.state import State

_FINAL_BY_END = {
    End.SUCCEEDED: JobState.SUCCEEDED,
    End.FAILED: JobState.FAILED,
    End.CANCELLED: JobState.CANCELLED,
}


class Transitions:
    """Applies events to the state, one by one, and collects what they change for the policy.

    An event that the table refuses changes nothing.
    """

    def __init__(self, state: State, orders: Dispatch, timers: Timers) -> None:
        self._state = state
        self._orders = orders
        self._timers = timers
        self.changes = Changes()
        """Changes that the policy has not been notified of yet."""
        self._cancelled: list[LiveJob] = []
        """Jobs that were cancelled with one that they depend on, and whose own dependents are still to follow."""
        methods = self._methods()
        self._by_event: dict[type, list[Callable[[LiveJob, Any], None]]] = {
            kind: _by_phase(row, methods) for kind, row in EVENTS.items()
        }
        self._by_trigger: dict[Trigger, list[Callable[[LiveJob, Any], None]]] = {
            trigger: _by_phase(row, methods) for trigger, row in TRIGGERS.items()
        }
        self._of_cluster: dict[type, Callable[[Any], None]] = {
            JobArrived: self._job_arrived,
            TimerFired: self._timer_fired,
            **dict.fromkeys(node_transitions.HANDLERS, self._nodes_changed),
        }

    def _methods(self) -> dict[Action, Callable[[LiveJob, Any], None]]:
        """The method for each action of the table."""
        return {
            Action.IGNORE: self._ignore,
            Action.REFUSE: self._refuse,
            Action.CANCEL_WAITING: self._cancel_waiting,
            Action.CANCEL_ON_DEVICES: self._cancel_on_devices,
            Action.CANCEL_STOPPING: self._cancel_stopping,
            Action.HOLD: self._hold,
            Action.RELEASE: self._release,
            Action.UPDATE: self._update,
            Action.LEARN_CHECKPOINT: self._learn_checkpoint,
            Action.SEND_BACK: self._send_back,
            Action.START: self._start,
            Action.START_LATE: self._start_late,
            Action.REQUEUE: self._start_failed,
            Action.STOP: self._stop,
            Action.RESIZE: self._resize,
            Action.MOVE: self._move,
            Action.SUSPEND: self._suspend,
            Action.RESUME: self._resume,
            Action.CHANGE_SPEED: self._change_speed,
            Action.CHANGE_SPEED_STOPPING: self._change_speed_stopping,
            Action.LAPSE: self._lapse,
            Action.LAPSE_STOPPING: self._lapse_stopping,
            Action.SAVE: self._save,
            Action.FINISH_WORK: self._finish_work,
            Action.END: self._end,
            Action.INTERRUPT: self._interrupt,
            Action.COUNT_DEPENDENCY: self._count_dependency,
            Action.END_PAUSE: self._end_pause,
            Action.TAKE_TURN: self._count_dependency,
            Action.CANCEL_DEPENDENT: self._cancel_dependent,
            Action.STOP_AT_LIMIT: self._stop_at_limit,
            Action.LOSE_RESERVATION: self._lose_reservation,
            Action.EVICT_SUSPENDED: self._evict_suspended,
        }

    def take(self, event: Event) -> None:
        """Apply one event."""
        by_phase = self._by_event.get(type(event))
        if by_phase is None:
            self._of_cluster[type(event)](event)
            return
        job_event: Any = event
        live = self._state.live(job_event.job_id)
        by_phase[live.phase](live, event)

    def enforce_limits(self) -> None:
        """Stop jobs that have run for as long as they may."""
        for live in self._timers.over_limit(self._state.now_s):
            self._fire(Trigger.TIME_LIMIT_REACHED, live)

    def end_pauses(self) -> None:
        """Let jobs contend again whose pause after a failure is over."""
        for live in self._timers.rested(self._state.now_s):
            self._fire(Trigger.PAUSE_ENDED, live)

    def send_back(self, live: LiveJob) -> bool:
        """Stop a suspended job that the policy would never resume. Return False while it is not suspended yet."""
        self._fire(Trigger.POLICY_CHANGED, live)
        return live.phase is not Phase.SUSPENDING

    def _fire(self, trigger: Trigger, live: LiveJob) -> None:
        self._by_trigger[trigger][live.phase](live, trigger)

    def _ignore(self, live: LiveJob, event: Any) -> None:
        """Nothing is left to do: the job went another way before."""

    def _refuse(self, live: LiveJob, event: Any) -> None:
        what = event.value if isinstance(event, Trigger) else type(event).__name__
        raise InvariantBroken(f"job {live.job.id}: {what} is not expected while it is {live.phase.label}")

    # -- requests of users -----------------------------------------------------------------------

    def _job_arrived(self, event: JobArrived) -> None:
        jobs = self._state.jobs
        live = self._state.admit(event.job, event.nominal_rate, held=event.held)
        unmet = [jobs[needed].state for needed in live.job.depends_on] if live.unmet else []
        if any(state.is_final and state is not JobState.SUCCEEDED for state in unmet):
            self._finish(live, JobState.CANCELLED)
        elif live.phase is Phase.WAITING:
            self.changes.arrived.append(live)

    def _cancel_waiting(self, live: LiveJob, event: JobCancelled) -> None:
        self._withdraw(live)
        self._finish(live, JobState.CANCELLED)

    def _cancel_on_devices(self, live: LiveJob, event: JobCancelled) -> None:
        self._evict(live, Cause.CANCELLED)

    def _cancel_stopping(self, live: LiveJob, event: JobCancelled) -> None:
        if live.stopping is Cause.PREEMPTED or live.stopping is Cause.MOVED:
            self._withdraw(live)
            self._state.cancel_stopping(live)

    def _hold(self, live: LiveJob, event: JobHeld) -> None:
        self._withdraw(live)
        self._state.hold(live)
        self._pass_turn(live)

    def _release(self, live: LiveJob, event: JobReleased) -> None:
        self._state.release(live)
        if live.phase is Phase.WAITING:
            self.changes.arrived.append(live)

    def _update(self, live: LiveJob, event: JobUpdated) -> None:
        contends = live.is_contending
        if contends:
            self._withdraw(live)
        self._state.replace_request(live, event.job)
        if contends:
            self.changes.arrived.append(live)

    def _learn_checkpoint(self, live: LiveJob, event: CheckpointChanged) -> None:
        if replace(event.job, checkpoint=live.job.checkpoint) != live.job:
            raise InvariantBroken(f"job {live.job.id} would become another; its request stays")
        live.job = event.job
        self.changes.freed = True  # a job that could not be stopped before may make room now

    def _send_back(self, live: LiveJob, event: JobRequeued) -> None:
        self._evict(live, Cause.PREEMPTED)

    def _withdraw(self, live: LiveJob) -> None:
        """Let a job without devices stop contending for any."""
        if live.reserved:
            self._state.give_up_claim(live)
            self.changes.freed = True
        self.changes.left.append(live)

    def _evict(self, live: LiveJob, cause: Cause) -> None:
        """Stop a job without a claim on other devices; it holds its own until it answers."""
        held = self._state.where(live)
        if not held:
            raise InvariantBroken(f"job {live.job.id} holds nothing and can't be stopped")
        self._state.give_up_claim(live)
        self._orders.stop(live, held, cause)
        self.changes.left.append(live)
        self.changes.freed = True

    # -- answers of drivers ----------------------------------------------------------------------

    def _start(self, live: LiveJob, event: Started) -> None:
        self._state.run(live, event.rate, event.work_from_s)
        self.changes.started.append(live)
        self._timers.limit(live)

    def _start_late(self, live: LiveJob, event: Started) -> None:
        self._state.run(live, event.rate, event.work_from_s)

    def _start_failed(self, live: LiveJob, event: StartFailed) -> None:
        self._requeue(live, live.work, event.retry_s)

    def _stop(self, live: LiveJob, event: Stopped) -> None:
        cause = self._state.stop(live, event.work)
        self._orders.vacated = True
        if cause is Cause.CANCELLED:
            self._finish(live, JobState.CANCELLED)
        elif cause is Cause.TIME_LIMIT:
            self._finish(live, JobState.FAILED)
        elif live.phase is Phase.WAITING:
            self.changes.arrived.append(live)

    def _resize(self, live: LiveJob, event: Resized) -> None:
        self._orders.vacated = True
        self._state.resize(live, event.work, event.rate, event.work_from_s)
        self.changes.started.append(live)

    def _move(self, live: LiveJob, event: Moved) -> None:
        self._orders.vacated = True
        self._state.move(live, event.work, event.rate, event.work_from_s)
        self.changes.started.append(live)
        self.changes.freed = True
        self._timers.limit(live)

    def _suspend(self, live: LiveJob, event: Suspended) -> None:
        self._state.suspend(live, event.work)
        self._orders.vacated = True
        self.changes.started.append(live)

    def _resume(self, live: LiveJob, event: Resumed) -> None:
        self._state.run(live, event.rate, event.work_from_s)
        self.changes.started.append(live)
        self._timers.limit(live)

    def _change_speed(self, live: LiveJob, event: SpeedChanged) -> None:
        self._state.set_speed(live, event.work, event.rate)
        if event.done is not None:
            live.reported = event.done
        only_saves = not event.rate and live.job.work is not None and event.work >= live.job.work
        if not only_saves:
            self.changes.started.append(live)

    def _change_speed_stopping(self, live: LiveJob, event: SpeedChanged) -> None:
        self._state.set_speed(live, event.work, event.rate)

    def _lapse(self, live: LiveJob, event: Lapsed) -> None:
        self._state.lapse(live, event.work)
        self.changes.lapsed.append(live)

    def _lapse_stopping(self, live: LiveJob, event: Lapsed) -> None:
        self._state.lapse(live, event.work)

    def _save(self, live: LiveJob, event: WorkDone) -> None:
        self._state.set_speed(live, event.work, 0.0)
        if not live.job.exclusive:
            self._state.leave_devices(live)
            self.changes.started.append(live)
            self.changes.freed = True

    def _finish_work(self, live: LiveJob, event: WorkDone) -> None:
        self._state.set_speed(live, event.work, 0.0)

    def _end(self, live: LiveJob, event: JobEnded) -> None:
        self._free(live)
        self._state.halt(live, event.work)
        self._finish(live, _FINAL_BY_END[event.end])

    def _interrupt(self, live: LiveJob, event: Interrupted) -> None:
        self._requeue(live, event.work, event.retry_s)
        if event.job is not None and not live.state.is_final:
            self._state.replace_request(live, event.job)

    def _requeue(self, live: LiveJob, work: float, retry_s: float | None) -> None:
        """Let a job whose run came to nothing wait again, or fail if it may not be restarted again."""
        cause = live.stopping
        self._free(live)
        self._state.interrupt(live, work)
        limit = live.job.max_restarts
        if cause is Cause.CANCELLED:
            self._finish(live, JobState.CANCELLED)
        elif cause is Cause.TIME_LIMIT or (limit is not None and live.restarts > limit):
            self._finish(live, JobState.FAILED)
        elif retry_s is not None and retry_s > self._state.now_s:
            self._state.postpone(live, retry_s)
            self._timers.retry(live, retry_s)
        else:
            self.changes.arrived.append(live)

    def _free(self, live: LiveJob) -> None:
        """Free what a job claimed and held, as its tasks are gone."""
        self.changes.left.append(live)
        if live.placement is not None:
            self._state.give_up_claim(live)
            self.changes.freed = True
        if live.job.id in self._state.vacating:
            self._orders.vacated = True

    # -- what follows from other jobs, from time and from nodes -----------------------------------

    def _timer_fired(self, event: TimerFired) -> None:
        """What is due is found after all events of the step."""

    def _count_dependency(self, live: LiveJob, event: Trigger) -> None:
        if self._state.meet_dependency(live):
            self.changes.arrived.append(live)

    def _end_pause(self, live: LiveJob, event: Trigger) -> None:
        if self._state.end_pause(live):
            self.changes.arrived.append(live)

    def _cancel_dependent(self, live: LiveJob, event: Trigger) -> None:
        self._state.finish(live, JobState.CANCELLED)
        self._pass_turn(live)
        self._cancelled.append(live)

    def _stop_at_limit(self, live: LiveJob, event: Trigger) -> None:
        self._evict(live, Cause.TIME_LIMIT)

    def _evict_suspended(self, live: LiveJob, event: Trigger) -> None:
        self._evict(live, Cause.PREEMPTED)

    def _lose_reservation(self, live: LiveJob, event: Trigger) -> None:
        self._state.give_up_claim(live)
        self.changes.left.append(live)
        if live.phase is Phase.WAITING:
            self.changes.arrived.append(live)
        self.changes.freed = True

    def _nodes_changed(self, event: Any) -> None:
        for live in node_transitions.HANDLERS[type(event)](self._state, self.changes, event):
            self._fire(Trigger.NODE_UNUSABLE, live)

    def _finish(self, live: LiveJob, final: JobState) -> None:
        """End a job. Jobs that depend on it contend, or are cancelled with theirs if it did not succeed."""
        self._state.finish(live, final)
        self._pass_turn(live)
        is_met = final is JobState.SUCCEEDED
        for dependent in self._state.dependents.pop(live.job.id, ()):
            self._fire(Trigger.DEPENDENCY_MET if is_met else Trigger.DEPENDENCY_FAILED, dependent)
        while self._cancelled:
            for dependent in self._state.dependents.pop(self._cancelled.pop().job.id, ()):
                self._fire(Trigger.DEPENDENCY_FAILED, dependent)

    def _pass_turn(self, live: LiveJob) -> None:
        """Let the next job of an array contend, where one that had a turn has ended or is held."""
        following = None if live.job.array is None else self._state.turns.give_up(live)
        if following is not None:
            self._fire(Trigger.TURN_PASSED, following)


def _by_phase(row: Row, methods: dict[Action, Callable[[LiveJob, Any], None]]) -> list[Callable[[LiveJob, Any], None]]:
    """A row of the table as methods, to be looked up by phase."""
    return [methods[row[phase].action] for phase in Phase]
