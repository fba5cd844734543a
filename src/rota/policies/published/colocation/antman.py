"""AntMan: opportunistic jobs share the devices of guaranteed jobs, throttled so that these keep their speed.

Xiao et al., OSDI 2020.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.errors import RotaError
from rota.core.messages.reasons import Reason
from rota.core.model.job import OPPORTUNISTIC, WHOLE, DeviceType, Job
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.declare import colocation
from rota.mechanisms.colocation.fractional import FractionalPlacement, on_unshared_devices, place_tasks
from rota.mechanisms.colocation.groups import DeviceGroups, wants_fraction
from rota.mechanisms.colocation.interference_bound import InterferenceBounds, ThrottledNeighbour, throttled
from rota.mechanisms.colocation.pair_placement import HALF
from rota.mechanisms.colocation.remarks import lacks_idle_hosts, lacks_opportunistic
from rota.mechanisms.colocation.rule import DefaultColocationRule
from rota.mechanisms.declare import MOVES, SHARES, Knowledge, Traits
from rota.mechanisms.hooks import SimulationInput
from rota.perf.speed.busy_fraction import check_fraction
from rota.perf.speed.throttling import PAUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class AntManParams:
    """A guaranteed job keeps the fraction `guard` of its speed alone; it is co-located if its utilisation is below
    `busy`.

    A guaranteed job that has waited for `patience_s` may share the devices of another as if it were opportunistic. It
    regains its guarantee when that job ends, or as soon as it can move to free devices. `unknown` is the utilisation
    assumed for a job without a profile.
    """

    guard: float = 0.95
    busy: float = 0.8
    patience_s: float = math.inf
    unknown: float = 1.0

    def __post_init__(self) -> None:
        if not 0.05 <= self.guard <= 0.98 or not 0 < self.busy <= 1:
            raise RotaError(f"guard is {self.guard:g} and busy {self.busy:g}; use 0.05 to 0.98 and 0 to 1")
        check_fraction("unknown", self.unknown)
        if not self.patience_s >= 0:
            raise RotaError(f"patience_s is {self.patience_s:g}; it must be a number of seconds, or inf")


class AntMan(DefaultColocationRule):
    """Guaranteed jobs first; opportunistic ones (priority -1) on free devices, else with the least utilised guaranteed
    job."""

    moves_parts = False

    def __init__(self, params: AntManParams, knowledge: Knowledge) -> None:
        self._params = params
        self._speed = knowledge.speed
        self.refusals_stand = params.patience_s == math.inf
        self._bounds = InterferenceBounds(knowledge.speed, params.guard)
        self.observes_nodes = self._speed.node_neighbour < 1.0 or self._speed.contention
        self._types: dict[int, DeviceType] = {}
        """Device type by node, where jobs were co-located."""
        self._lent: set[int] = set()
        """Guaranteed jobs that share the devices of another one as if they were opportunistic."""

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """Guaranteed jobs first, then first in first out."""
        return (not _is_guaranteed(live), live.seq)

    def find_free(self, live: LiveJob, draft: Draft, groups: DeviceGroups) -> Placement | Reason:
        """Place each fractional task on the fullest device where all guarantees hold, else on an unshared one."""
        if not any(role.is_fraction for role in live.job.roles):
            return draft.offer(live)
        if not wants_fraction(live.job):
            return on_unshared_devices(live, draft)
        return place_tasks(live, draft, groups, lambda search: self._place_task(search, live, groups))

    def placement_key(self, job: Job) -> Hashable:
        """Class and model; labels only where they decide how fast jobs run, interleaved or on links."""
        by_labels = self._speed.interleaved or self._speed.links is not None
        return (job.model, job.priority, job.labels if by_labels else ())

    def _place_task(self, search: FractionalPlacement, live: LiveJob, groups: DeviceGroups) -> Reason | None:
        sharing = {holder: None for at in search.devices for holder in groups.holders.get(at, ())}
        for device in sorted(search.shared_devices(), key=lambda device: (device.left_milli, device.at)):
            mates = sharing | dict.fromkeys(device.holders)
            kept = all(
                self._keeps_bound(each, groups.partners(each) | {live: None}, device.kind) for each in device.holders
            )
            if kept and self._keeps_bound(live, mates, device.kind) and search.add(device):
                self._types[device.at[0]] = device.kind
                return None
        return search.add_unshared()

    def _keeps_bound(self, live: LiveJob, mates: Iterable[LiveJob], kind: DeviceType) -> bool:
        """Return whether a job with a fraction can run with these mates, and keeps its bound if it is guaranteed.

        Where speeds are estimates, two guaranteed jobs never share a device.
        """
        if self._speed.is_estimate and _is_guaranteed(live) and any(map(_is_guaranteed, mates)):
            return False
        rate = self._speed.among(live.job, 1.0, [(mate.job, 1.0) for mate in mates], kind)
        least = self._params.guard * self._speed.on_type(live.job, kind) if _is_guaranteed(live) else 0.0
        return rate > 0 and rate >= least - 1e-9

    def admit(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """Admit a guaranteed and an opportunistic job, least utilised first; two guaranteed after `patience_s`."""
        (host, *others) = hosts
        if others or not (_is_guaranteed(live) or _is_guaranteed(host)):
            return None
        if _is_guaranteed(live) and _is_guaranteed(host) and now_s < live.since_s + self._params.patience_s:
            return None
        guaranteed = host if _is_guaranteed(host) else live
        busy = self._speed.use(guaranteed.job, kind, self._params.unknown)
        self._types.update((slot.node, kind) for slot in host.placement or ())
        both = (self._speed.beside(live.job, host.job, kind), self._speed.beside(host.job, live.job, kind))
        return (busy,) if busy < self._params.busy and min(both) > 0 else None

    def next_admission_s(self, waiting: LiveJob, now_s: float) -> float:
        """Return when a guaranteed job has waited long enough to run without its guarantee."""
        due_s = waiting.since_s + self._params.patience_s
        return due_s if _is_guaranteed(waiting) and due_s > now_s else math.inf

    def fractions(self, jobs: Sequence[LiveJob], now_s: float, room: int, groups: DeviceGroups) -> Sequence[int]:
        """Give the opportunistic job what its guaranteed neighbours tolerate, at most half of a shared device."""
        if len(jobs) == 1:
            level = self._level(jobs[0], groups)
            return [WHOLE if level >= HALF else level]
        throttled_job = self._to_throttle(jobs)
        part = self._level(throttled_job, groups) if all(map(groups.devices_of, jobs)) else PAUSED
        return [part if live is throttled_job else WHOLE - part for live in jobs]

    def throttled(self, live: LiveJob, groups: DeviceGroups) -> Placement:
        """Throttle a job to what its guaranteed neighbours tolerate."""
        return throttled(live.job, live.placement or (), self._level(live, groups))

    def _level(self, live: LiveJob, groups: DeviceGroups) -> int:
        """Return the level that all guaranteed neighbours of a job tolerate."""
        if self._has_guarantee(live):
            return HALF
        near = self._neighbours(live, groups)
        return min((self._bounds.level(each, live) for each in near if self._has_guarantee(each)), default=HALF)

    def _neighbours(self, live: LiveJob, groups: DeviceGroups) -> dict[LiveJob, bool]:
        """Return the neighbours that interfere with a job, and whether they share devices with it."""
        on_devices = dict.fromkeys((*groups.mates(live), *groups.partners(live)), True)
        return dict.fromkeys(groups.on_same_nodes(live), False) | on_devices if self.observes_nodes else on_devices

    def _has_guarantee(self, live: LiveJob) -> bool:
        """Return whether the guarantee of a job holds at present."""
        return _is_guaranteed(live) and live.seq not in self._lent

    def memory_fractions(self, jobs: Sequence[LiveJob], room: int | None) -> Sequence[int]:
        """Keep the guaranteed job's memory on the device; the excess of the other's is spilled to the host."""
        if len(jobs) == 1 or room is None:
            return [WHOLE] * len(jobs)
        throttled_job = self._to_throttle(jobs)
        needs = throttled_job.job.roles[0].device_memory_bytes
        left = room - sum(live.job.roles[0].device_memory_bytes for live in jobs if live is not throttled_job)
        kept = WHOLE if needs <= left else max(left * WHOLE // needs, 0)
        return [kept if live is throttled_job else WHOLE for live in jobs]

    def _to_throttle(self, jobs: Sequence[LiveJob]) -> LiveJob:
        """Return the job to throttle: the opportunistic one, or of two guaranteed ones the later arrival."""
        for live in jobs:
            if not _is_guaranteed(live) or live.seq in self._lent:
                return live
        self._lent.add(jobs[-1].seq)
        return jobs[-1]

    def observe(self, live: LiveJob, groups: DeviceGroups) -> Iterable[LiveJob]:
        """Lower the levels of opportunistic jobs whose guaranteed neighbours lose too much speed; return those
        affected."""
        if not groups.mates(live):
            self._lent.discard(live.seq)
        slowed = [live] if self._has_guarantee(live) else filter(self._has_guarantee, self._neighbours(live, groups))
        found: dict[LiveJob, None] = {}
        for each in (each for each in slowed if each.is_settled):
            neighbours = self._neighbours(each, groups)
            others = [
                ThrottledNeighbour(other, shared)
                for other, shared in neighbours.items()
                if not self._has_guarantee(other)
            ]
            peers = tuple(sorted(other.seq for other in neighbours if self._has_guarantee(other)))
            where = groups.devices_of(each) or ()
            kind = self._types.get(where[0][0]) if where else None
            if self._bounds.observe(each, others, where, peers, kind):
                found |= dict.fromkeys(other.live for other in others)
        return found

    def select_to_move(self, jobs: Sequence[LiveJob], *, jobs_wait: bool) -> LiveJob | None:
        """Select a guaranteed job that runs without its guarantee."""
        return next((live for live in jobs if live.seq in self._lent), None)

    def forget(self, live: LiveJob) -> None:
        """Drop the bounds and the state of a job that has ended."""
        self._bounds.forget(live)
        self._lent.discard(live.seq)

    def victims(self, live: LiveJob, holders: Sequence[LiveJob]) -> Sequence[LiveJob]:
        """Return opportunistic jobs, youngest first, for a guaranteed job that cannot be co-located."""
        if not _is_guaranteed(live):
            return ()
        return sorted((each for each in holders if not _is_guaranteed(each)), key=lambda each: -each.seq)

    @property
    def memory(self) -> Any:
        """Interference bounds, device types, and the jobs without their guarantee."""
        return {
            "tolerances": self._bounds.memory,
            "types": list(self._types.items()),
            "lent": sorted(self._lent),
        }

    def recall(self, memory: Any, jobs: dict[int, LiveJob]) -> None:
        """Restore what `memory` returned."""
        self._bounds.recall(memory.get("tolerances", ()))
        self._types, self._lent = dict(memory.get("types", ())), set(memory.get("lent", ()))


def _is_guaranteed(live: LiveJob) -> bool:
    return live.job.priority > OPPORTUNISTIC


def _remarks(params: AntManParams, given: SimulationInput) -> Iterator[str]:
    """Tell why no job is packed with one that has whole devices, if so."""
    refused = list(lacks_opportunistic(given)) if params.patience_s == math.inf else []
    yield from refused or lacks_idle_hosts(given, params.busy, params.unknown)


antman = colocation(
    "antman",
    AntMan,
    cites="Xiao et al., OSDI 2020",
    summary="Opportunistic jobs (priority -1) share devices with guaranteed ones, throttled to keep those at speed.",
    params=AntManParams,
    differs=(
        "at most one opportunistic job shares the devices of a guaranteed one; memory never grows beyond the request, "
        "so that there are no bursts; and guaranteed jobs keep their guarantee unless `patience_s` is given. "
        "A guaranteed job keeps `guard` of the speed it would have without opportunistic jobs. Opportunistic jobs that "
        "only share its nodes are throttled as well where neighbours on a node cost speed (`--neighbours node=`, "
        "`--contention`), down to a pause; jobs without devices are not. Jobs that request fractions "
        "share a device only where the speed model predicts that every guaranteed one keeps its speed, and two "
        "guaranteed ones never where speeds are estimates. Fractions of jobs that have several roles, are elastic or "
        "have hard locality go on devices without holders. Consolidation leaves all fractions in place."
    ),
    traits=Traits(
        prior_knowledge="utilisation",
        scheduling_input="class of the job, observed speed",
        priority="guaranteed before opportunistic",
        preemption="of opportunistic jobs",
        starvation="possible for opportunistic jobs",
        placement="consolidated, packed",
        intrusiveness="framework",
    ),
    emits=SHARES | MOVES,
    remarks=_remarks,
    packs=True,
)
