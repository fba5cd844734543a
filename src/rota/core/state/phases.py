"""The phases of a job's life, and what each order of a plan does to them.

A phase is finer than the `JobState` that users see: it also tells which order the driver has still to answer and
whether the job waits for devices to be vacated. `core/engine/lifecycle.py` has the rest of the table: what each
event does in each phase.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from rota.core.model.job import JobState


class Phase(IntEnum):
    """Where a job is in its life. Numbers are internal; no record on disk contains them."""

    HELD = 0
    BLOCKED = 1
    WAITING = 2
    RESERVED = 3
    STARTING = 4
    RUNNING = 5
    RESIZING = 6
    SUSPENDING = 7
    SAVING = 8
    SUSPENDED = 9
    RESUME_RESERVED = 10
    RESUMING = 11
    MOVING = 12
    STOPPING_START = 13
    STOPPING = 14
    STOPPING_SUSPENDED = 15
    RELOCATING_START = 16
    RELOCATING = 17
    RELOCATING_SUSPENDED = 18
    SUCCEEDED = 19
    FAILED = 20
    CANCELLED = 21

    @property
    def label(self) -> str:
        """The phase in words, for messages and the reference page."""
        return self.name.lower().replace("_", " ")


STATE_BY_PHASE: tuple[JobState, ...] = (
    JobState.HELD,
    JobState.WAITING,
    JobState.WAITING,
    JobState.WAITING,
    JobState.STARTING,
    JobState.RUNNING,
    JobState.RUNNING,
    JobState.RUNNING,
    JobState.RUNNING,
    JobState.SUSPENDED,
    JobState.SUSPENDED,
    JobState.SUSPENDED,
    JobState.SUSPENDED,
    JobState.STARTING,
    JobState.RUNNING,
    JobState.SUSPENDED,
    JobState.STARTING,
    JobState.RUNNING,
    JobState.SUSPENDED,
    JobState.SUCCEEDED,
    JobState.FAILED,
    JobState.CANCELLED,
)
"""The state that users see, by phase."""

MEANINGS: dict[Phase, str] = {
    Phase.HELD: "a user keeps it from running until it is released",
    Phase.BLOCKED: "has unmet dependencies, or pauses after a failure",
    Phase.WAITING: "contends for devices",
    Phase.RESERVED: "claims devices that other jobs have still to vacate",
    Phase.STARTING: "a start was ordered",
    Phase.RUNNING: "all tasks run, with no order to leave outstanding",
    Phase.RESIZING: "runs; a resize or a move to other devices was ordered",
    Phase.SUSPENDING: "runs; a suspension was ordered",
    Phase.SAVING: "has done its work and left its devices, and saves its result before it ends",
    Phase.SUSPENDED: "its tasks are paused and keep host resources, but no devices",
    Phase.RESUME_RESERVED: "suspended; claims its former devices, which others have still to vacate",
    Phase.RESUMING: "suspended; a resume was ordered",
    Phase.MOVING: "suspended; a move to other devices was ordered",
    Phase.STOPPING_START: "a stop was ordered before it reported its start",
    Phase.STOPPING: "runs; a stop was ordered",
    Phase.STOPPING_SUSPENDED: "suspended; a stop was ordered",
    Phase.RELOCATING_START: "as stopping start, and claims the devices on which it starts next",
    Phase.RELOCATING: "as stopping, and claims the devices on which it starts next",
    Phase.RELOCATING_SUSPENDED: "as stopping suspended, and claims the devices on which it starts next",
    Phase.SUCCEEDED: "ended well",
    Phase.FAILED: "ended with a failure, or at its time limit",
    Phase.CANCELLED: "was cancelled, or depends on a job that did not succeed",
}

RESERVATIONS = frozenset(
    {
        Phase.RESERVED,
        Phase.RESUME_RESERVED,
        Phase.RELOCATING_START,
        Phase.RELOCATING,
        Phase.RELOCATING_SUSPENDED,
    }
)
"""Phases in which a job claims devices that are still to be vacated: by other jobs, or by itself elsewhere."""

IN_TRANSITION = RESERVATIONS | {
    Phase.STARTING,
    Phase.RESIZING,
    Phase.SUSPENDING,
    Phase.RESUMING,
    Phase.MOVING,
    Phase.STOPPING_START,
    Phase.STOPPING,
    Phase.STOPPING_SUSPENDED,
}
"""Phases that last until the driver has answered: for this job, or for those that vacate its devices."""

LEAVING = frozenset(
    {
        Phase.STOPPING_START,
        Phase.STOPPING,
        Phase.STOPPING_SUSPENDED,
        Phase.RELOCATING_START,
        Phase.RELOCATING,
        Phase.RELOCATING_SUSPENDED,
    }
)
"""Phases in which a stop was ordered and is not answered yet."""


class Order(IntEnum):
    """What the engine orders for a job when it carries out a plan."""

    START = 0
    RESERVE = 1
    DROP_RESERVATION = 2
    STOP = 3
    SUSPEND = 4
    RESUME = 5
    RESIZE_OR_MOVE = 6

    @property
    def label(self) -> str:
        """The order in words, for messages and the reference page."""
        return self.name.lower().replace("_", " ")


AFTER_ORDER: dict[Order, dict[Phase, Phase]] = {
    Order.START: {
        Phase.WAITING: Phase.STARTING,
        Phase.RESERVED: Phase.STARTING,
    },
    Order.RESERVE: {
        Phase.WAITING: Phase.RESERVED,
        Phase.SUSPENDED: Phase.RESUME_RESERVED,
        Phase.STOPPING_START: Phase.RELOCATING_START,
        Phase.STOPPING: Phase.RELOCATING,
        Phase.STOPPING_SUSPENDED: Phase.RELOCATING_SUSPENDED,
    },
    Order.DROP_RESERVATION: {
        Phase.RESERVED: Phase.WAITING,
        Phase.RESUME_RESERVED: Phase.SUSPENDED,
        Phase.RELOCATING_START: Phase.STOPPING_START,
        Phase.RELOCATING: Phase.STOPPING,
        Phase.RELOCATING_SUSPENDED: Phase.STOPPING_SUSPENDED,
    },
    Order.STOP: {
        Phase.STARTING: Phase.STOPPING_START,
        Phase.RUNNING: Phase.STOPPING,
        Phase.RESIZING: Phase.STOPPING,
        Phase.SUSPENDING: Phase.STOPPING,
        Phase.SAVING: Phase.STOPPING,
        Phase.SUSPENDED: Phase.STOPPING_SUSPENDED,
        Phase.RESUMING: Phase.STOPPING_SUSPENDED,
        Phase.MOVING: Phase.STOPPING_SUSPENDED,
    },
    Order.SUSPEND: {
        Phase.RUNNING: Phase.SUSPENDING,
    },
    Order.RESUME: {
        Phase.SUSPENDED: Phase.RESUMING,
        Phase.RESUME_RESERVED: Phase.RESUMING,
        Phase.RESUMING: Phase.RESUMING,
    },
    Order.RESIZE_OR_MOVE: {
        Phase.RUNNING: Phase.RESIZING,
        Phase.SAVING: Phase.RESIZING,
        Phase.SUSPENDED: Phase.MOVING,
        Phase.RESUMING: Phase.MOVING,
        Phase.MOVING: Phase.MOVING,
    },
}
"""The phase that follows an order, by order and phase. An order in any other phase breaks an invariant."""

STARTED_WHILE_STOPPING = {Phase.STOPPING_START: Phase.STOPPING, Phase.RELOCATING_START: Phase.RELOCATING}
"""Phases after the report of a start that was to be stopped."""

# Tables by number, for the hot path: looking an enum member up in a set or a dict costs a call of its hash.
IS_RESERVATION: Final[tuple[bool, ...]] = tuple(phase in RESERVATIONS for phase in Phase)
IS_IN_TRANSITION: Final[tuple[bool, ...]] = tuple(phase in IN_TRANSITION for phase in Phase)
PHASE_AFTER: Final[tuple[tuple[Phase | None, ...], ...]] = tuple(
    tuple(AFTER_ORDER[order].get(phase) for phase in Phase) for order in Order
)
