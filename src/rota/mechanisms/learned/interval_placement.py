"""Wrapper of a policy that places, at each interval, the jobs the inner policy starts where a chooser decides."""

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
    """Decides where the tasks of a job go."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of jobs that it distinguishes."""

    def choose(self, arrays: ServerArrays, live: LiveJob, now_s: float) -> Chosen | None:
        """Return tasks by role and node; None if there is no place. The server arrays are restored."""

    def observe(self, running: dict[int, LiveJob], now_s: float) -> None:
        """Observe the running jobs before a batch is placed."""


def by_arrival(live: LiveJob) -> float:
    """Order of submission."""
    return live.seq


class IntervalPlacement:
    """Policy that places the batch of jobs that start at the end of each interval; placed jobs never move."""

    def __init__(
        self,
        inner: Policy,
        chooser: Chooser,
        interval_s: float,
        *,
        records_reasons: bool = False,
        first: Callable[[LiveJob], float] = by_arrival,
    ) -> None:
        """Wrap a policy.

        With `records_reasons`, the journal has a reason for each job that the chooser did not place. Jobs of a batch
        are placed in the order of `first`.
        """
        self._records_reasons = records_reasons
        self._first = first
        self._inner = inner
        self._chooser = chooser
        self._interval_s = interval_s
        self._running: dict[int, LiveJob] = {}
        self._due_s = math.inf

    def use(self, chooser: Chooser) -> None:
        """Use another chooser from the next batch on."""
        self._chooser = chooser

    @property
    def capabilities(self) -> Capabilities:
        """Those of the policy inside."""
        return self._inner.capabilities

    @property
    def wakeup_s(self) -> float:
        """The end of the interval if work is due then, or the wake-up time of the inner policy."""
        return self._due_s if self._interval_s else self._inner.wakeup_s

    @property
    def memory(self) -> Any:
        """The memory of the inner policy."""
        return self._inner.memory

    def note(self, changes: Changes, now_s: float) -> None:
        """Forward to the inner policy; index running jobs and mark work as due."""
        self._inner.note(changes, now_s)
        for live in changes.started:
            self._running[live.seq] = live
        for live in (*changes.left, *changes.arrived):
            self._running.pop(live.seq, None)
        if changes.arrived or changes.left or changes.freed or changes.lapsed:
            self._due_s = min(self._due_s, self._boundary_s(now_s))

    def adopt(self, state: State) -> None:
        """Forward to the inner policy, and index running jobs."""
        self._inner.adopt(state)
        self._running = {live.seq: live for live in state.jobs.values() if live.placement is not None}
        self._due_s = self._boundary_s(state.now_s)

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """Explain as the inner policy does, except for jobs that only wait for the end of the interval."""
        if draft.now_s < self._due_s < math.inf and not isinstance(draft.offer(waiting), Reason):
            return Reason(code=ReasonCode.ROUND)
        return self._inner.explain(waiting, draft)

    def plan(self, draft: Draft) -> None:
        """Let the inner policy select jobs at the end of an interval, then place them by the chooser."""
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
            self._chooser.observe(self._running, draft.now_s)
            self._place(draft, starting)
        if self._records_reasons:
            for live in new:
                if not is_movable(live.job):
                    draft.because(live, _BY_HEURISTIC)
        self._running.update({live.seq: live for live in draft.touched if live.placement is not None})

    def _place(self, draft: Draft, starting: list[LiveJob]) -> None:
        """Place jobs one by one; without a choice, take the allocator's offer or let the job wait."""
        offers = {live: live.placement or () for live in starting}
        for live in starting:
            draft.release(live)
        arrays = ServerArrays(draft.inventory, self._chooser.kinds)
        arrays.populate(self._running.values())
        for live in starting:
            arrays.confine(live.job, offers[live])
            placement = self._choice(draft, arrays, live)
            if placement is None:
                self._inner.note(Changes(arrived=[live]), draft.now_s)
                continue
            draft.assign(live, placement)
            arrays.add(live.job, counted(placement))

    def _choice(self, draft: Draft, arrays: ServerArrays, live: LiveJob) -> Placement | None:
        chosen = self._chooser.choose(arrays, live, draft.now_s)
        placement = None if chosen is None else as_placement(draft.inventory, live.job, chosen)
        if placement is None:
            offered = draft.offer(live)
            placement = None if isinstance(offered, Reason) else offered
            if placement is not None and self._records_reasons:
                draft.because(live, _BY_HEURISTIC)
        return placement

    def _boundary_s(self, now_s: float) -> float:
        """Return the first end of an interval that is not before now."""
        if not self._interval_s:
            return now_s
        return math.ceil(now_s / self._interval_s - 1e-9) * self._interval_s
