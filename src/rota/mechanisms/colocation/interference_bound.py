"""Bounds on the interference that guaranteed jobs tolerate from neighbours that can be throttled.

A guaranteed job keeps a fraction of the speed it would have without these neighbours. That baseline is never estimated:
it is observed without them, or while all of them are paused. Then the speed model predicts how much the neighbours may
do, and they are throttled further as soon as the observed loss exceeds the bound.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

from rota.core.model.job import WHOLE, DeviceType, Job, Role
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.groups import DeviceSet
from rota.mechanisms.colocation.pair_placement import HALF
from rota.perf.speed.model import SpeedModel
from rota.perf.speed.throttling import PAUSED, duty, left_by

_FURTHER = 0.75
"""Factor by which a level is lowered at least when it is too high for the second time."""
_SLACK = 1e-9


class ThrottledNeighbour(NamedTuple):
    """A job near a guaranteed one that can be throttled, and whether they share devices."""

    live: LiveJob
    on_devices: bool


@dataclass(slots=True)
class InterferenceBound:
    """What a guaranteed job tolerates on its devices, next to other guaranteed jobs (`peers`)."""

    where: DeviceSet
    peers: tuple[int, ...]
    around: tuple[int, ...] = ()
    """The throttled neighbours of the last observation."""
    clear: float | None = None
    """Its observed speed without interference from these neighbours."""
    level: int = PAUSED
    """Thousandths of a device that each neighbour may hold; with half of one it runs unthrottled."""
    was_lowered: bool = False


class InterferenceBounds:
    """The bounds of all guaranteed jobs."""

    def __init__(self, speed: SpeedModel, guard: float) -> None:
        self._speed = speed
        self._guard = guard
        self._of: dict[int, InterferenceBound] = {}

    def level(self, live: LiveJob, other: LiveJob) -> int:
        """Return what a neighbour of a guaranteed job may hold; it is paused until both were observed together."""
        known = self._of.get(live.seq)
        return known.level if known is not None and other.seq in known.around else PAUSED

    def observe(
        self,
        live: LiveJob,
        others: Sequence[ThrottledNeighbour],
        where: DeviceSet,
        peers: tuple[int, ...],
        kind: DeviceType | None,
    ) -> bool:
        """Record the present speed of a guaranteed job; return whether its neighbours need other fractions."""
        known = self._of.get(live.seq)
        if known is None or (known.where, known.peers) != (where, peers):
            known = self._of[live.seq] = InterferenceBound(where, peers)
        before = (known.level, known.around)
        around = tuple(sorted(other.live.seq for other in others))
        is_new = known.clear is None or around != known.around
        if all(other.live.is_settled and _is_paused(other.live) for other in others):
            known.clear = live.rate
        if known.clear is not None and is_new:
            known.level, known.was_lowered = self._predicted(live.job, others, kind), False
        if known.clear is not None and all(other.live.is_settled for other in others):
            self._lower(known, live.rate, others)
        known.around = around
        return (known.level, known.around) != before

    def _lower(self, known: InterferenceBound, rate: float, others: Sequence[ThrottledNeighbour]) -> None:
        """Lower the level of all neighbours if the observed loss exceeds the bound."""
        loss, allowed = 1.0 - rate / known.clear if known.clear else 0.0, 1.0 - self._guard
        if loss > allowed + _SLACK:
            less = min(allowed / loss, _FURTHER) if known.was_lowered else allowed / loss
            level = int(max(map(_duty, others)) * HALF * less)
            known.level, known.was_lowered = max(min(known.level, level), PAUSED), True

    def _predicted(self, job: Job, others: Sequence[ThrottledNeighbour], kind: DeviceType | None) -> int:
        """Return the highest level at which the speed model predicts that the job keeps its bound."""
        levels = range(PAUSED, HALF + 1)

        def is_slow(level: int) -> bool:
            return self._kept(job, [(other, level / HALF) for other in others], kind) < self._guard - _SLACK

        return max(bisect_right(levels, 0, key=is_slow), PAUSED)

    def _kept(self, job: Job, duties: Sequence[tuple[ThrottledNeighbour, float]], kind: DeviceType | None) -> float:
        """Return the predicted fraction of its speed that a job keeps while its neighbours run at these duty cycles."""
        left = left_by(self._speed.node_neighbour, (part for other, part in duties if not other.on_devices))
        mates = [(other.live.job, part) for other, part in duties if other.on_devices]
        alone = 0.0 if kind is None else self._speed.on_type(job, kind)
        return left * self._speed.among(job, 1.0, mates, kind) / alone if kind is not None and alone > 0 else left

    def forget(self, live: LiveJob) -> None:
        """Drop the bound of a job that has ended."""
        self._of.pop(live.seq, None)

    @property
    def memory(self) -> Any:
        """All bounds, as a serialisable value."""
        return [(seq, *astuple(known)) for seq, known in self._of.items()]

    def recall(self, memory: Any) -> None:
        """Restore what `memory` returned."""
        self._of = {
            seq: InterferenceBound(tuple((node, mask) for node, mask in where), tuple(peers), tuple(around), *rest)
            for seq, where, peers, around, *rest in memory
        }


def throttled(job: Job, placement: Placement, level: int) -> Placement:
    """Return the same devices with the fractions that a job holds when throttled to that level."""

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
    return live.placement is not None and throttled(live.job, live.placement, PAUSED) == live.placement
