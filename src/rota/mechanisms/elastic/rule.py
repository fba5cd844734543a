"""What rules for elastic jobs are asked and answer: how many tasks each job should have from now on."""

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
"""How much longer a job is taken to run at the size it asks for, if it says nothing of its length."""


class Target(NamedTuple):
    """What a job should have: so many tasks, on a given type where the rule minds."""

    tasks: int
    device_type: DeviceType | None = None


@dataclass(frozen=True, slots=True)
class SizePlan:
    """Targets by number of submission, first come first placed; who is not named waits. Good until `until_s`."""

    targets: Mapping[int, Target]
    until_s: float = math.inf


@dataclass(slots=True, eq=False)
class Candidate:
    """A job that contends for devices. A job that is not elastic has one size, that of the whole of it."""

    live: LiveJob
    sizes: tuple[int, ...]
    """Numbers of tasks that it may have, smallest first; empty if nothing that is up could take it."""
    per_task_milli: int
    """Thousandths of devices that a task holds; a job of several roles counts as one task."""
    tasks: int = 0
    """What it has now."""
    device_type: DeviceType | None = None
    """Of which type it has them."""

    @property
    def seq(self) -> int:
        """Order of submission."""
        return self.live.seq

    @property
    def asked(self) -> int:
        """The size that its user asked for, or the nearest that it may have."""
        wanted = self.live.job.roles[0].count if self.is_elastic else 1
        return min(self.sizes, key=lambda tasks: (abs(tasks - wanted), tasks))

    @property
    def is_elastic(self) -> bool:
        """Whether its size may be chosen."""
        return self.live.job.elastic is not None

    def gpus(self, tasks: int) -> float:
        """Devices that so many tasks hold."""
        return tasks * self.per_task_milli / WHOLE

    def left(self, now_s: float) -> float:
        """Work still to do as the job says itself; for one that does not say, an hour's at the size it asks for."""
        job, live = self.live.job, self.live
        if job.work is not None:
            return max(job.work - live.work_done(now_s), 0.0)
        left_s = UNKNOWN_WORK_S if job.estimate_s is None else max(job.estimate_s - live.run_s(now_s), 1.0)
        return left_s * live.nominal_rate


@dataclass(slots=True)
class SizeQuestion:
    """All candidates in order of submission, and what there is for them."""

    now_s: float
    candidates: list[Candidate]
    free_milli: int
    """Thousandths of usable devices that are not tied up by jobs on their way in or out."""
    pools: Sequence[Pool]
    node_devices: int
    """Devices of the largest node."""
    inventory: Inventory
    """For reading: what is free of everything else."""


class SizeRule(Protocol):
    """A published way to choose sizes."""

    interval_s: float | None
    """How often it plans; None if whenever somebody comes or goes."""
    drifts: bool
    """Whether its plan at an interval's end may be another though nothing has happened."""
    takes_all: bool
    """Whether jobs without devices wait for its word, too, instead of starting as soon as there is room."""
    moves: bool
    """Whether smaller jobs move so that one has its size on as few nodes as can be."""

    def plan(self, question: SizeQuestion) -> SizePlan:
        """Everybody's size from now on."""

    def saw(self, live: LiveJob, nodes: int, now_s: float) -> None:
        """A job runs on so many nodes at a speed that is now known (`live.rate`)."""

    def left(self, live: LiveJob) -> None:
        """A job has ended."""

    def meet(self, jobs: dict[JobId, LiveJob]) -> None:
        """All jobs that the engine knows, for reading, now and later: also those that wait for others."""

    @property
    def memory(self) -> Any:
        """What it must remember, as a value that JSON can hold."""

    def recall(self, memory: Any) -> None:
        """Take up what `memory` said."""


class DefaultSizeRule:
    """What rules do unless they say otherwise: plan at every change, learn and remember nothing."""

    interval_s: float | None = None
    drifts = False
    takes_all = False
    moves = False
    memory: Any = None

    def saw(self, live: LiveJob, nodes: int, now_s: float) -> None:
        """It is not noted."""

    def left(self, live: LiveJob) -> None:
        """Nothing was learned of it."""

    def meet(self, jobs: dict[JobId, LiveJob]) -> None:
        """It looks at those only who contend."""

    def recall(self, memory: Any) -> None:
        """There is nothing to take up."""


def candidate(live: LiveJob, inventory: Inventory) -> Candidate:
    """A job with the sizes that nodes which are up could take, or that it holds on nodes that it has for itself."""
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
    """What the job could hold at most: tasks of one role are on one type."""
    if len(job.roles) > 1:
        return sum(pool.usable for pool in inventory.pools) * WHOLE
    return max((pool.usable for pool in inventory.eligible(job.roles[0])), default=0) * WHOLE


def whole_shapes(found: Candidate, node_devices: int) -> tuple[int, ...]:
    """Sizes that share out nodes without a rest: parts of a node that divide it by powers of two, or whole nodes.

    The smallest and the asked size are always among them.
    """
    if not found.is_elastic or not found.sizes:
        return found.sizes
    kept = {found.sizes[0], found.asked}
    for tasks in found.sizes:
        devices = found.gpus(tasks)
        if devices >= node_devices:
            if devices % node_devices == 0:
                kept.add(tasks)
        elif devices and math.log2(node_devices / devices).is_integer():
            kept.add(tasks)
    return tuple(sorted(kept))
