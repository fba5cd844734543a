"""Jobs from values that a reader has checked already, at a quarter of what `Job(...)` costs.

A frozen dataclass sets every field through `object.__setattr__` and checks each value again: 4.5 of the
8 microseconds that a line of a trace may take. A draft has the same slots, is filled by plain
assignment and becomes a `Job` at the end. A test holds the two ways equal, field by field.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import TypeAlias, cast

from rota.core.model.job import DEFAULT_TENANT, WHOLE, Job, Role
from rota.traces.fields import whole

Shape: TypeAlias = tuple[tuple[Role, ...], int]
"""A job's roles, and the thousandths of devices that they hold together."""


class _Draft:
    """A job in the making: the slots of `Job`, open to assignment."""

    __slots__ = tuple(field.name for field in fields(Job))

    def __init__(
        self,
        id: str,
        shape: Shape,
        work: float,
        tenant: str,
        user: str,
        name: str,
        model: str | None,
        estimate_s: float | None,
        labels: tuple[tuple[str, str], ...],
        priority: int,
    ) -> None:
        self.id = id
        self.roles, self.gpu_milli = shape
        self.name = name
        self.tenant = tenant
        self.user = user
        self.priority = priority
        self.work = work
        self.estimate_s = estimate_s
        self.model = model
        self.locality = None
        self.exclusive = False
        self.elastic = None
        self.depends_on = ()
        self.deadline_s = None
        self.time_limit_s = None
        self.max_restarts = None
        self.checkpoint = None
        self.preemptible = False
        self.preempts = True
        self.labels = labels
        self.array = None
        self.array_limit = None


def plain_job(
    id: str,
    shape: Shape,
    work: float,
    *,
    tenant: str = DEFAULT_TENANT,
    user: str = "",
    name: str = "",
    model: str | None = None,
    estimate_s: float | None = None,
    labels: tuple[tuple[str, str], ...] = (),
    priority: int = 0,
) -> Job:
    """A job of the usual kind; the caller vouches for a non-empty id, `work` and `estimate_s` >= 0 and the priority."""
    draft = _Draft(id, shape, work, tenant, user, name, model, estimate_s, labels, priority)
    draft.__class__ = Job  # type: ignore[assignment]  # same slots: the draft is finished
    return cast(Job, draft)


def shape_of(*roles: Role) -> Shape:
    """Roles with what they hold together."""
    return roles, sum(role.count * role.device_milli for role in roles)


def gang(gpus: int) -> Shape:
    """Tasks of one device each that start together."""
    return shape_of(Role(count=gpus, device_milli=WHOLE))


def pod(device_milli: int) -> Shape:
    """A single task with some devices, or a fraction of one."""
    return shape_of(Role(device_milli=device_milli))


class GangCache(dict[str, Shape]):
    """Gangs by the text of their size, each made once and shared by all jobs of that size."""

    def __init__(self, field: str) -> None:
        self._field = field

    def __missing__(self, text: str) -> Shape:
        shape = self[text] = gang(whole(self._field, text, at_least=1))
        return shape


def spread_over_nodes(gpus: int, nodes: int, *, cpu_milli: int = 0, memory_bytes: int = 0) -> Shape:
    """One task per node where the devices divide evenly, otherwise a gang of one-device tasks.

    CPUs and memory are the job's and are divided among its tasks.
    """
    if gpus % nodes == 0:
        tasks, device_milli = nodes, gpus // nodes * WHOLE
    else:
        tasks, device_milli = gpus, WHOLE
    return shape_of(
        Role(
            count=tasks,
            device_milli=device_milli,
            cpu_milli=cpu_milli // tasks,
            memory_bytes=memory_bytes // tasks,
        )
    )


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause garbage collection: everything that is made is kept, and the search for cycles costs a third."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
