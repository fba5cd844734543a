"""AntMan: opportunistic jobs on the devices of guaranteed ones, held back so that these keep their speed.

Xiao et al., OSDI 2020.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rota.core.errors import RotaError
from rota.core.live import LiveJob
from rota.core.model import OPPORTUNISTIC, WHOLE, DeviceType, Job
from rota.core.placement import Placement
from rota.core.policy import Draft
from rota.core.reasons import Reason
from rota.mechanisms.declare import Knowledge, Traits
from rota.mechanisms.declare_sharing import sharing
from rota.mechanisms.guests import Guests, is_settled, wants_part
from rota.mechanisms.parts import Laying, apart
from rota.mechanisms.sharing_rule import PlainRule
from rota.perf.use import check_part

_PROBE = 10
"""Thousandths with which an opportunistic job begins, to see what it does to the other."""
_HALF = WHOLE // 2


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


class AntMan(PlainRule):
    """Guaranteed jobs first; opportunistic ones (priority -1) on what is free, else beside the idlest of the others."""

    moves_parts = False

    def __init__(self, params: AntManParams, knowledge: Knowledge) -> None:
        self._params = params
        self._speed = knowledge.speed
        self.is_steady = params.patience_s == math.inf
        self._alone: dict[int, float] = {}
        """The speed of guaranteed jobs by themselves, as seen."""
        self._parts: dict[int, int] = {}
        """What opportunistic jobs beside a guaranteed one may have."""
        self._capped: set[int] = set()
        """Opportunistic jobs that once had too much: they are not given more again beside the same one."""
        self._kinds: dict[int, DeviceType] = {}
        """The devices of jobs that others may join."""
        self._lent: set[int] = set()
        """Guaranteed jobs that run beside another one as if they were opportunistic."""

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """Guaranteed jobs first, then who came first."""
        return (not _is_guaranteed(live), live.seq)

    def free(self, live: LiveJob, draft: Draft, guests: Guests) -> Placement | Reason:
        """For each task that wants a part the fullest device where all keep their guarantee, or one nobody has."""
        if not any(role.is_fraction for role in live.job.roles):
            return draft.offer(live)
        if not wants_part(live.job):
            return apart(live, draft)
        laying = Laying(live, draft, guests)
        for _ in range(live.job.roles[0].count):
            reason = self._lay(laying, live, guests)
            if reason is not None:
                laying.give_up()
                return reason
        return laying.done()

    def looks_at(self, job: Job) -> Hashable:
        """Its class and its model; its labels only where they say how fast it runs beside others."""
        return (job.model, job.priority, job.labels if self._speed.interleaved else ())

    def _lay(self, laying: Laying, live: LiveJob, guests: Guests) -> Reason | None:
        beside = {holder: None for at in laying.devices for holder in guests.parts.get(at, ())}
        for place in sorted(laying.places(), key=lambda place: (place.left_milli, place.at)):
            mates = beside | dict.fromkeys(place.holders)
            kept = all(self._keeps(each, guests.partners(each) | {live: None}, place.kind) for each in place.holders)
            if kept and self._keeps(live, mates, place.kind) and laying.put(place):
                return None
        return laying.open()

    def _keeps(self, live: LiveJob, mates: Iterable[LiveJob], kind: DeviceType) -> bool:
        """Whether a job with parts of devices runs beside others, and at its bound if it is guaranteed."""
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
        self._kinds[host.seq] = kind
        self._alone.setdefault(guaranteed.seq, self._speed.on_type(guaranteed.job, kind))
        both = (self._speed.beside(live.job, host.job, kind), self._speed.beside(host.job, live.job, kind))
        return (busy,) if busy < self._params.busy and min(both) > 0 else None

    def again_s(self, waiting: LiveJob, now_s: float) -> float:
        """When a guaranteed job has waited for long enough to run without its guarantee."""
        due_s = waiting.since_s + self._params.patience_s
        return due_s if _is_guaranteed(waiting) and due_s > now_s else math.inf

    def parts(self, jobs: Sequence[LiveJob], now_s: float, room: int) -> Sequence[int]:
        """As much for the opportunistic job as the other can bear, at most half."""
        if len(jobs) == 1:
            return [WHOLE]
        lesser = self._lesser(jobs)
        part = self._parts.get(lesser.seq, _PROBE)
        return [part if live is lesser else WHOLE - part for live in jobs]

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

    def saw(self, live: LiveJob, mates: Sequence[LiveJob], now_s: float) -> None:
        """Correct the part of the opportunistic job by what the guaranteed one loses."""
        if not mates:
            self._alone[live.seq] = live.rate
            self._parts.pop(live.seq, None)
            self._capped.discard(live.seq)
            self._lent.discard(live.seq)
            return
        mate = mates[0]
        if self._lesser([live, mate]) is live or not is_settled(mate) or mate.placement is None:
            return
        alone = self._alone.get(live.seq, live.nominal_rate)
        loss, allowed = 1.0 - live.rate / alone if alone > 0 else 0.0, 1.0 - self._params.guard
        part = mate.placement[0].milli
        bearable = _HALF if loss * _HALF <= allowed * part else int(part * allowed / loss)
        if loss > allowed + 1e-9:
            self._capped.add(mate.seq)
        elif bearable > part and mate.seq not in self._capped:
            bearable = min(bearable, self._foreseen(live, mate))
        else:
            return
        self._parts[mate.seq] = min(max(bearable, 1), _HALF)

    def _foreseen(self, live: LiveJob, mate: LiveJob) -> int:
        """The most that the other may have by what is known of speeds, before it is tried."""
        kind = self._kinds.get(live.seq) or self._kinds.get(mate.seq)
        if kind is None:
            return _HALF
        least = self._params.guard * self._speed.on_type(live.job, kind)
        slows = range(1, _HALF + 1)
        return bisect_right(slows, 0, key=lambda milli: self._beside(live.job, mate.job, milli, kind) < least - 1e-9)

    def _beside(self, job: Job, other: Job, milli: int, kind: DeviceType) -> float:
        return self._speed.among(job, 1.0, [(other, milli / _HALF)], kind)

    def mover(self, jobs: Sequence[LiveJob], *, somebody_waits: bool) -> LiveJob | None:
        """A job that runs without the guarantee that it has."""
        return next((live for live in jobs if live.seq in self._lent), None)

    def left(self, live: LiveJob) -> None:
        """Forget it."""
        for known in (self._alone, self._parts, self._kinds):
            known.pop(live.seq, None)
        self._capped.discard(live.seq)
        self._lent.discard(live.seq)

    def yields(self, live: LiveJob, holders: Sequence[LiveJob]) -> Sequence[LiveJob]:
        """Opportunistic jobs make room for a guaranteed one that can't run beside any, the youngest first."""
        if not _is_guaranteed(live):
            return ()
        return sorted((each for each in holders if not _is_guaranteed(each)), key=lambda each: -each.seq)

    @property
    def memory(self) -> Any:
        """Speeds seen, parts, on what devices, and who has no guarantee for now."""
        return {
            "alone": list(self._alone.items()),
            "parts": list(self._parts.items()),
            "kinds": list(self._kinds.items()),
            "lent": sorted(self._lent),
            "capped": sorted(self._capped),
        }

    def recall(self, memory: Any, jobs: dict[int, LiveJob]) -> None:
        """Take them up."""
        self._alone, self._parts = dict(memory["alone"]), dict(memory["parts"])
        self._kinds, self._lent = dict(memory.get("kinds", ())), set(memory.get("lent", ()))
        self._capped = set(memory.get("capped", ()))


def _is_guaranteed(live: LiveJob) -> bool:
    return live.job.priority > OPPORTUNISTIC


antman = sharing(
    "antman",
    AntMan,
    cites="Xiao et al., OSDI 2020",
    summary="Opportunistic jobs (priority -1) run beside guaranteed ones, held back so that these keep their speed.",
    params=AntManParams,
    differs=(
        "at most one opportunistic job runs beside a guaranteed one; a job is never larger than what it asked for, so "
        "that there are no bursts of memory; and guaranteed jobs keep their guarantee unless `patience_s` is given. "
        "The bound is against those on the same devices: who only shares the node is not held back, and where speeds "
        "are estimates it is as good as they are. Jobs that asked for parts of devices have them as asked, "
        "several guaranteed ones on a device too, but only beside such as leave every guaranteed one its speed "
        "by what is known; consolidation leaves them in place."
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
)
