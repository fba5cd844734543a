"""Sharing of devices under Rota's own policy: a job joins one of equal size if the pair is measured to gain.

Waiting jobs are served by level, and running jobs of higher levels give way, as without sharing. A job that finds
no free devices runs beside the job with which both together are fastest, before it displaces any.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rota.core.model.job import WHOLE, DeviceType, Job
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.groups import DeviceGroups
from rota.mechanisms.colocation.rule import DefaultColocationRule
from rota.mechanisms.ordering.rule import Turn
from rota.perf.speed.model import SpeedModel
from rota.policies.own.order import ServiceOrder

GAINS = 1.2
"""The least sum of the relative speeds of two jobs that share devices."""
SLOWEST = 0.5
"""The least relative speed of each of them."""


class LevelSharing(DefaultColocationRule):
    """Levels decide which job is served and which gives way; measured speeds decide which jobs share devices."""

    def __init__(self, order: ServiceOrder, speed: SpeedModel) -> None:
        self._order = order
        self._speed = speed
        self._running: dict[LiveJob, None] = {}
        self._waiting: dict[LiveJob, tuple[tuple[Job, float, int], Turn]] = {}
        """Places of waiting jobs, each with the request, the start of the wait and the changes that it is for."""
        self._now_s = -math.inf
        self._next: tuple[float, float] = (-math.inf, math.inf)
        """When the next change of a running job's place was looked for, and that change."""

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """Return the place of a waiting job, which stays while it waits unchanged."""
        self._now_s = now_s
        case = (live.job, live.since_s, self._order.changes)
        known = self._waiting.get(live)
        if known is not None and known[0] == case and now_s < known[1].until_s:
            return known[1].key
        turn = self._turn(live, now_s)
        self._waiting[live] = (case, turn)
        return turn.key

    def admit(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """Admit a job to one other of its size if both were measured together and gain."""
        (host, *others) = hosts
        if others or live.gpu_milli != host.gpu_milli:
            return None
        own, its = self._together(live.job, host.job, kind), self._together(host.job, live.job, kind)
        if own is None or its is None or min(own, its) < SLOWEST or own + its < GAINS:
            return None
        return (-(own + its),)

    def _together(self, job: Job, other: Job, kind: DeviceType) -> float | None:
        """Return the measured speed of a job beside another, relative to that alone; None if it was not measured."""
        profiles = self._speed.profiles
        if profiles is None or job.model is None or other.model is None:
            return None
        if profiles.beside(kind, job.model, other.model, max(job.gpu_milli // WHOLE, 1)) is None:
            return None
        alone = self._speed.on_type(job, kind)
        return self._speed.beside(job, other, kind) / alone if alone > 0 else None

    def victims(self, live: LiveJob, holders: Sequence[LiveJob]) -> Sequence[LiveJob]:
        """Return the running jobs further down the order, the last first."""
        now_s = self._now_s
        key = self.order(live, now_s)
        behind = [(self._turn(each, now_s).key, each) for each in holders]
        return [each for place, each in sorted(behind, key=lambda pair: pair[0], reverse=True) if place > key]

    def next_admission_s(self, waiting: LiveJob, now_s: float) -> float:
        """Return when the place of a running job changes next, which may make it give way."""
        self._look(now_s)
        return self._next[1]

    def _look(self, now_s: float) -> None:
        if self._next[0] == now_s:
            return
        self._running = {live: None for live in self._running if live.holds and not live.state.is_final}
        self._next = (now_s, min((self._turn(live, now_s).until_s for live in self._running), default=math.inf))

    def observe(self, live: LiveJob, groups: DeviceGroups) -> Iterable[LiveJob]:
        """Follow a job that runs."""
        self._running[live] = None
        self._waiting.pop(live, None)
        self._next = (-math.inf, math.inf)
        return ()

    def forget(self, live: LiveJob) -> None:
        """Learn from a job that ended."""
        self._running.pop(live, None)
        self._waiting.pop(live, None)
        self._order.ended(live, live.ended_s or 0.0)

    def _turn(self, live: LiveJob, now_s: float) -> Turn:
        turn = self._order.turn(live, now_s)
        live.remember(turn.memo)
        return turn
