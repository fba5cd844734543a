"""Reservations in a forward run: the same rules as in the live loop, at the moments that the run reaches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from rota.core.engine.engine import Engine
from rota.core.messages.events import Event
from rota.core.model.job import Job, JobId
from rota.core.state.state import State
from rota.live.reservations.enforcement import Enforcement
from rota.live.reservations.reservation import NodeReservation, limited_by

LEAST_S = 0.25
"""Between two looks, at least, as in the live loop."""


class ForeseenReservations(Enforcement):
    """The reservations of one forward run."""

    def __init__(
        self,
        reservations: Sequence[NodeReservation],
        engine: Engine,
        shift_s: float,
        time_limits: Mapping[JobId, float] | None = None,
    ) -> None:
        """`shift_s` is how far the wall clock is ahead of the engine's; `time_limits` those that jobs do not state."""
        self._time_limits = time_limits or {}
        super().__init__(())
        self._to_come = sorted(reservations, key=lambda each: -each.made_s)
        self._engine = engine
        self._shift_s = shift_s
        self._now_s = engine.state.now_s
        self._due_s = self._next_made_s
        self._looked_s = -math.inf

    @property
    def due_s(self) -> float:
        """The next moment of the engine's clock at which something changes by itself; infinite after the last."""
        due_s = max(self._due_s, self._looked_s + LEAST_S) if self._kept else self._next_made_s
        return due_s - self._shift_s

    @property
    def _next_made_s(self) -> float:
        return self._to_come[-1].made_s if self._to_come else math.inf

    def gated(self, now_s: float, events: Sequence[Event]) -> Sequence[Event]:
        """Return events of a moment, with what reservations do to the jobs in them."""
        self._now_s = now_s
        return self._gated(events, {}) if self._kept else events

    def look(self, now_s: float) -> Sequence[Event]:
        """Return what changes at a moment."""
        self._now_s = now_s
        while self._next_made_s <= self._wall_s():
            self._kept += (self._to_come.pop(),)
        found = self._wanted()
        self._due_s, self._looked_s = min(self._due_s, self._next_made_s), self._wall_s()
        self._kept = tuple(each for each in self._kept if each.until_s > self._wall_s())
        return found

    def _fit(self, job: Job, owner: str, ran_s: float) -> Job:
        limit_s = self._time_limits.get(job.id)
        if limit_s is None:
            return super()._fit(job, owner, ran_s)
        fit = super()._fit
        return limited_by(job, limit_s, lambda limited: fit(limited, owner, ran_s))

    def _look_again_s(self, now_s: float) -> float:
        """Never: in a forward run nothing changes unseen."""
        return math.inf

    @property
    def _state(self) -> State:
        return self._engine.state

    def _wall_s(self) -> float:
        return self._now_s + self._shift_s

    def _owner(self, job_id: JobId) -> str:
        live = self._engine.state.jobs.get(job_id)
        return "" if live is None else live.job.user


def foreseen(
    reservations: Sequence[NodeReservation], shift_s: float, time_limits: Mapping[JobId, float] | None = None
) -> Callable[[Engine], ForeseenReservations] | None:
    """Return what makes the reservations of forward runs; None if there are none."""
    if not reservations:
        return None
    return lambda engine: ForeseenReservations(reservations, engine, shift_s, time_limits)
