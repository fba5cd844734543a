"""The job's life as one table: for each event and phase, what is done and which phases can follow.

`Transitions` dispatches events by this table, `docs/reference/job-lifecycle.md` is generated from it, and the tests
drive every cell and random histories against it. What orders of a plan do is in `core/state/phases.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from rota.core.messages.events import (
    CheckpointChanged,
    Interrupted,
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
    WorkDone,
)
from rota.core.state.phases import AFTER_ORDER, Order, Phase


class Trigger(Enum):
    """What happens to a job inside the engine, not by an event of its own. The value is the heading in the reference.

    A trigger is applied to jobs that the engine finds: those that depend on an ended job, those that are over their
    time limit, those with a reservation on a lost node, and those that a new policy would never resume.
    """

    DEPENDENCY_MET = "dependency met"
    DEPENDENCY_FAILED = "dependency failed"
    PAUSE_ENDED = "pause ended"
    TURN_PASSED = "turn of its array"
    TIME_LIMIT_REACHED = "time limit reached"
    NODE_UNUSABLE = "reserved node unusable"
    POLICY_CHANGED = "policy without suspension"


JobEvent: TypeAlias = (
    JobCancelled
    | JobHeld
    | JobReleased
    | JobUpdated
    | CheckpointChanged
    | JobRequeued
    | Started
    | StartFailed
    | Stopped
    | Resized
    | Moved
    | Suspended
    | Resumed
    | SpeedChanged
    | Lapsed
    | WorkDone
    | JobEnded
    | Interrupted
)
"""Events that name one known job."""


class Action(Enum):
    """What is done about an event; the value is what the reference page says. `Transitions` has one method for each."""

    IGNORE = "ignored"
    REFUSE = "refused"
    CANCEL_WAITING = "cancel"
    CANCEL_ON_DEVICES = "stop for cancellation"
    CANCEL_STOPPING = "cancel after the stop"
    HOLD = "hold"
    RELEASE = "release"
    UPDATE = "take the new request"
    LEARN_CHECKPOINT = "learn what a stop costs"
    SEND_BACK = "stop, then wait again"
    START = "run"
    START_LATE = "run until stopped"
    REQUEUE = "requeue or fail"
    STOP = "stop"
    RESIZE = "run resized"
    MOVE = "run elsewhere"
    SUSPEND = "suspend"
    RESUME = "run again"
    CHANGE_SPEED = "change speed"
    CHANGE_SPEED_STOPPING = "change speed, unreported"
    LAPSE = "end lease"
    LAPSE_STOPPING = "end lease, unreported"
    SAVE = "leave devices"
    FINISH_WORK = "stop the work clock"
    END = "end"
    INTERRUPT = "requeue or fail, with a new request"
    COUNT_DEPENDENCY = "count"
    END_PAUSE = "end pause"
    TAKE_TURN = "contend"
    CANCEL_DEPENDENT = "cancel, with its dependents"
    STOP_AT_LIMIT = "stop at the limit"
    LOSE_RESERVATION = "drop reservation"
    EVICT_SUSPENDED = "preempt"


@dataclass(frozen=True, slots=True)
class LifecycleCell:
    """One cell of the table: what is done, and the phases in which the job can be afterwards."""

    action: Action
    after: frozenset[Phase]


Row: TypeAlias = Mapping[Phase, LifecycleCell]

_UNSTARTED = (Phase.BLOCKED, Phase.WAITING, Phase.RESERVED)
_WITHOUT_TASKS = (Phase.HELD, *_UNSTARTED)
_TASKS_RUN = (Phase.RUNNING, Phase.RESIZING, Phase.SUSPENDING, Phase.SAVING)
_TASKS_PAUSED = (Phase.SUSPENDED, Phase.RESUME_RESERVED, Phase.RESUMING, Phase.MOVING)
_STARTS_LATE = (Phase.STOPPING_START, Phase.RELOCATING_START)
_STOPS_RUNNING = (Phase.STOPPING, Phase.RELOCATING)
_STOPS = (Phase.STOPPING_START, Phase.STOPPING, Phase.STOPPING_SUSPENDED)
_RELOCATES = (Phase.RELOCATING_START, Phase.RELOCATING, Phase.RELOCATING_SUSPENDED)
_ALL_STOPS = (*_STOPS, *_RELOCATES)
_WITH_TASKS = (Phase.STARTING, *_TASKS_RUN, *_TASKS_PAUSED, *_ALL_STOPS)
_ENDS = (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)
_REQUEUED = (Phase.WAITING, Phase.BLOCKED, Phase.FAILED, Phase.CANCELLED)

_STOP_OF = AFTER_ORDER[Order.STOP] | {Phase.RESUME_RESERVED: Phase.STOPPING_SUSPENDED}
_UNRESERVED = AFTER_ORDER[Order.DROP_RESERVATION]


def _to(action: Action, phases: Iterable[Phase], *after: Phase) -> dict[Phase, LifecycleCell]:
    """One action in several phases, after each of which the same phases can follow; none: the phase stays."""
    return {phase: LifecycleCell(action, frozenset(after or (phase,))) for phase in phases}


def _mapped(action: Action, phases: Iterable[Phase], by: Mapping[Phase, Phase]) -> dict[Phase, LifecycleCell]:
    """One action in several phases, each followed by its own."""
    return {phase: LifecycleCell(action, frozenset({by[phase]})) for phase in phases}


def _row(*rules: dict[Phase, LifecycleCell], otherwise: Action) -> Row:
    """A row of the table: what the rules state, and one action without effect in all other phases."""
    row = _to(otherwise, Phase)
    for rule in rules:
        row |= rule
    return row


EVENTS: dict[type[JobEvent], Row] = {
    JobCancelled: _row(
        _to(Action.CANCEL_WAITING, _WITHOUT_TASKS, Phase.CANCELLED),
        _mapped(Action.CANCEL_ON_DEVICES, (Phase.STARTING, *_TASKS_RUN, *_TASKS_PAUSED), _STOP_OF),
        _to(Action.CANCEL_STOPPING, _STOPS),
        _mapped(Action.CANCEL_STOPPING, _RELOCATES, _UNRESERVED),
        otherwise=Action.IGNORE,
    ),
    JobHeld: _row(_to(Action.HOLD, _UNSTARTED, Phase.HELD), otherwise=Action.IGNORE),
    JobReleased: _row(
        _to(Action.RELEASE, (Phase.HELD,), Phase.WAITING, Phase.BLOCKED),
        otherwise=Action.IGNORE,
    ),
    JobUpdated: _row(
        _to(Action.UPDATE, (Phase.HELD, Phase.BLOCKED, Phase.WAITING)),
        _to(Action.UPDATE, (Phase.RESERVED,), Phase.WAITING),
        otherwise=Action.IGNORE,
    ),
    CheckpointChanged: _row(
        _to(Action.LEARN_CHECKPOINT, (*_WITHOUT_TASKS, *_WITH_TASKS)),
        otherwise=Action.IGNORE,
    ),
    JobRequeued: _row(
        _mapped(Action.SEND_BACK, (Phase.STARTING, *_TASKS_RUN, *_TASKS_PAUSED), _STOP_OF),
        otherwise=Action.IGNORE,
    ),
    Started: _row(
        _to(Action.START, (Phase.STARTING,), Phase.RUNNING),
        _to(Action.START_LATE, (Phase.STOPPING_START,), Phase.STOPPING),
        _to(Action.START_LATE, (Phase.RELOCATING_START,), Phase.RELOCATING),
        otherwise=Action.REFUSE,
    ),
    StartFailed: _row(
        _to(Action.REQUEUE, _WITH_TASKS, *_REQUEUED),
        otherwise=Action.REFUSE,
    ),
    Stopped: _row(
        _to(Action.STOP, _STOPS, Phase.WAITING, Phase.CANCELLED, Phase.FAILED),
        _to(Action.STOP, _RELOCATES, Phase.RESERVED),
        otherwise=Action.REFUSE,
    ),
    Resized: _row(
        _to(Action.RESIZE, (Phase.RUNNING, Phase.RESIZING), Phase.RUNNING),
        _to(Action.IGNORE, (Phase.SUSPENDING, Phase.SAVING, *_TASKS_PAUSED, *_ALL_STOPS)),
        otherwise=Action.REFUSE,
    ),
    Moved: _row(
        _to(Action.MOVE, (Phase.RESIZING, Phase.MOVING), Phase.RUNNING),
        _to(Action.IGNORE, _ALL_STOPS),
        otherwise=Action.REFUSE,
    ),
    Suspended: _row(
        _to(Action.SUSPEND, (Phase.SUSPENDING,), Phase.SUSPENDED),
        _to(Action.IGNORE, _ALL_STOPS),
        otherwise=Action.REFUSE,
    ),
    Resumed: _row(
        _to(Action.RESUME, (Phase.RESUMING,), Phase.RUNNING),
        _to(Action.IGNORE, _ALL_STOPS),
        otherwise=Action.REFUSE,
    ),
    SpeedChanged: _row(
        _to(Action.CHANGE_SPEED, _TASKS_RUN),
        _to(Action.CHANGE_SPEED_STOPPING, _STOPS_RUNNING),
        otherwise=Action.IGNORE,
    ),
    Lapsed: _row(
        _to(Action.LAPSE, _TASKS_RUN),
        _to(Action.LAPSE_STOPPING, _STOPS_RUNNING),
        otherwise=Action.IGNORE,
    ),
    WorkDone: _row(
        _to(Action.SAVE, (Phase.RUNNING,), Phase.SAVING, Phase.RUNNING),
        _to(Action.FINISH_WORK, (Phase.RESIZING, Phase.SUSPENDING, *_STOPS_RUNNING)),
        otherwise=Action.IGNORE,
    ),
    JobEnded: _row(
        _to(Action.END, (*_WITHOUT_TASKS, *_WITH_TASKS), *_ENDS),
        otherwise=Action.REFUSE,
    ),
    Interrupted: _row(
        _to(Action.INTERRUPT, _WITH_TASKS, *_REQUEUED),
        otherwise=Action.REFUSE,
    ),
}
"""What each event does in each phase. A refused event breaks an invariant, and changes nothing."""

TRIGGERS: dict[Trigger, Row] = {
    Trigger.DEPENDENCY_MET: _row(
        _to(Action.COUNT_DEPENDENCY, (Phase.BLOCKED,), Phase.BLOCKED, Phase.WAITING),
        _to(Action.COUNT_DEPENDENCY, (Phase.HELD,)),
        _to(Action.IGNORE, _ENDS),
        otherwise=Action.REFUSE,
    ),
    Trigger.DEPENDENCY_FAILED: _row(
        _to(Action.CANCEL_DEPENDENT, (Phase.BLOCKED, Phase.HELD), Phase.CANCELLED),
        _to(Action.IGNORE, _ENDS),
        otherwise=Action.REFUSE,
    ),
    Trigger.PAUSE_ENDED: _row(
        _to(Action.END_PAUSE, (Phase.BLOCKED,), Phase.WAITING, Phase.BLOCKED),
        _to(Action.END_PAUSE, (Phase.HELD,)),
        otherwise=Action.REFUSE,
    ),
    Trigger.TURN_PASSED: _row(
        _to(Action.TAKE_TURN, (Phase.BLOCKED,), Phase.WAITING),
        otherwise=Action.REFUSE,
    ),
    Trigger.TIME_LIMIT_REACHED: _row(
        _mapped(Action.STOP_AT_LIMIT, _TASKS_RUN, _STOP_OF),
        otherwise=Action.REFUSE,
    ),
    Trigger.NODE_UNUSABLE: _row(
        _mapped(Action.LOSE_RESERVATION, (Phase.RESERVED, Phase.RELOCATING_START, Phase.RELOCATING), _UNRESERVED),
        otherwise=Action.IGNORE,
    ),
    Trigger.POLICY_CHANGED: _row(
        _mapped(Action.EVICT_SUSPENDED, _TASKS_PAUSED, _STOP_OF),
        otherwise=Action.IGNORE,
    ),
}
"""What each trigger does in each phase."""
