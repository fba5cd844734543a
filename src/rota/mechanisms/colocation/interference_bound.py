"""How much jobs with a guarantee bear of others around them that can be held back.

A job keeps a part of the speed that it would have if none of those were there. That speed is never guessed: it is what
was seen without them, or while all of them paused. From there on they have what should be bearable by what is known of
speeds, and less as soon as it is seen not to be.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

from rota.core.model.job import WHOLE, DeviceType, Job, Role
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.groups import DeviceSet, is_settled
from rota.mechanisms.colocation.pair_placement import HALF
from rota.perf.speed.model import SpeedModel
from rota.perf.speed.throttling import PAUSED, duty, left_by

_LESS_AGAIN = 0.75
"""What is left of a level that is still too much after it was lowered once."""
_SLACK = 1e-9


class ThrottledNeighbour(NamedTuple):
    """Somebody around a job who can be held back, and whether they have devices in common."""

    live: LiveJob
    on_devices: bool


@dataclass(slots=True)
class InterferenceBound:
    """What a job bears where it is, beside others that have a guarantee too (`peers`)."""

    where: DeviceSet
    peers: tuple[int, ...]
    around: tuple[int, ...] = ()
    """The others, as it was last seen with them."""
    clear: float | None = None
    """Its speed if none of them were there, as seen."""
    level: int = PAUSED
    """Thousandths of a device that each of them may have; with half of one they do all of their work."""
    was_lowered: bool = False


class InterferenceBounds:
    """What each of the jobs that have a guarantee bears."""

    def __init__(self, speed: SpeedModel, guard: float) -> None:
        self._speed = speed
        self._guard = guard
        self._of: dict[int, InterferenceBound] = {}

    def level(self, live: LiveJob, other: LiveJob) -> int:
        """What somebody may have who is around a job: nothing as long as the two were not seen together."""
        known = self._of.get(live.seq)
        return known.level if known is not None and other.seq in known.around else PAUSED

    def look(
        self,
        live: LiveJob,
        others: Sequence[ThrottledNeighbour],
        where: DeviceSet,
        peers: tuple[int, ...],
        kind: DeviceType | None,
    ) -> bool:
        """A job is seen to run at its present speed among others; whether they should have other parts for that."""
        known = self._of.get(live.seq)
        if known is None or (known.where, known.peers) != (where, peers):
            known = self._of[live.seq] = InterferenceBound(where, peers)
        before = (known.level, known.around)
        around = tuple(sorted(other.live.seq for other in others))
        is_new = known.clear is None or around != known.around
        if all(is_settled(other.live) and _is_paused(other.live) for other in others):
            known.clear = live.rate
        if known.clear is not None and is_new:
            known.level, known.was_lowered = self._foreseen(live.job, others, kind), False
        if known.clear is not None and all(is_settled(other.live) for other in others):
            self._lower(known, live.rate, others)
        known.around = around
        return (known.level, known.around) != before

    def _lower(self, known: InterferenceBound, rate: float, others: Sequence[ThrottledNeighbour]) -> None:
        """Less for all of them than they have, if that is seen to be too much."""
        loss, allowed = 1.0 - rate / known.clear if known.clear else 0.0, 1.0 - self._guard
        if loss > allowed + _SLACK:
            less = min(allowed / loss, _LESS_AGAIN) if known.was_lowered else allowed / loss
            level = int(max(map(_duty, others)) * HALF * less)
            known.level, known.was_lowered = max(min(known.level, level), PAUSED), True

    def _foreseen(self, job: Job, others: Sequence[ThrottledNeighbour], kind: DeviceType | None) -> int:
        """The most that all may have by what is known of speeds, before it is tried."""
        levels = range(PAUSED, HALF + 1)

        def is_slow(level: int) -> bool:
            return self._kept(job, [(other, level / HALF) for other in others], kind) < self._guard - _SLACK

        return max(bisect_right(levels, 0, key=is_slow), PAUSED)

    def _kept(self, job: Job, duties: Sequence[tuple[ThrottledNeighbour, float]], kind: DeviceType | None) -> float:
        """The part of its speed that a job keeps beside others that do a part of their work."""
        left = left_by(self._speed.node_neighbour, (part for other, part in duties if not other.on_devices))
        mates = [(other.live.job, part) for other, part in duties if other.on_devices]
        alone = 0.0 if kind is None else self._speed.on_type(job, kind)
        return left * self._speed.among(job, 1.0, mates, kind) / alone if kind is not None and alone > 0 else left

    def forget(self, live: LiveJob) -> None:
        """A job is gone."""
        self._of.pop(live.seq, None)

    @property
    def memory(self) -> Any:
        """All of it, as a serialisable value."""
        return [(seq, *astuple(known)) for seq, known in self._of.items()]

    def recall(self, memory: Any) -> None:
        """Take it up."""
        self._of = {
            seq: InterferenceBound(tuple((node, mask) for node, mask in where), tuple(peers), tuple(around), *rest)
            for seq, where, peers, around, *rest in memory
        }


def held_back(job: Job, placement: Placement, level: int) -> Placement:
    """The same devices, with what a job holds of them if it may have no more than that level lets it do."""

    def milli(role: Role, tasks: int) -> int:
        if level >= HALF:
            return min(role.device_milli * tasks, WHOLE)
        return max(role.device_milli * tasks * level // HALF, PAUSED) if role.is_fraction else level

    roles = job.roles
    return tuple(
        slot._replace(milli=milli(roles[slot.role], slot.tasks)) if slot.devices else slot for slot in placement
    )


def _duty(other: ThrottledNeighbour) -> float:
    return duty(other.live.job, other.live.placement or ())


def _is_paused(live: LiveJob) -> bool:
    return live.placement is not None and held_back(live.job, live.placement, PAUSED) == live.placement
