"""AlloX (Le et al., EuroSys 2020): which job on which kind of device, GPU or CPU, as a matching.

Jobs are matched to places in the queues of all devices so that the sum of completion times is least, and whoever is
first in the queue of a free device starts. Nobody is pre-empted. For fairness only the users who get least are matched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rota.core.errors import RotaError
from rota.core.live import LiveJob
from rota.core.model import WHOLE
from rota.core.placement import devices_of
from rota.core.policy import Allocator, Policy
from rota.core.reasons import Reason, ReasonCode
from rota.mechanisms.declare import DeclaredPolicy, Knowledge, Traits
from rota.mechanisms.matching import earliest, worthwhile_places
from rota.mechanisms.picks import Picks, PickScheduler, Scene, Want
from rota.mechanisms.shares import UNKNOWN_WORK_S, Floats
from rota.perf.speed import SpeedModel

_NEVER_S = 1e10
"""What a job takes on a type that it can't run on, and when a device is free that nobody knows of: later than all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlloxParams:
    """`alpha` is the part of the users, those with least progress, whose jobs are matched first."""

    alpha: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise RotaError(f"alpha is {self.alpha:g}; it must be above 0 and at most 1")


@dataclass(slots=True)
class Machines:
    """All devices: their type and in how many seconds each is free."""

    kind: list[int]
    free_in_s: list[float]

    def free_of(self, kind: int) -> list[int]:
        """The devices of a type that are free now."""
        return [
            at for at, (of, in_s) in enumerate(zip(self.kind, self.free_in_s, strict=True)) if of == kind and not in_s
        ]


class Allox:
    """Matches whenever devices are free; remembers nothing."""

    memory: Any = None

    def __init__(self, params: AlloxParams, speed: SpeedModel) -> None:
        self._params = params
        self._speed = speed

    def recall(self, memory: Any) -> None:
        """There is nothing to take up."""

    def up(self, scene: Scene) -> list[LiveJob]:
        """Who runs stays."""
        return []

    def settle(self, scene: Scene) -> None:
        """Nothing is kept."""

    def wakeup_s(self, scene: Scene) -> float:
        """Only what happens lets jobs start."""
        return math.inf

    def pick(self, scene: Scene) -> Picks:
        """Batches of users, least progress first, are matched to the devices until none is free."""
        machines = self._machines(scene)
        took = {live: self._took_s(live, scene) for live in scene.waiting}
        odd = [Want(live) for live, row in took.items() if min(row) >= _NEVER_S]
        wants: list[Want] = []
        passed: dict[LiveJob, Reason] = {}
        for users in self._batches(scene):
            free = {kind for kind, in_s in zip(machines.kind, machines.free_in_s, strict=True) if not in_s}
            jobs = [live for live in took if owner(live) in users and min(took[live]) < _NEVER_S]
            if not free or not jobs:
                continue
            started = self._match(scene, jobs, took, machines)
            wants += started
            mine = {want.live for want in started}
            better = Reason(code=ReasonCode.BETTER_LATER)
            passed |= {
                live: better for live in jobs if live not in mine and any(took[live][at] < _NEVER_S for at in free)
            }
        return Picks(wants=wants, fill=odd, passed=passed)

    def _match(
        self, scene: Scene, jobs: list[LiveJob], took: dict[LiveJob, list[float]], machines: Machines
    ) -> list[Want]:
        """Who is first on a free device starts there; its devices are taken for as long as it runs."""
        kinds = np.array(machines.kind)
        sizes = np.array([size_of(live) for live in jobs])
        took_s: Floats = np.array([took[live] for live in jobs])[:, kinds]
        free_in_s = np.array(machines.free_in_s)
        columns = []
        for kind in sorted(set(machines.kind)):
            of_kind = np.nonzero(kinds == kind)[0]
            place, machine = worthwhile_places(free_in_s[of_kind], len(jobs))
            columns.append((place, of_kind[machine]))
        place, machine = (np.concatenate([part[at] for part in columns]) for at in (0, 1))
        wait_s = np.broadcast_to(free_in_s, took_s.shape)
        firsts = earliest(np.minimum(took_s * sizes[:, None], _NEVER_S), wait_s, place, machine)
        started = []
        for at, row in firsts.items():
            live, kind = jobs[row], machines.kind[at]
            free = machines.free_of(kind)
            if not free_in_s[at] and len(free) >= sizes[row] and took[live][kind] < _NEVER_S:
                for taken in free[: sizes[row]]:
                    machines.free_in_s[taken] = max(took[live][kind], 1e-9)
                started.append(Want(live, scene.inventory.pools[kind].device_type))
        return started

    def _batches(self, scene: Scene) -> Iterator[set[str]]:
        """Users that wait, so many at a time, those with least progress first."""
        had = dict.fromkeys((owner(live) for live in scene.waiting), 0.0)
        for live in scene.holding:
            if owner(live) in had:
                had[owner(live)] += self._progress(live, scene)
        order = sorted(had, key=lambda user: (round(had[user], 9), user))
        many = max(math.ceil(self._params.alpha * len(order) - 1e-9), 1)
        for at in range(0, len(order), many):
            yield set(order[at : at + many])

    def _progress(self, live: LiveJob, scene: Scene) -> float:
        """A job's share of the devices of its type, less where it runs slower than at its best."""
        books = scene.inventory.nodes[(live.placement or ())[0].node]
        pool = scene.inventory.pools[books.pool]
        speed = self._speed.on_type(live.job, pool.device_type)
        return live.gpus / max(pool.devices, 1) * min(speed / (live.nominal_rate or 1.0), 1.0)

    def _took_s(self, live: LiveJob, scene: Scene) -> list[float]:
        """Seconds that a job would take on each type."""
        left_s = live.left_s(scene.now_s)
        work = (UNKNOWN_WORK_S if left_s == math.inf else left_s) * live.nominal_rate
        speeds = [
            self._speed.on_type(live.job, pool.device_type) if scene.can_run(live, pool.device_type) else 0.0
            for pool in scene.inventory.pools
        ]
        return [min(work / speed, _NEVER_S / 2) if speed > 0 else _NEVER_S for speed in speeds]

    def _machines(self, scene: Scene) -> Machines:
        """Free devices, and those of holders when these are expected to end."""
        machines = Machines([], [])
        for kind, pool in enumerate(scene.inventory.pools):
            machines.kind += [kind] * pool.free
            machines.free_in_s += [0.0] * pool.free
        for live in scene.holding:
            placement = live.placement or ()
            books = scene.inventory.nodes[placement[0].node]
            many = devices_of(placement)
            machines.kind += [books.pool] * many
            machines.free_in_s += [min(max(live.remaining_s(scene.now_s), 1e-9), _NEVER_S)] * many
        return machines


def owner(live: LiveJob) -> str:
    """Whose progress counts: the user's, or the tenant's where no user is named."""
    return live.job.user or str(live.job.tenant)


def size_of(live: LiveJob) -> int:
    """Devices that a job occupies; AlloX itself knows jobs of one only."""
    return -(-live.job.gpu_milli // WHOLE)


def _make(values: AlloxParams, allocator: Allocator, knowledge: Knowledge) -> Policy:
    return PickScheduler(Allox(values, knowledge.speed), name="allox")


allox = DeclaredPolicy(
    name="allox",
    cites="Le et al., EuroSys 2020",
    summary="The matching of jobs to places in the queues of all devices with the least sum of completion times.",
    traits=Traits(
        prior_knowledge="length, speed by type",
        scheduling_input="run time on each type",
        dimensions="time",
        priority="first in a device's queue; users with least progress",
        starvation="possible",
        placement="consolidated",
    ),
    params=AlloxParams,
    placement="consolidate",
    make=_make,
    whole_cluster=True,
)
