"""The engine's input: requests of users, answers of the driver, faults, the passing of time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from rota.core.model.cells import CellPlan
from rota.core.model.cluster import Node, NodeTrust
from rota.core.model.job import Job, JobId, NodeId
from rota.core.model.labels import Taint
from rota.core.model.tenants import TenantPlan


class End(Enum):
    """How a job ended by itself."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class JobArrived:
    """A user submitted a job; `held` keeps it from running until it is released.

    `nominal_rate` is the best speed, in work a second, that the driver knows of for it.
    """

    job: Job
    held: bool = False
    nominal_rate: float = 1.0


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """A user cancelled a job, in whatever state."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class JobHeld:
    """A waiting job must not start until it is released."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class JobReleased:
    """A held job may run."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class JobUpdated:
    """A user changed a job that does not run: its priority, name, limits or estimate. `job` replaces its request."""

    job_id: JobId
    job: Job


@dataclass(frozen=True, slots=True)
class CheckpointChanged:
    """The driver found out what a stop costs a job from now on. `job` is the same request with another checkpoint."""

    job_id: JobId
    job: Job


@dataclass(frozen=True, slots=True)
class JobRequeued:
    """A user sent a job that runs back to the queue."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Started:
    """All tasks run. Work proceeds at `rate` a second from `work_from_s` on (later than now after a restart)."""

    job_id: JobId
    rate: float
    work_from_s: float


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The driver could not start the job; nothing of it runs and its devices are free.

    The job contends again at once, or from `retry_s` on.
    """

    job_id: JobId
    why: str
    retry_s: float | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """A stop that was ordered is complete; `work` is what is safe in a checkpoint."""

    job_id: JobId
    work: float


@dataclass(frozen=True, slots=True)
class Resized:
    """A resize that was ordered is complete: the job runs on its new devices."""

    job_id: JobId
    work: float
    rate: float
    work_from_s: float


@dataclass(frozen=True, slots=True)
class Moved:
    """A move that was ordered is complete: the job runs elsewhere."""

    job_id: JobId
    work: float
    rate: float
    work_from_s: float


@dataclass(frozen=True, slots=True)
class Suspended:
    """A suspension that was ordered is complete: the tasks are paused, have left their devices and lost nothing."""

    job_id: JobId
    work: float


@dataclass(frozen=True, slots=True)
class Resumed:
    """A resume that was ordered is complete: work proceeds at `rate` a second from `work_from_s` on."""

    job_id: JobId
    rate: float
    work_from_s: float


@dataclass(frozen=True, slots=True)
class SpeedChanged:
    """A running job's speed changed (neighbours came or went, or it was measured), or it reported its progress.

    `done` is the fraction of its steps that the job says it has done; None where it says nothing.
    """

    job_id: JobId
    work: float
    rate: float
    done: float | None = None


@dataclass(frozen=True, slots=True)
class Lapsed:
    """A running job's lease is over: it idles on its devices with `work` done."""

    job_id: JobId
    work: float


@dataclass(frozen=True, slots=True)
class WorkDone:
    """A running job has done its work and leaves its devices: it saves what came of it, and then ends.

    Drivers report this only under a policy that overlaps jobs; under others a job keeps its devices until it ends.
    """

    job_id: JobId
    work: float


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A job ended by itself."""

    job_id: JobId
    end: End
    work: float


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A fault took a running job's devices or tasks away; `work` is what its last checkpoint kept.

    The job contends again at once, or from `retry_s` on. `job` is what it asks for from then on, if that is more.
    """

    job_id: JobId
    work: float
    retry_s: float | None = None
    job: Job | None = None


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node failed. The driver reports each job that ran there as `Interrupted`."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class NodeBack:
    """A failed node works again."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """Nothing new may start on a node; what runs there stays."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class NodeUndrained:
    """A drained node takes jobs again."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class NodeRated:
    """A node is trusted more, or less, from now on; what runs there stays."""

    node_id: NodeId
    trust: NodeTrust


@dataclass(frozen=True, slots=True)
class NodeReserved:
    """These are the taints of a node's reservations from now on: in all, not in addition. What runs there stays."""

    node_id: NodeId
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeAdded:
    """A node joined the cluster."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """A node left the cluster: it counts no more and nothing new starts there. What runs there stays until it ends."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class NodeOccupied:
    """What pods and processes that are not scheduled here hold of a node from now on: in all, not in addition."""

    node_id: NodeId
    devices: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PromisesChanged:
    """The guarantees of tenants changed. Running jobs stay; a job that no longer fits continues without a guarantee."""

    cells: CellPlan | None = None
    tenants: TenantPlan | None = None


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The engine's wake-up time has come."""


Event: TypeAlias = (
    JobArrived
    | JobCancelled
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
    | NodeLost
    | NodeBack
    | NodeDrained
    | NodeUndrained
    | NodeRated
    | NodeReserved
    | NodeAdded
    | NodeRemoved
    | NodeOccupied
    | PromisesChanged
    | TimerFired
)
