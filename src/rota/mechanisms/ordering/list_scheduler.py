"""One list scheduler for every ordering policy, with backfill, reservations and preemption.

The result is that of a simple walk: consider all jobs in order, give each what it needs if that much is left, skip
those that do not fit (or end the walk there), and preempt the running jobs that were not reached. The walk is avoided:
equivalent waiting jobs share a lane, of which only the first can matter; after an arrival only lanes with a new first
job are considered; and keys that change with time do so along slopes, without being computed again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final

from rota.core.engine.draft import Draft
from rota.core.engine.protocols import Allocator, Capabilities, Changes
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import JobState
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.mechanisms.ordering.easy_reservation import Reservation
from rota.mechanisms.ordering.index import Index
from rota.mechanisms.ordering.lane_walk import Walk
from rota.mechanisms.ordering.lanes import Lane
from rota.mechanisms.ordering.node_yields import Key
from rota.mechanisms.ordering.planned_backfill import PlannedBackfill
from rota.mechanisms.ordering.refusals import is_recorded, is_refused, is_short, looks_at_nodes
from rota.mechanisms.ordering.rule import Backfill, OrderingRule

_BUSY: Final = ReasonCode.DEVICES_BUSY  # compiled, a member of an enum costs a search in its class each time
_LASTING = frozenset({ReasonCode.NO_SUCH_TYPE, ReasonCode.NEVER_FITS, ReasonCode.MEMORY_TOO_SMALL})
"""Obstacles that remain when a job is first in order."""


class ListScheduler:
    """The policy that an ordering rule makes."""

    capabilities = Capabilities(asks_guard=True, spares_others=True)

    def __init__(self, rule: OrderingRule, allocator: Allocator) -> None:
        self._rule = rule
        self._allocator = allocator
        self._index = Index(rule, allocator)
        self._reservations: dict[Hashable, Reservation] = {}
        """By quota scope, the reservation of its first job that does not fit."""
        self._planned = None if rule.planning is None else PlannedBackfill(rule.planning)
        self._refused: list[tuple[Key, Lane]] = []
        """Lanes that were left out of the present walk, with their keys."""

    @property
    def wakeup_s(self) -> float:
        """The next moment at which some job's key or locality changes, or jobs may pass others."""
        change_s = self._index.next_change_s
        return change_s if self._planned is None else min(change_s, self._planned.wakeup_s)

    @property
    def is_waited_for(self) -> bool:
        """Whether a job waits: if none does, a key that changes decides nothing until one arrives."""
        return self._index.waiting > 0

    @property
    def memory(self) -> Any:
        """What the rule has learned."""
        return self._rule.memory

    def adopt(self, state: State) -> None:
        """Rebuild the index from a state."""
        index = self._index = Index(self._rule, self._allocator)
        if self._rule.groups is not None:
            self._rule.groups.open(state.past)
        for live in state.jobs.values():
            if live.placement is not None:
                index.unkeyed[live] = None
                index.hold(live, state.inventory, state.now_s, resumes=True)
                if live.run_since_s is not None:  # its key may change before the next plan, which looks again
                    index.key_holder(live, state.now_s)
                    index.unkeyed[live] = None
            elif live.is_contending:
                index.enqueue(live, state.now_s)
        if self._planned is not None:
            self._planned.adopt(state.now_s)

    def note(self, changes: Changes, now_s: float) -> None:
        """Update the index."""
        index = self._index
        relearn = False
        for live in changes.left:
            index.drop(live, now_s)
            if live.state.is_final:
                relearn |= self._rule.ended(live, now_s)
        for live in changes.started:
            if live.placement is not None:
                index.key_holder(live, now_s)
        for live in changes.arrived:
            if live.state is JobState.WAITING and live.placement is None and live not in index.places:
                index.enqueue(live, now_s)
        if changes.freed:
            index.look_at_all = True
        if relearn:
            index.rekey_all(now_s)

    def rank_again(self, jobs: Iterable[LiveJob], now_s: float) -> None:
        """Compute the keys of some jobs again, those that wait or hold devices."""
        for live in jobs:
            self._index.rekey(live, now_s)

    def plan(self, draft: Draft) -> None:
        """Write into the draft which jobs start and which are preempted."""
        index = self._index
        if index.unkeyed:
            for live in list(index.unkeyed):
                index.key_holder(live, draft.now_s)
        index.fire(draft.now_s)
        index.begin_walk(draft.inventory)
        if self._planned is not None:
            self._planned.plan(index, draft)
            return
        index.looks_at_nodes = looks_at_nodes(index)
        lanes: Iterable[Lane] = index.fresh
        if index.scattered and not self._rule.preempts:
            lanes = {**index.fresh, **index.scattered}
        if index.look_at_all or index.drifts or self._rule.backfill is Backfill.EASY:
            lanes = index.occupied
        chosen = self._considered(lanes, draft)
        index.fresh = {}
        index.look_at_all = False
        self._reservations = {}
        if chosen:
            self._reservations = Walk(self._rule, index, draft, chosen, self._refused).run()
        if index.again:
            index.key_again()

    def _considered(self, lanes: Iterable[Lane], draft: Draft) -> dict[Key, Lane]:
        """Lanes whose first job may fit, on free devices or by preemption, or has no reason recorded yet.

        Those that are refused as things are, for a reason that is recorded, are left for when something has changed.
        """
        index, now_s = self._index, draft.now_s
        preempts = self._rule.preempts
        last = index.holders.last_key(now_s) if preempts else None
        is_easy = self._rule.backfill is Backfill.EASY
        chosen: dict[Key, Lane] = {}
        self._refused = []
        for lane in lanes:
            if not len(lane):
                continue
            key = index.rank(lane, now_s)
            head = lane.head[1]
            short = is_short(lane, head, draft)
            if is_easy or head.wait_code is not _BUSY or (last is not None and key < last) or not short:
                if is_refused(lane, key, index, draft, preempts=preempts) and is_recorded(lane, head, is_short=short):
                    self._refused.append((key, lane))
                else:
                    chosen[key] = lane
        return chosen

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """Why a waiting job was passed over."""
        place = self._index.places.get(waiting)
        if place is None or place.lane is None:
            return Reason(code=ReasonCode.NOT_CONSIDERED)
        head = place.lane.head[1]
        answer = draft.offer(waiting)
        is_behind = self._rule.backfill is Backfill.NONE and head is not waiting
        if isinstance(answer, Reason) and (not is_behind or answer.code in _LASTING):
            return answer
        if is_behind:
            return Reason(code=ReasonCode.BEHIND, job=head.job.id)
        reservation = self._reservations.get(draft.allocator.quota_scope(waiting))
        if reservation is not None:
            return reservation.reason()
        if self._planned is not None and not isinstance(answer, Reason):
            return self._planned.reason(waiting, answer, draft.now_s)
        return Reason(code=ReasonCode.NOT_CONSIDERED)
