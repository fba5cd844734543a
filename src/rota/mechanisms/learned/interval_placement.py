"""A policy whose jobs go, at each interval, where a chooser says: another policy says who starts, the chooser where."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from rota.core.engine.draft import Draft
from rota.core.engine.protocols import Capabilities, Changes, Policy
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.mechanisms.learned.server_arrays import Chosen, ServerArrays, as_placement, counted
from rota.mechanisms.network.batch_placement import is_movable

_SLACK_S = 1e-6
_BY_HEURISTIC = Reason(code=ReasonCode.BY_HEURISTIC)


class Chooser(Protocol):
    """Says where the tasks of a job go."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of jobs that it tells apart."""

    def choose(self, room: ServerArrays, live: LiveJob, now_s: float) -> Chosen | None:
        """Tasks by role and node; None if it finds no place. The room is left as it was."""

    def seen(self, running: dict[int, LiveJob], now_s: float) -> None:
        """What runs now, before a batch is placed."""


def by_arrival(live: LiveJob) -> float:
    """Who came first."""
    return live.seq


class IntervalPlacement:
    """Places the batch of jobs that start at the end of each interval; what was placed is never moved."""

    def __init__(
        self,
        inner: Policy,
        chooser: Chooser,
        interval_s: float,
        *,
        says_so: bool = False,
        first: Callable[[LiveJob], float] = by_arrival,
    ) -> None:
        """With `says_so`, the journal has a reason for each job that the chooser did not place. Jobs of a batch are
        placed in the order of `first`."""
        self._says_so = says_so
        self._first = first
        self._inner = inner
        self._chooser = chooser
        self._interval_s = interval_s
        self._running: dict[int, LiveJob] = {}
        self._due_s = math.inf

    def use(self, chooser: Chooser) -> None:
        """From the next batch on, another chooser says where jobs go."""
        self._chooser = chooser

    @property
    def capabilities(self) -> Capabilities:
        """Those of the policy inside."""
        return self._inner.capabilities

    @property
    def wakeup_s(self) -> float:
        """At the end of the interval if anything is to be done then, or as the other policy wants."""
        return self._due_s if self._interval_s else self._inner.wakeup_s

    @property
    def memory(self) -> Any:
        """What the other policy remembers."""
        return self._inner.memory

    def note(self, changes: Changes, now_s: float) -> None:
        """Tell the other policy; remember who runs, and that something is due."""
        self._inner.note(changes, now_s)
        for live in changes.started:
            self._running[live.seq] = live
        for live in (*changes.left, *changes.arrived):
            self._running.pop(live.seq, None)
        if changes.arrived or changes.left or changes.freed or changes.lapsed:
            self._due_s = min(self._due_s, self._boundary_s(now_s))

    def adopt(self, state: State) -> None:
        """Tell the other policy, and find out who runs."""
        self._inner.adopt(state)
        self._running = {live.seq: live for live in state.jobs.values() if live.placement is not None}
        self._due_s = self._boundary_s(state.now_s)

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """As the other policy does, but for jobs that only wait for the end of the interval."""
        if draft.now_s < self._due_s < math.inf and not isinstance(draft.offer(waiting), Reason):
            return Reason(code=ReasonCode.ROUND)
        return self._inner.explain(waiting, draft)

    def plan(self, draft: Draft) -> None:
        """Who starts, then where; nothing before the interval is over."""
        if self._interval_s and draft.now_s < self._due_s - _SLACK_S:
            return
        self._due_s = math.inf
        self._inner.plan(draft)
        if self._interval_s and self._inner.wakeup_s < math.inf:
            self._due_s = self._boundary_s(self._inner.wakeup_s)
        new = [live for live, before in draft.touched.items() if before is None and live.placement is not None]
        starting = sorted(
            (live for live in new if is_movable(live.job)), key=lambda live: (self._first(live), live.seq)
        )
        if starting:
            self._chooser.seen(self._running, draft.now_s)
            self._place(draft, starting)
        if self._says_so:
            for live in new:
                if not is_movable(live.job):
                    draft.because(live, _BY_HEURISTIC)
        self._running.update({live.seq: live for live in draft.touched if live.placement is not None})

    def _place(self, draft: Draft, starting: list[LiveJob]) -> None:
        """One job after the other; where the chooser finds no place, the allocator's offer stands, or the job waits."""
        offers = {live: live.placement or () for live in starting}
        for live in starting:
            draft.release(live)
        room = ServerArrays(draft.inventory, self._chooser.kinds)
        room.populate(self._running.values())
        for live in starting:
            room.confine(live.job, offers[live])
            placement = self._choice(draft, room, live)
            if placement is None:
                self._inner.note(Changes(arrived=[live]), draft.now_s)
                continue
            draft.assign(live, placement)
            room.add(live.job, counted(placement))

    def _choice(self, draft: Draft, room: ServerArrays, live: LiveJob) -> Placement | None:
        chosen = self._chooser.choose(room, live, draft.now_s)
        placement = None if chosen is None else as_placement(draft.inventory, live.job, chosen)
        if placement is None:
            offered = draft.offer(live)
            placement = None if isinstance(offered, Reason) else offered
            if placement is not None and self._says_so:
                draft.because(live, _BY_HEURISTIC)
        return placement

    def _boundary_s(self, now_s: float) -> float:
        """The first end of an interval that is not before now."""
        if not self._interval_s:
            return now_s
        return math.ceil(now_s / self._interval_s - 1e-9) * self._interval_s
