"""AlloX (Le et al., EuroSys 2020): the assignment of jobs to kinds of devices, GPU or CPU, as a matching.

Jobs are matched to positions in the queues of all devices so that the sum of completion times is least; the first job
in the queue of a free device starts. No job is preempted. For fairness only users with the least progress are matched.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rota.core.errors import RotaError
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import WHOLE
from rota.core.model.placement import devices_of
from rota.core.state.job_record import LiveJob
from rota.mechanisms.arrays import Floats
from rota.mechanisms.declare import NEVER_STOPS, Knowledge, Traits
from rota.mechanisms.job_length import UNKNOWN_WORK_S
from rota.mechanisms.selection.declare import selection
from rota.mechanisms.selection.rule import DeviceRequest, Selection, SelectionContext
from rota.mechanisms.solvers.assignment import queues, worthwhile_places
from rota.perf.speed.model import SpeedModel

_NEVER_S = 1e10
"""The run time on a type that a job can't run on, and the time to a release that is unknown: later than all others."""

MOST = 400
"""Jobs matched at a time, the shortest: longer ones would not be first in any queue, and the cost is cubic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlloxParams:
    """`alpha` is the fraction of users, those with the least progress, whose jobs are matched first."""

    alpha: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise RotaError(f"alpha is {self.alpha:g}; it must be above 0 and at most 1")


@dataclass(slots=True)
class Machines:
    """All devices: the type of each, the seconds until it is free, and by type the free ones and their number."""

    kind: list[int] = field(default_factory=list)
    free_in_s: list[float] = field(default_factory=list)
    free: dict[int, list[int]] = field(default_factory=dict)
    count: Counter[int] = field(default_factory=Counter)

    def add(self, kind: int, free_in_s: float, count: int) -> None:
        """Add devices of a type."""
        first = len(self.kind)
        self.count[kind] += count
        self.kind += [kind] * count
        self.free_in_s += [free_in_s] * count
        if not free_in_s:
            self.free.setdefault(kind, []).extend(range(first, first + count))

    def take(self, first: int, count: int, for_s: float) -> None:
        """Occupy free devices of the type of a device for this long, and the device itself if it is free."""
        free = self.free[self.kind[first]]
        free.sort(key=lambda at: (at != first, at))
        for at in free[:count]:
            self.free_in_s[at] = max(for_s, 1e-9)
        del free[:count]

    def queue(self, at: int, for_s: float) -> None:
        """Occupy a device for this long after its present job; one that is free stays free."""
        if self.free_in_s[at]:
            self.free_in_s[at] = min(self.free_in_s[at] + for_s, _NEVER_S)

    def could_start(self, size: int, took_s: list[float]) -> bool:
        """Whether a job could start now on some type, fast or slow."""
        return any(len(free) >= size and took_s[kind] < _NEVER_S for kind, free in self.free.items())


class Allox:
    """Matches jobs whenever devices are free; keeps no memory."""

    memory: Any = None

    def __init__(self, params: AlloxParams, speed: SpeedModel) -> None:
        self._params = params
        self._speed = speed

    def recall(self, memory: Any) -> None:
        """There is nothing to restore."""

    def expired(self, context: SelectionContext) -> list[LiveJob]:
        """No job is preempted."""
        return []

    def placed(self, context: SelectionContext) -> None:
        """Nothing is noted."""

    def wakeup_s(self, context: SelectionContext) -> float:
        """Never: only events let jobs start."""
        return math.inf

    def select(self, context: SelectionContext) -> Selection:
        """Match batches of users, least progress first, to the devices until none is free."""
        most = max((pool.free for pool in context.inventory.pools), default=0)
        machines = self._machines(context)
        took = {live: self._took_s(live, context, machines) for live in context.waiting if size_of(live) <= most}
        others = [
            DeviceRequest(live)
            for live in context.waiting
            if live not in took and (not live.wait_code or live.job.elastic)
        ]
        odd = [
            DeviceRequest(live)
            for live in context.waiting
            if is_odd(live) or (live in took and min(took[live]) >= _NEVER_S)
        ]
        if not took:
            return Selection(backfill=[*odd, *others])
        requests: list[DeviceRequest] = []
        passed: dict[LiveJob, Reason] = {}
        for users in self._batches(context):
            jobs = [live for live in took if owner(live) in users and min(took[live]) < _NEVER_S]
            if not any(machines.could_start(size_of(live), took[live]) for live in jobs):
                continue
            jobs.sort(key=lambda live: (min(took[live]) * size_of(live), live.seq))
            started = self._match(context, jobs[:MOST], took, machines)
            requests += started
            mine = {request.live for request in started}
            better = Reason(code=ReasonCode.BETTER_LATER)
            passed |= {
                live: better for live in jobs if live not in mine and machines.could_start(size_of(live), took[live])
            }
        return Selection(requests=requests, backfill=[*odd, *others], passed=passed)

    def _match(
        self, context: SelectionContext, jobs: list[LiveJob], took: dict[LiveJob, list[float]], machines: Machines
    ) -> list[DeviceRequest]:
        """Start the first job of each free device; jobs matched to wait keep their position before later batches."""
        if len(set(machines.kind)) == 1:
            return self._shortest_first(context, jobs, took, machines)
        started: dict[LiveJob, DeviceRequest] = {}
        while True:
            matched = self._queues([live for live in jobs if live not in started], took, machines)
            begun, missed = self._start_first(context, matched, took, machines)
            started |= begun
            if not (begun and missed):
                break
        for at, queue in matched.items():
            for live in queue:
                if live not in started:
                    machines.queue(at, took[live][machines.kind[at]] * size_of(live))
        return list(started.values())

    def _start_first(
        self,
        context: SelectionContext,
        matched: dict[int, list[LiveJob]],
        took: dict[LiveJob, list[float]],
        machines: Machines,
    ) -> tuple[dict[LiveJob, DeviceRequest], bool]:
        """Start the first job of each free device; also whether one found its devices taken by another's gang."""
        ready = [
            (at, queue[0])
            for at, queue in matched.items()
            if not machines.free_in_s[at]
            and len(machines.free[machines.kind[at]]) >= size_of(queue[0])
            and took[queue[0]][machines.kind[at]] < _NEVER_S
        ]
        started: dict[LiveJob, DeviceRequest] = {}
        for at, live in ready:
            kind, size = machines.kind[at], size_of(live)
            if len(machines.free[kind]) >= size:
                machines.take(at, size, took[live][kind])
                started[live] = DeviceRequest(live, context.inventory.pools[kind].device_type)
        return started, len(started) < len(ready)

    def _shortest_first(
        self, context: SelectionContext, jobs: list[LiveJob], took: dict[LiveJob, list[float]], machines: Machines
    ) -> list[DeviceRequest]:
        """With one type, the optimum is the shortest job first."""
        kind, started = machines.kind[0], []
        for live in jobs:
            size, free = size_of(live), machines.free.get(kind, [])
            if len(free) >= size:
                machines.take(free[0], size, took[live][kind])
                started.append(DeviceRequest(live, context.inventory.pools[kind].device_type))
        return started

    def _queues(
        self, jobs: list[LiveJob], took: dict[LiveJob, list[float]], machines: Machines
    ) -> dict[int, list[LiveJob]]:
        """The optimal matching: the jobs of each device, in order.

        A gang counts by its devices, and waits until as many of the type are free.
        """
        kinds, free_in_s = np.array(machines.kind), np.array(machines.free_in_s)
        sizes = np.array([size_of(live) for live in jobs])
        took_s: Floats = np.array([took[live] for live in jobs])[:, kinds]
        wait_s = np.tile(free_in_s, (len(jobs), 1))
        columns = []
        for kind in sorted(set(machines.kind)):
            of_kind = np.nonzero(kinds == kind)[0]
            place, machine = worthwhile_places(free_in_s[of_kind], len(jobs))
            columns.append((place, of_kind[machine]))
            enough_s = np.sort(free_in_s[of_kind])[np.minimum(sizes, len(of_kind)) - 1]
            wait_s[:, of_kind] = np.maximum(wait_s[:, of_kind], enough_s[:, None])
        place, machine = (np.concatenate([part[at] for part in columns]) for at in (0, 1))
        wait_s = np.minimum(wait_s * sizes[:, None], _NEVER_S)
        found = queues(np.minimum(took_s * sizes[:, None], _NEVER_S), wait_s, place, machine)
        return {at: [jobs[row] for row in rows] for at, rows in found.items()}

    def _batches(self, context: SelectionContext) -> Iterator[set[str]]:
        """Batches of users with waiting jobs, those with the least progress first."""
        had = dict.fromkeys((owner(live) for live in context.waiting), 0.0)
        for live in context.holding:
            if owner(live) in had:
                had[owner(live)] += self._progress(live, context)
        order = sorted(had, key=lambda user: (round(had[user], 9), user))
        many = max(math.ceil(self._params.alpha * len(order) - 1e-9), 1)
        for at in range(0, len(order), many):
            yield set(order[at : at + many])

    def _progress(self, live: LiveJob, context: SelectionContext) -> float:
        """A job's share of the devices of its type, scaled by its speed there over its best speed."""
        account = context.inventory.nodes[(live.placement or ())[0].node]
        pool = context.inventory.pools[account.pool]
        speed = self._speed.on_type(live.job, pool.device_type)
        return live.gpus / max(pool.devices, 1) * min(speed / (live.nominal_rate or 1.0), 1.0)

    def _took_s(self, live: LiveJob, context: SelectionContext, machines: Machines) -> list[float]:
        """The run time of a job on each type that has enough free devices now."""
        left_s = live.left_s(context.now_s)
        work = (UNKNOWN_WORK_S if left_s == math.inf else left_s) * live.nominal_rate
        speeds = [
            self._speed.on_type(live.job, pool.device_type)
            if machines.count[kind] >= size_of(live) and context.can_run(live, pool.device_type)
            else 0.0
            for kind, pool in enumerate(context.inventory.pools)
        ]
        return [min(work / speed, _NEVER_S / 2) if speed > 0 else _NEVER_S for speed in speeds]

    def _machines(self, context: SelectionContext) -> Machines:
        """Free devices, and those of holders with their expected ends."""
        machines = Machines()
        for kind, pool in enumerate(context.inventory.pools):
            machines.add(kind, 0.0, pool.free)
        for live in context.holding:
            placement = live.placement or ()
            account = context.inventory.nodes[placement[0].node]
            in_s = min(max(live.remaining_s(context.now_s), 1e-9), _NEVER_S)
            machines.add(account.pool, in_s, devices_of(placement))
        return machines


def owner(live: LiveJob) -> str:
    """The owner whose progress counts: the user, or the tenant where no user is named."""
    return live.job.user or str(live.job.tenant)


def size_of(live: LiveJob) -> int:
    """Devices that a job occupies; the published AlloX has jobs of one device only."""
    return -(-live.job.gpu_milli // WHOLE)


def is_odd(live: LiveJob) -> bool:
    """Whether a job can't be matched by whole devices of one type: it has fractions or several roles."""
    return len(live.job.roles) > 1 or live.job.roles[0].is_fraction


def _rule(values: AlloxParams, knowledge: Knowledge) -> Allox:
    return Allox(values, knowledge.speed)


allox = selection(
    "allox",
    _rule,
    cites="Le et al., EuroSys 2020",
    summary="The matching of jobs to positions in device queues with the least sum of completion times.",
    traits=Traits(
        prior_knowledge="length, speed by type",
        scheduling_input="run time on each type",
        dimensions="time",
        priority="first in a device's queue; users with least progress",
        starvation="possible",
        placement="consolidated",
    ),
    params=AlloxParams,
    emits=NEVER_STOPS,
    differs=(
        "lengths on each type are those of the speed model, not estimated from two small runs. At most "
        "400 jobs are matched at a time, the shortest first; with one type of device the matching is that "
        "order. The published jobs have one device; here a gang counts by its devices, and waits until as many of "
        "a type are free."
    ),
)
