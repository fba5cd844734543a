"""One list scheduler for every ordering policy, with backfill, reservations and preemption.

The result is that of a simple walk: consider all jobs in order, give each what it needs if that much is left, skip
those that do not fit (or end the walk there), and preempt the running jobs that were not reached. The walk is avoided:
equivalent waiting jobs share a lane, of which only the first can matter; after an arrival only lanes with a new first
job are considered; and keys that change with time do so along slopes, without being computed again.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final

from rota.core.engine.draft import Draft
from rota.core.engine.protocols import Allocator, Capabilities, Changes
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import JobState
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.mechanisms.ordering.easy_reservation import Reservation
from rota.mechanisms.ordering.index import Index
from rota.mechanisms.ordering.lanes import Lane
from rota.mechanisms.ordering.named_victims import NamedVictims
from rota.mechanisms.ordering.node_yields import Key
from rota.mechanisms.ordering.planned_backfill import PlannedBackfill
from rota.mechanisms.ordering.planned_walk import give_way
from rota.mechanisms.ordering.refusals import is_refused, looks_at_nodes, may_keep, need_of, refuse, same_answer
from rota.mechanisms.ordering.rule import Backfill, OrderingRule
from rota.mechanisms.ordering.victim_search import RoomCheck, VictimSearch

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
        lanes: Iterable[Lane] = index.fresh
        if index.scattered and not self._rule.preempts:
            lanes = {**index.fresh, **index.scattered}
        if index.look_at_all or index.drifts or self._rule.backfill is Backfill.EASY:
            lanes = index.lanes.values()
        heap = self._considered(lanes, draft)
        index.fresh = {}
        index.look_at_all = False
        self._reservations = {}
        if heap:
            heapq.heapify(heap)
            self._reservations = _Walk(self._rule, index, draft, heap).run()
        if index.again:
            index.key_again()

    def _considered(self, lanes: Iterable[Lane], draft: Draft) -> list[tuple[Key, Lane]]:
        """Lanes whose first job may fit, on free devices or by preemption, or has no reason recorded yet."""
        index, inventory, now_s = self._index, draft.inventory, draft.now_s
        missing_milli = draft.allocator.shortage.milli
        last = index.holders.last_key(now_s) if self._rule.preempts else None
        is_easy = self._rule.backfill is Backfill.EASY
        chosen = []
        for lane in lanes:
            if not len(lane):
                continue
            key = index.rank(lane, now_s)
            head = lane.head[1]
            if (
                is_easy
                or head.wait_code is not _BUSY
                or (last is not None and key < last)
                or not missing_milli(head, inventory)
            ):
                chosen.append((key, lane))
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


class _Walk:
    """One walk down the order: the first jobs of lanes, and jobs that were preempted on the way."""

    __slots__ = ("_displaced", "_draft", "_heap", "_index", "_named", "_reservations", "_rule", "_spared", "_widened")

    def __init__(self, rule: OrderingRule, index: Index, draft: Draft, heap: list[tuple[Key, Lane]]) -> None:
        self._rule = rule
        self._index = index
        self._draft = draft
        self._heap: list[tuple[Key, Lane | LiveJob]] = list(heap)
        self._named = NamedVictims(draft, index)
        self._widened = False
        self._spared = False
        """Whether a job was passed over as a victim in the last attempt because it is protected for now."""
        self._displaced: dict[LiveJob, None] = {}
        """Jobs that were given devices in this walk and lost them again: they displace no job themselves, or the walk
        might not end where guarantees contradict each other."""
        self._reservations: dict[Hashable, Reservation] = {}

    def run(self) -> dict[Hashable, Reservation]:
        """Consider first jobs in order until none fits; return the reservations made, by quota scope."""
        try:
            return self._run()
        finally:
            self._named.forget()

    def _run(self) -> dict[Hashable, Reservation]:
        heap, index, draft = self._heap, self._index, self._draft
        has_groups, is_easy = self._rule.groups is not None, self._rule.backfill is Backfill.EASY
        while heap:
            key, candidate = heapq.heappop(heap)
            if isinstance(candidate, LiveJob):
                self._place_again(candidate)
                continue
            lane = candidate
            if self._reservations and self._is_backfilled(lane):
                continue
            if has_groups and (rank := index.rank(lane, draft.now_s)) != key:
                heapq.heappush(heap, (rank, lane))
                continue
            live = lane.head[1]
            answer = self._find_devices(lane, live, key)
            if answer is not None and not isinstance(answer, Reason):
                draft.assign_offered(live, answer)
                index.start(live, draft.inventory, draft.now_s)
                index.record_obstacle(lane, None, draft.now_s)
                if len(lane):
                    heapq.heappush(heap, (index.rank(lane, draft.now_s), lane))
                continue
            if answer is not None:
                draft.because(live, answer)
                index.record_obstacle(lane, answer.code, draft.now_s)
            if is_easy:
                self._backfill(live)
        return self._reservations

    def _find_devices(self, lane: Lane, live: LiveJob, key: Key) -> Placement | Reason | None:
        """Devices for the first job of a lane, free or preempted; else the reason, None if it is already recorded."""
        draft = self._draft
        self._named.before(live, key)
        if is_refused(lane, key, self._index, draft, preempts=self._rule.preempts):
            return same_answer(lane, draft)
        self._named.release_all()
        lane.refusals.clear()
        self._spared = False
        missing = draft.allocator.shortage.milli(live, draft.inventory)
        answer: Placement | Reason | None = None
        if not missing:
            answer = draft.offer(live)
            if not isinstance(answer, Reason):
                return answer
            placement = self._displace(live)
            if placement is not None:
                return placement
        if self._rule.preempts and live.job.preempts:
            placement = self._make_room(lane, live, key, missing)
            if placement is not None:
                return placement
        if not self._spared and may_keep(live, self._index, draft):
            refuse(lane, self._index, answer.code if isinstance(answer, Reason) else None)
        if answer is None and live.wait_code is not _BUSY:
            answer = draft.offer(live)
        return answer

    def _displace(self, live: LiveJob) -> Placement | None:
        """Devices of jobs that tenancy displaces, whatever their place in the order."""
        draft, index = self._draft, self._index
        is_spared = live in self._displaced or not live.job.preempts
        offer = None if is_spared else draft.allocator.displace(live, draft.inventory, draft.now_s)
        if offer is None:
            return None
        for victim in offer.victims:
            give_way(draft, index, victim, self._displaced)
        if self._rule.preempts:
            self._widen(live)
        return offer.placement

    def _make_room(self, lane: Lane, live: LiveJob, key: Key, missing: int) -> Placement | None:
        """Preempt jobs further down the order, the last first, until this one fits."""
        index, draft = self._index, self._draft
        role = live.job.roles[0]
        room = None
        if role.count == 1 and draft.allocator.keeps_refusal(live.job):
            room = RoomCheck(need_of(lane, live), index.holders, draft.inventory)
        search = VictimSearch(draft, live, self._behind(live, key), room, may_name=self._may_name(live))
        if not search.run(missing):
            return None
        named = dict.fromkeys([victim for _, victim in search.named])
        for victim_key, yielding in search.victims:
            if yielding not in named:
                place = index.places[yielding]
                index.holders.remove(place.entry, place.slope)
            heapq.heappush(self._heap, (victim_key, yielding))
        self._named.name(search.named)
        self._widen(live)
        return search.placement

    def _may_name(self, live: LiveJob) -> bool:
        """Whether victims may be named without being released: a look at nodes says what other jobs would find."""
        draft = self._draft
        allocator = draft.allocator
        return (
            looks_at_nodes(self._index)
            and self._index.keeps_refusals
            and not draft.inventory.locked
            and not live.job.exclusive
            and not allocator.has_guarantees
            and allocator.ledger is None
        )

    def _behind(self, live: LiveJob, key: Key) -> Iterator[tuple[Key, LiveJob]]:
        """Jobs further down the order that may be preempted for this one, the last first.

        No generator expression: compiled, that would list all of them before the first is used.
        """
        draft = self._draft
        allocator, inventory = draft.allocator, draft.inventory
        # Of several types, holders of others than the job can use would only get their devices back.
        many_types = len(inventory.pools) > 1
        for entry in self._index.holders.behind(key, draft.now_s):
            other = entry[1]
            if not allocator.may_displace(live, other, draft.now_s):
                continue
            if not draft.may_preempt(other):
                self._spared = True
            elif not (many_types and other.gpu_milli and not allocator.shortage.freed_by(other, live, inventory)):
                yield entry

    def _widen(self, live: LiveJob) -> None:
        """Consider every lane from here on: a preemption may free more than was needed."""
        if self._widened:
            return
        self._widened = True
        queued = {id(candidate) for _, candidate in self._heap}
        mine = self._index.places[live].lane
        for lane in self._index.lanes.values():
            if len(lane) and lane is not mine and id(lane) not in queued:
                key = self._index.rank(lane, self._draft.now_s)
                heapq.heappush(self._heap, (key, lane))

    def _place_again(self, live: LiveJob) -> None:
        """Place a preempted job when it is next in order: on its own devices, on others, or not at all."""
        if self._named.take_back(live):
            return
        index, draft = self._index, self._draft
        before = draft.touched[live]
        job = live.job
        if before is not None and draft.inventory.is_free(before, job.roles, job.exclusive, back=True):
            draft.assign_offered(live, before)
            place = index.places[live]
            index.holders.add(place.entry, place.slope)
            return
        del index.places[live]
        self._named.release_for(live)
        answer = draft.offer(live)
        if not isinstance(answer, Reason):
            draft.assign_offered(live, answer)
            index.unkeyed[live] = None

    def _backfill(self, head: LiveJob) -> None:
        """Start jobs of the head's quota scope that fit now and do not delay it."""
        index, draft = self._index, self._draft
        scope = draft.allocator.quota_scope(head)
        reservation = self._reservations[scope] = Reservation.make(draft, head, index.holding)
        candidates: list[tuple[Key, Lane, int]] = []
        for lane in index.lanes.values():
            if len(lane) and draft.allocator.quota_scope(lane.head[1]) == scope:
                self._push_next(candidates, lane, 0, reservation)
        while candidates:
            _, lane, at = heapq.heappop(candidates)
            live = lane.at(at)[1]
            expected_s = index.places[live].expected_s
            if not reservation.admits(live.gpu_milli, expected_s):
                self._push_next(candidates, lane, at, reservation)
                continue
            answer: Placement | Reason = draft.offer(live)
            if isinstance(answer, Reason):
                answer = self._displace(live) or answer
            if isinstance(answer, Reason):
                draft.because(live, answer)
                continue
            reservation.spend(live.gpu_milli, expected_s)
            draft.assign_offered(live, answer)
            index.start(live, draft.inventory, draft.now_s)
            self._push_next(candidates, lane, at, reservation)

    def _is_backfilled(self, lane: Lane) -> bool:
        """Whether the jobs of a lane were considered when a reservation of their quota scope was backfilled."""
        return not len(lane) or self._draft.allocator.quota_scope(lane.head[1]) in self._reservations

    def _push_next(
        self, candidates: list[tuple[Key, Lane, int]], lane: Lane, start: int, reservation: Reservation
    ) -> None:
        """Find the first job of a lane, from a position on, that the reservation admits."""
        if not lane.expected_s or not reservation.admits(lane.head[1].gpu_milli, lane.expected_s[0]):
            return
        for at in range(start, len(lane)):
            key, live = lane.at(at)
            if reservation.admits(live.gpu_milli, self._index.places[live].expected_s):
                heapq.heappush(candidates, (key, lane, at))
                return
