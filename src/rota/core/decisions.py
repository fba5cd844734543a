"""What the engine orders. A decision takes time: the driver answers each with an event."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from rota.core.model import JobId
from rota.core.placement import Placement


class Cause(Enum):
    """Why a job is stopped; decides what becomes of it once it has stopped."""

    PREEMPTED = "preempted"
    MOVED = "moved"
    CANCELLED = "cancelled"
    TIME_LIMIT = "time-limit"


@dataclass(frozen=True, slots=True)
class Start:
    """Start all tasks of a job. Answered by `Started` or `StartFailed`."""

    job_id: JobId
    placement: Placement


@dataclass(frozen=True, slots=True)
class Stop:
    """Save and stop a job. Answered by `Stopped`, or `JobEnded` if it ended first."""

    job_id: JobId
    cause: Cause


@dataclass(frozen=True, slots=True)
class Resize:
    """Run an elastic job with another number of tasks. Answered by `Resized`."""

    job_id: JobId
    placement: Placement


Decision: TypeAlias = Start | Stop | Resize
