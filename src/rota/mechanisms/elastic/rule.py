"""Contract between an elastic policy and the elastic scheduler: how many tasks each job should have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from rota.core.model.job import WHOLE, DeviceType, Job, JobId
from rota.core.model.placement import tasks_of
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.node_accounts import Pool

UNKNOWN_WORK_S = 3600.0
"""Remaining run time assumed for a job of unknown length, at its requested size."""


class Target(NamedTuple):
    """The size a job should have, and its device type where the rule chooses one."""

    tasks: int
    device_type: DeviceType | None = None


@dataclass(frozen=True, slots=True)
class SizePlan:
    """Targets by sequence number, in order of placement, valid until `until_s`. Jobs without a target wait."""

    targets: Mapping[int, Target]
    until_s: float = math.inf


@dataclass(slots=True, eq=False)
class Candidate:
    """A job that competes for devices. A job that is not elastic has one size, counted as one task."""

    live: LiveJob
    sizes: tuple[int, ...]
    """Allowed numbers of tasks, ascending; empty if no node that is up can run the job."""
    per_task_milli: int
    """Thousandths of devices that a task holds; a job of several roles counts as one task."""
    tasks: int = 0
    """Present number of tasks."""
    device_type: DeviceType | None = None
    """Present device type."""

    @property
    def seq(self) -> int:
        """Sequence number of the submission."""
        return self.live.seq

    @property
    def requested(self) -> int:
        """The size its user requested, or the nearest allowed one."""
        wanted = self.live.job.roles[0].count if self.is_elastic else 1
        return min(self.sizes, key=lambda tasks: (abs(tasks - wanted), tasks))

    @property
    def is_elastic(self) -> bool:
        """Whether the rule may choose its size."""
        return self.live.job.elastic is not None

    def gpus(self, tasks: int) -> float:
        """Return the devices that many tasks hold."""
        return tasks * self.per_task_milli / WHOLE

    def remaining_work(self, now_s: float) -> float:
        """Return the remaining work by the job's estimate; without one, an hour's work at the requested size."""
        job, live = self.live.job, self.live
        if job.work is not None:
            return max(job.work - live.work_done(now_s), 0.0)
        left_s = UNKNOWN_WORK_S if job.estimate_s is None else max(job.estimate_s - live.run_s(now_s), 1.0)
        return left_s * live.nominal_rate


@dataclass(slots=True)
class SizeQuestion:
    """All candidates in order of submission, and the resources they compete for."""

    now_s: float
    candidates: list[Candidate]
    free_milli: int
    """Thousandths of schedulable devices not held by jobs that are starting or stopping."""
    pools: Sequence[Pool]
    node_devices: int
    """Devices of the largest node."""
    inventory: Inventory
    """The inventory, read only."""


class SizeRule(Protocol):
    """Published way to choose sizes."""

    interval_s: float | None
    """Seconds between plans; None to plan whenever a job arrives or ends."""
    replans_without_events: bool
    """Whether a plan at the end of an interval may differ though no event has happened."""
    plans_cpu_jobs: bool
    """Whether the rule also plans jobs without devices, which otherwise start as soon as there is room."""
    defragments: bool
    """Whether smaller jobs are moved so that a job runs on the fewest nodes."""

    def plan(self, question: SizeQuestion) -> SizePlan:
        """Return the sizes of all candidates from now on."""

    def observe(self, live: LiveJob, nodes: int, now_s: float) -> None:
        """Record the observed speed (`live.rate`) of a job on that many nodes."""

    def forget(self, live: LiveJob) -> None:
        """Handle the end of a job."""

    def attach(self, jobs: dict[JobId, LiveJob]) -> None:
        """Attach the engine's table of all jobs, read only, which includes jobs with unmet dependencies."""

    @property
    def memory(self) -> Any:
        """Serialisable state of the rule."""

    def recall(self, memory: Any) -> None:
        """Restore what `memory` returned."""


class DefaultSizeRule:
    """Base of elastic policies: plan at every change, no observations, no memory."""

    interval_s: float | None = None
    replans_without_events = False
    plans_cpu_jobs = False
    defragments = False
    memory: Any = None

    def observe(self, live: LiveJob, nodes: int, now_s: float) -> None:
        """Ignore speeds."""

    def forget(self, live: LiveJob) -> None:
        """Drop nothing."""

    def attach(self, jobs: dict[JobId, LiveJob]) -> None:
        """Ignore jobs that are not candidates."""

    def recall(self, memory: Any) -> None:
        """Restore nothing."""


def candidate(live: LiveJob, inventory: Inventory) -> Candidate:
    """Return a job with the sizes that nodes which are up can run, or that it holds on exclusive nodes."""
    job = live.job
    most_milli = _most_milli(job, inventory)
    if live.placement is not None:
        most_milli = max(most_milli, live.gpu_milli)
    if job.elastic is None:
        whole: tuple[int, ...] = (1,) if job.gpu_milli <= most_milli else ()
        return Candidate(live, whole, job.gpu_milli, int(live.placement is not None), _type_of(live, inventory))
    per_task = job.roles[0].device_milli
    most = min(job.elastic.max_tasks, most_milli // per_task) if per_task else job.elastic.max_tasks
    sizes = tuple(range(job.elastic.min_tasks, most + 1))
    tasks = 0 if live.placement is None else tasks_of(live.placement)
    return Candidate(live, sizes, per_task, tasks, _type_of(live, inventory))


def _type_of(live: LiveJob, inventory: Inventory) -> DeviceType | None:
    return None if live.placement is None else inventory.nodes[live.placement[0].node].node.device_type


def _most_milli(job: Job, inventory: Inventory) -> int:
    """Return the most thousandths a job can hold; the tasks of a role share one device type."""
    if len(job.roles) > 1:
        return sum(pool.usable for pool in inventory.pools) * WHOLE
    return max((pool.usable for pool in inventory.eligible(job.roles[0])), default=0) * WHOLE


def even_sizes(found: Candidate, node_devices: int) -> tuple[int, ...]:
    """Return the sizes that divide nodes evenly: fractions of a node by powers of two, or whole nodes.

    The smallest and the requested size are always included.
    """
    if not found.is_elastic or not found.sizes:
        return found.sizes
    kept = {found.sizes[0], found.requested}
    for tasks in found.sizes:
        devices = found.gpus(tasks)
        if devices >= node_devices:
            if devices % node_devices == 0:
                kept.add(tasks)
        elif devices and math.log2(node_devices / devices).is_integer():
            kept.add(tasks)
    return tuple(sorted(kept))
