"""Requests of users: jobs, their roles and what a task of a role needs.

Values are checked once, here; code that is given a `Job` may trust it. Amounts are integers: devices
in thousandths, CPUs in thousandths, memory in bytes, network and disk in bits per second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import NewType

from rota.core.errors import RotaError
from rota.core.model.labels import Terms, Toleration

JobId = NewType("JobId", str)
NodeId = NewType("NodeId", str)
TenantId = NewType("TenantId", str)
DeviceType = NewType("DeviceType", str)

WHOLE = 1000
"""One whole device, in the thousandths in which device capacity is counted."""

DEFAULT_TENANT = TenantId("default")
OPPORTUNISTIC = -1


class JobState(Enum):
    """The state of a job in the words that users see."""

    HELD = "held"
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether the job will never run again."""
        return self is JobState.SUCCEEDED or self is JobState.FAILED or self is JobState.CANCELLED


class Level(IntEnum):
    """The levels of the topology tree, from near to far."""

    DEVICE = 0
    SOCKET = 1
    NODE = 2
    RACK = 3
    DOMAIN = 4
    CLUSTER = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A kind of task in a job: how many, and what each needs.

    `device_milli` is per task: 4000 is four whole devices, 500 half of one. `device_types` lists the
    types that will do, best first; empty means any.
    """

    name: str = "worker"
    count: int = 1
    device_milli: int = WHOLE
    device_types: tuple[DeviceType, ...] = ()
    device_memory_bytes: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    network_bps: int = 0
    disk_bps: int = 0
    requires: Terms = ()
    """What the labels of a node must match."""
    tolerates: tuple[Toleration, ...] = ()
    """Taints of a node that do not keep its tasks away."""
    is_fraction: bool = field(init=False, repr=False, compare=False)
    """Whether a task holds only a fraction of a device."""
    needs_host: bool = field(init=False, repr=False, compare=False)
    """Whether a task needs more of its node than devices."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_fraction", 0 < self.device_milli < WHOLE)
        needs_host = bool(self.cpu_milli or self.memory_bytes or self.network_bps or self.disk_bps)
        object.__setattr__(self, "needs_host", needs_host)
        if not self.name:
            raise RotaError("a role needs a name")
        if self.count < 1:
            raise RotaError(f"role {self.name!r}: count is {self.count}; it must be at least 1")
        if self.device_milli < 0:
            raise RotaError(f"role {self.name!r}: gpus is {self.device_milli / WHOLE:g}; it must not be negative")
        if self.device_milli > WHOLE and self.device_milli % WHOLE:
            raise RotaError(
                f"role {self.name!r}: gpus is {self.device_milli / WHOLE:g}; above one it must be a whole number"
            )
        for amount, what in (
            (self.device_memory_bytes, "gpu_memory"),
            (self.cpu_milli, "cpus"),
            (self.memory_bytes, "memory"),
            (self.network_bps, "network"),
            (self.disk_bps, "disk"),
        ):
            if amount < 0:
                raise RotaError(f"role {self.name!r}: {what} is {amount}; it must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Locality:
    """How near to each other a job's tasks want to be, and for how long they insist."""

    level: Level = Level.NODE
    hard: bool = False
    relax_after_s: float = math.inf

    def __post_init__(self) -> None:
        if not self.relax_after_s >= 0:
            raise RotaError(f"locality.relax_after is {self.relax_after_s}; it must be a time of 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """A job of one role whose number of tasks the scheduler may choose within bounds."""

    min_tasks: int
    max_tasks: int

    def __post_init__(self) -> None:
        if not 1 <= self.min_tasks <= self.max_tasks:
            raise RotaError(f"elastic is {{min: {self.min_tasks}, max: {self.max_tasks}}}; it needs 1 <= min <= max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a stop or a fault costs: progress is saved every `interval_s`, and in the `grace_s` that a stop waits.

    Without end, `interval_s` means that progress is never saved: a job that is stopped starts over.

    Where a driver suspends the job in place of a stop, `suspend_s` and `resume_s` are what it takes to copy the job's
    memory away and back. None: as every other job of the run.
    """

    interval_s: float = 0.0
    grace_s: float = 60.0
    suspend_s: float | None = None
    resume_s: float | None = None

    def __post_init__(self) -> None:
        if not self.interval_s >= 0 or not self.grace_s >= 0:
            raise RotaError("checkpoint: interval and grace must be times of 0 or more")
        if not (self.suspend_s or 0.0) >= 0 or not (self.resume_s or 0.0) >= 0:
            raise RotaError("checkpoint: suspending and resuming must take times of 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a user submits: one or more roles that start together.

    `work` is the whole of it, where known: in steps when `model` names a profile, otherwise in seconds
    on the reference device with all tasks running. `estimate_s` is the user's own guess of the run time.
    """

    id: JobId
    roles: tuple[Role, ...] = (Role(),)
    name: str = ""
    tenant: TenantId = DEFAULT_TENANT
    user: str = ""
    priority: int = 0
    work: float | None = None
    estimate_s: float | None = None
    model: str | None = None
    locality: Locality | None = None
    exclusive: bool = False
    elastic: Elastic | None = None
    depends_on: tuple[JobId, ...] = ()
    deadline_s: float | None = None
    time_limit_s: float | None = None
    max_restarts: int | None = None
    checkpoint: Checkpoint | None = None
    preemptible: bool = False
    """Whether it may be stopped in favour of other jobs although it starts over then."""
    preempts: bool = True
    """Whether other jobs may be stopped in its favour."""
    labels: tuple[tuple[str, str], ...] = ()
    array: JobId | None = None
    """The array that it is one of, if that has a limit: the same name in all its jobs."""
    array_limit: int | None = None
    """How many jobs of the array may contend or run at once."""
    gpu_milli: int = field(init=False, compare=False)
    """Thousandths of devices that the whole job holds when it runs at its full size."""

    def __post_init__(self) -> None:
        if not self.id:
            raise RotaError("a job needs an id")
        if not self.roles:
            raise RotaError(f"job {self.id}: it has no roles")
        gpu_milli = 0
        for role in self.roles:
            gpu_milli += role.count * role.device_milli
        object.__setattr__(self, "gpu_milli", gpu_milli)
        if self.work is not None and not 0 <= self.work < math.inf:
            raise RotaError(f"job {self.id}: duration is {self.work:g}; it must be a number of 0 or more")
        if self.estimate_s is not None and not self.estimate_s >= 0:
            raise RotaError(f"job {self.id}: estimate is {self.estimate_s:g}; it must be 0 or more")
        if self.priority < OPPORTUNISTIC:
            raise RotaError(f"job {self.id}: priority is {self.priority}; the lowest is -1 (opportunistic)")
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise RotaError(f"job {self.id}: time_limit is {self.time_limit_s:g}; it must be above 0")
        if self.array_limit is not None and self.array_limit < 1:
            raise RotaError(f"job {self.id}: array_limit is {self.array_limit}; it must be at least 1")
        if (self.array is None) != (self.array_limit is None):
            raise RotaError(f"job {self.id}: array and array_limit belong together; give both or neither")
        if len(self.roles) > 1:
            self._check_roles()
        if self.elastic is not None:
            self._check_elastic(self.elastic)

    def _check_roles(self) -> None:
        names = [role.name for role in self.roles]
        if len(set(names)) < len(names):
            raise RotaError(f"job {self.id}: two roles share a name; names are {', '.join(names)}")

    def _check_elastic(self, elastic: Elastic) -> None:
        if len(self.roles) != 1:
            raise RotaError(f"job {self.id}: elastic needs a job of one role; it has {len(self.roles)}")
        if not elastic.min_tasks <= self.roles[0].count <= elastic.max_tasks:
            raise RotaError(
                f"job {self.id}: {self.roles[0].count} tasks lie outside elastic "
                f"{elastic.min_tasks}..{elastic.max_tasks}"
            )

    @property
    def gpus(self) -> float:
        """Devices that the whole job holds when it runs at its full size."""
        return self.gpu_milli / WHOLE

    @property
    def tasks(self) -> int:
        """Tasks of all roles together, at full size."""
        tasks = 0
        for role in self.roles:
            tasks += role.count
        return tasks


def is_revision(before: Job, after: Job) -> bool:
    """Whether a request differs only in what may change while a job waits: not its tasks, tenant or user."""
    changed = replace(
        before,
        name=after.name,
        priority=after.priority,
        estimate_s=after.estimate_s,
        deadline_s=after.deadline_s,
        time_limit_s=after.time_limit_s,
        max_restarts=after.max_restarts,
        checkpoint=after.checkpoint,
        preemptible=after.preemptible,
        preempts=after.preempts,
    )
    return changed == after
