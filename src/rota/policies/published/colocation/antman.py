"""AntMan: opportunistic jobs on the devices of guaranteed ones, held back so that these keep their speed.

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
from rota.mechanisms.colocation.declare import sharing
from rota.mechanisms.colocation.fractional import FractionalPlacement, apart, lay
from rota.mechanisms.colocation.groups import DeviceGroups, is_settled, wants_part
from rota.mechanisms.colocation.interference_bound import InterferenceBounds, ThrottledNeighbour, held_back
from rota.mechanisms.colocation.pair_placement import HALF
from rota.mechanisms.colocation.remarks import lacks_idle_hosts, lacks_opportunistic
from rota.mechanisms.colocation.rule import DefaultColocationRule
from rota.mechanisms.declare import MOVES, SHARES, Knowledge, Traits
from rota.mechanisms.hooks import SimulationInput
from rota.perf.speed.busy_fraction import check_part
from rota.perf.speed.throttling import PAUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class AntManParams:
    """A guaranteed job keeps at least the part `guard` of its speed alone; it is joined if it is busy below `busy`.

    One that has waited for `patience_s` may run beside another guaranteed one as if it were opportunistic. It has its
    guarantee back when that one ends, or as soon as there are free devices for it. A job of which nothing is known is
    taken to be busy for the part `unknown` of the time.
    """

    guard: float = 0.95
    busy: float = 0.8
    patience_s: float = math.inf
    unknown: float = 1.0

    def __post_init__(self) -> None:
        if not 0.05 <= self.guard <= 0.98 or not 0 < self.busy <= 1:
            raise RotaError(
                f"guard is {self.guard:g} and busy {self.busy:g}; guard must be 0.05 to 0.98, busy a part of 1"
            )
        check_part("unknown", self.unknown)
        if not self.patience_s >= 0:
            raise RotaError(f"patience_s is {self.patience_s:g}; it must be a number of seconds, or inf")


class AntMan(DefaultColocationRule):
    """Guaranteed jobs first; opportunistic ones (priority -1) on what is free, else beside the idlest of the others."""

    moves_parts = False

    def __init__(self, params: AntManParams, knowledge: Knowledge) -> None:
        self._params = params
        self._speed = knowledge.speed
        self.is_steady = params.patience_s == math.inf
        self._tolerances = InterferenceBounds(knowledge.speed, params.guard)
        self.looks_around = self._speed.node_neighbour < 1.0 or self._speed.contention
        self._types: dict[int, DeviceType] = {}
        """By node, where jobs have joined others."""
        self._lent: set[int] = set()
        """Guaranteed jobs that run beside another one as if they were opportunistic."""

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """Guaranteed jobs first, then who came first."""
        return (not _is_guaranteed(live), live.seq)

    def free(self, live: LiveJob, draft: Draft, guests: DeviceGroups) -> Placement | Reason:
        """For each task that wants a part the fullest device where all keep their guarantee, or one nobody has."""
        if not any(role.is_fraction for role in live.job.roles):
            return draft.offer(live)
        if not wants_part(live.job):
            return apart(live, draft)
        return lay(live, draft, guests, lambda laying: self._lay(laying, live, guests))

    def looks_at(self, job: Job) -> Hashable:
        """Its class and its model; its labels only where they say how fast it runs beside others."""
        return (job.model, job.priority, job.labels if self._speed.interleaved else ())

    def _lay(self, laying: FractionalPlacement, live: LiveJob, guests: DeviceGroups) -> Reason | None:
        beside = {holder: None for at in laying.devices for holder in guests.parts.get(at, ())}
        for place in sorted(laying.places(), key=lambda place: (place.left_milli, place.at)):
            mates = beside | dict.fromkeys(place.holders)
            kept = all(self._keeps(each, guests.partners(each) | {live: None}, place.kind) for each in place.holders)
            if kept and self._keeps(live, mates, place.kind) and laying.put(place):
                self._types[place.at[0]] = place.kind
                return None
        return laying.open()

    def _keeps(self, live: LiveJob, mates: Iterable[LiveJob], kind: DeviceType) -> bool:
        """Whether a job with parts of devices runs beside others, and at its bound if it is guaranteed.

        As far as that is known: where speeds are guessed, guaranteed jobs are not put to the test with each other.
        """
        if self._speed.is_estimate and _is_guaranteed(live) and any(map(_is_guaranteed, mates)):
            return False
        rate = self._speed.among(live.job, 1.0, [(mate.job, 1.0) for mate in mates], kind)
        least = self._params.guard * self._speed.on_type(live.job, kind) if _is_guaranteed(live) else 0.0
        return rate > 0 and rate >= least - 1e-9

    def joins(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """One guaranteed and one opportunistic job, the idlest first; a guaranteed one may come second."""
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

    def again_s(self, waiting: LiveJob, now_s: float) -> float:
        """When a guaranteed job has waited for long enough to run without its guarantee."""
        due_s = waiting.since_s + self._params.patience_s
        return due_s if _is_guaranteed(waiting) and due_s > now_s else math.inf

    def parts(self, jobs: Sequence[LiveJob], now_s: float, room: int, guests: DeviceGroups) -> Sequence[int]:
        """As much for the opportunistic job as all around it can bear, at most half if it is not alone."""
        if len(jobs) == 1:
            level = self._level(jobs[0], guests)
            return [WHOLE if level >= HALF else level]
        lesser = self._lesser(jobs)
        part = self._level(lesser, guests) if all(map(guests.seats, jobs)) else PAUSED
        return [part if live is lesser else WHOLE - part for live in jobs]

    def held_back(self, live: LiveJob, guests: DeviceGroups) -> Placement:
        """What all around it can bear."""
        return held_back(live.job, live.placement or (), self._level(live, guests))

    def _level(self, live: LiveJob, guests: DeviceGroups) -> int:
        """How much a job may have for the sake of the guaranteed ones around it."""
        if self._is_safe(live):
            return HALF
        near = self._around(live, guests)
        return min((self._tolerances.level(each, live) for each in near if self._is_safe(each)), default=HALF)

    def _around(self, live: LiveJob, guests: DeviceGroups) -> dict[LiveJob, bool]:
        """Who may slow a job down, and whether they have devices in common."""
        on_devices = dict.fromkeys((*guests.mates(live), *guests.partners(live)), True)
        return dict.fromkeys(guests.near(live), False) | on_devices if self.looks_around else on_devices

    def _is_safe(self, live: LiveJob) -> bool:
        """Whether a job has its guarantee now."""
        return _is_guaranteed(live) and live.seq not in self._lent

    def memory_parts(self, jobs: Sequence[LiveJob], room: int | None) -> Sequence[int]:
        """All of it for the guaranteed job; of the other's, what is left has to do, and the rest lies on the host."""
        if len(jobs) == 1 or room is None:
            return [WHOLE] * len(jobs)
        lesser = self._lesser(jobs)
        needs = lesser.job.roles[0].device_memory_bytes
        left = room - sum(live.job.roles[0].device_memory_bytes for live in jobs if live is not lesser)
        kept = WHOLE if needs <= left else max(left * WHOLE // needs, 0)
        return [kept if live is lesser else WHOLE for live in jobs]

    def _lesser(self, jobs: Sequence[LiveJob]) -> LiveJob:
        """Who is held back: the opportunistic job; of two guaranteed ones that who came to the other."""
        for live in jobs:
            if not _is_guaranteed(live) or live.seq in self._lent:
                return live
        self._lent.add(jobs[-1].seq)
        return jobs[-1]

    def saw(self, live: LiveJob, guests: DeviceGroups) -> Iterable[LiveJob]:
        """Correct the parts of opportunistic jobs by what the guaranteed ones around them lose."""
        if not guests.mates(live):
            self._lent.discard(live.seq)
        slowed = [live] if self._is_safe(live) else filter(self._is_safe, self._around(live, guests))
        found: dict[LiveJob, None] = {}
        for each in filter(is_settled, slowed):
            around = self._around(each, guests)
            others = [ThrottledNeighbour(other, shared) for other, shared in around.items() if not self._is_safe(other)]
            peers = tuple(sorted(other.seq for other in around if self._is_safe(other)))
            where = guests.seats(each) or ()
            kind = self._types.get(where[0][0]) if where else None
            if self._tolerances.look(each, others, where, peers, kind):
                found |= dict.fromkeys(other.live for other in others)
        return found

    def mover(self, jobs: Sequence[LiveJob], *, somebody_waits: bool) -> LiveJob | None:
        """A job that runs without the guarantee that it has."""
        return next((live for live in jobs if live.seq in self._lent), None)

    def left(self, live: LiveJob) -> None:
        """Forget it."""
        self._tolerances.forget(live)
        self._lent.discard(live.seq)

    def yields(self, live: LiveJob, holders: Sequence[LiveJob]) -> Sequence[LiveJob]:
        """Opportunistic jobs make room for a guaranteed one that can't run beside any, the youngest first."""
        if not _is_guaranteed(live):
            return ()
        return sorted((each for each in holders if not _is_guaranteed(each)), key=lambda each: -each.seq)

    @property
    def memory(self) -> Any:
        """What jobs bear, on what devices, and who has no guarantee for now."""
        return {
            "tolerances": self._tolerances.memory,
            "types": list(self._types.items()),
            "lent": sorted(self._lent),
        }

    def recall(self, memory: Any, jobs: dict[int, LiveJob]) -> None:
        """Take them up."""
        self._tolerances.recall(memory.get("tolerances", ()))
        self._types, self._lent = dict(memory.get("types", ())), set(memory.get("lent", ()))


def _is_guaranteed(live: LiveJob) -> bool:
    return live.job.priority > OPPORTUNISTIC


def _remarks(params: AntManParams, given: SimulationInput) -> Iterator[str]:
    """Tell why no job is packed with one that has whole devices, if so."""
    refused = list(lacks_opportunistic(given)) if params.patience_s == math.inf else []
    yield from refused or lacks_idle_hosts(given, params.busy, params.unknown)


antman = sharing(
    "antman",
    AntMan,
    cites="Xiao et al., OSDI 2020",
    summary="Opportunistic jobs (priority -1) run beside guaranteed ones, held back so that these keep their speed.",
    params=AntManParams,
    differs=(
        "at most one opportunistic job runs beside a guaranteed one; a job is never larger than what it asked for, so "
        "that there are no bursts of memory; and guaranteed jobs keep their guarantee unless `patience_s` is given. "
        "A guaranteed job keeps `guard` of the speed that it would have without any opportunistic one. Those that only "
        "share its nodes are held back as well, where neighbours there cost speed (`--neighbours node=`, "
        "`--contention`), to nothing if need be, but none that has no device. Jobs that asked for parts of devices "
        "share one only where by what is known every guaranteed one keeps its speed, and two "
        "guaranteed ones never where speeds are estimates; those of several roles, elastic or bound to a place have "
        "devices that nobody had. Consolidation leaves them all in place."
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
