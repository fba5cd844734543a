"""What the engine orders. A decision takes time: the driver answers each with an event."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from rota.core.model.job import WHOLE, Job, JobId
from rota.core.model.placement import Placement


class Cause(Enum):
    """Why a job is stopped; decides what becomes of it once it has stopped."""

    PREEMPTED = "preempted"
    MOVED = "moved"
    CANCELLED = "cancelled"
    TIME_LIMIT = "time-limit"


@dataclass(frozen=True, slots=True)
class Lease:
    """How long a job may run: until it has done `work` in all, or until `until_s`, whichever comes first.

    Then it waits, devices in hand, for the next order. With `together` it hands back at `until_s` and not
    before, even if it has done all its work earlier: jobs that share devices are released together.
    """

    work: float
    until_s: float
    together: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """Start all tasks of a job. Answered by `Started` or `StartFailed`; at the end of a lease by `Lapsed`."""

    job_id: JobId
    placement: Placement
    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Save and stop a job. Answered by `Stopped`, or `JobEnded` if it ended first."""

    job_id: JobId
    cause: Cause


@dataclass(frozen=True, slots=True)
class Resize:
    """Run an elastic job with another number of tasks, or any job with another fraction of its devices.

    Answered by `Resized`.
    """

    job_id: JobId
    placement: Placement


@dataclass(frozen=True, slots=True)
class Move:
    """Save a job's state and continue on other devices, which are free. Answered by `Moved`."""

    job_id: JobId
    placement: Placement


@dataclass(frozen=True, slots=True)
class Suspend:
    """Pause a job's tasks where they are and free their devices. Answered by `Suspended`."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Resume:
    """Resume the tasks of a suspended job on their former devices. Answered by `Resumed`."""

    job_id: JobId
    placement: Placement


@dataclass(frozen=True, slots=True)
class Renew:
    """Continue on the same devices under a new lease. Answered by `SpeedChanged`; at its end by `Lapsed`."""

    job_id: JobId
    placement: Placement
    lease: Lease


Decision: TypeAlias = Start | Stop | Resize | Move | Suspend | Resume | Renew


class DecisionKind(Enum):
    """What a decision demands of a driver. Policies declare the kinds that they emit, drivers those they support."""

    START = "start"
    STOP = "stop"
    SUSPEND = "suspend"
    RESUME = "resume"
    MOVE = "move"
    RESIZE = "resize"
    SHARE = "share"
    """Give several jobs one device that they asked for whole, packed or time-sliced, or change their fractions."""
    LEASE = "lease"
    """Run a job under a lease that is renewed or ends."""


ALL_KINDS = frozenset(DecisionKind)


def kinds_of(decision: Decision, job: Job) -> frozenset[DecisionKind]:
    """Return all kinds that one decision about a job counts as."""
    kinds = {_KINDS[type(decision)]}
    if isinstance(decision, Resize) and job.elastic is None:
        kinds = {DecisionKind.SHARE}
    if isinstance(decision, Start) and decision.lease is not None:
        kinds.add(DecisionKind.LEASE)
    if not isinstance(decision, Stop | Suspend) and shares_devices(decision.placement, job):
        kinds.add(DecisionKind.SHARE)
    return frozenset(kinds)


def shares_devices(placement: Placement, job: Job) -> bool:
    """Return whether a job holds less of its devices than it asked for: packed or time-sliced with others."""
    return any(
        slot.in_turn or (slot.devices and slot.milli != WHOLE and not job.roles[slot.role].is_fraction)
        for slot in placement
    )


_KINDS: dict[type[Decision], DecisionKind] = {
    Start: DecisionKind.START,
    Stop: DecisionKind.STOP,
    Resize: DecisionKind.RESIZE,
    Move: DecisionKind.MOVE,
    Suspend: DecisionKind.SUSPEND,
    Resume: DecisionKind.RESUME,
    Renew: DecisionKind.LEASE,
}
