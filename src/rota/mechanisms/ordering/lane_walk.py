"""One walk down the order: the first jobs of lanes, and the jobs that are preempted for them."""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Hashable
from typing import Final

from rota.core.engine.draft import Draft
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.mechanisms.ordering.easy_reservation import Reservation
from rota.mechanisms.ordering.index import Index
from rota.mechanisms.ordering.lanes import Entry, Lane
from rota.mechanisms.ordering.named_victims import NamedVictims
from rota.mechanisms.ordering.node_yields import Key
from rota.mechanisms.ordering.planned_walk import give_way
from rota.mechanisms.ordering.refusals import is_refused, may_keep, need_of, refuse, same_answer
from rota.mechanisms.ordering.rule import Backfill, OrderingRule
from rota.mechanisms.ordering.victim_search import Candidates, RoomCheck, VictimSearch

_BUSY: Final = ReasonCode.DEVICES_BUSY  # compiled, a member of an enum costs a search in its class each time


def _key_of(entry: Entry) -> Key:
    return entry[0]


class Walk:
    """One walk down the order: the first jobs of lanes, and jobs that were preempted on the way."""

    __slots__ = (
        "_at",
        "_displaced",
        "_draft",
        "_index",
        "_lanes",
        "_named",
        "_order",
        "_refused",
        "_reservations",
        "_rule",
        "_spared",
        "_victims",
        "_widened",
    )

    def __init__(
        self, rule: OrderingRule, index: Index, draft: Draft, lanes: dict[Key, Lane], refused: list[tuple[Key, Lane]]
    ) -> None:
        self._rule = rule
        self._index = index
        self._draft = draft
        self._lanes = lanes
        """Lanes that are still to be considered, by key."""
        self._order = sorted(lanes)
        """Their keys, from a position on."""
        self._at = 0
        self._refused = refused
        """Lanes whose first job is refused until something changes."""
        self._victims: list[Entry] = []
        """Jobs that were preempted and are still to be looked at again, the first in order last."""
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
        index, draft = self._index, self._draft
        has_groups, is_easy = self._rule.groups is not None, self._rule.backfill is Backfill.EASY
        while True:
            is_last = self._at == len(self._order)
            if self._victims and (is_last or self._victims[-1][0] < self._order[self._at]):
                victim_key, victim = self._victims.pop()
                self._place_again(victim, victim_key)
                continue
            if is_last:
                return self._reservations
            key = self._order[self._at]
            self._at += 1
            lane = self._lanes.pop(key)
            if self._reservations and self._is_backfilled(lane):
                continue
            if has_groups and (rank := index.rank(lane, draft.now_s)) != key:
                self._push(rank, lane)
                continue
            live = lane.head[1]
            answer = self._find_devices(lane, live, key)
            if answer is not None and not isinstance(answer, Reason):
                draft.assign_offered(live, answer)
                index.start(live, draft.inventory, draft.now_s)
                index.record_obstacle(lane, None, draft.now_s)
                if len(lane):
                    self._push(index.rank(lane, draft.now_s), lane)
                if self._refused:
                    self._look_again_after(key)
                continue
            if answer is not None:
                draft.because(live, answer)
                index.record_obstacle(lane, answer.code, draft.now_s)
            if is_easy:
                self._backfill(live)

    def _push(self, key: Key, lane: Lane) -> None:
        """Consider a lane when the walk comes to a key."""
        self._lanes[key] = lane
        insort(self._order, key, lo=self._at)

    def _look_again_after(self, key: Key) -> None:
        """Less is free: lanes that come later were refused for reasons that may have changed."""
        for refused_key, lane in self._refused:
            if refused_key > key:
                self._push(refused_key, lane)
        self._refused = []

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
        candidates = Candidates(draft, live, index.holders, key)
        search = VictimSearch(draft, live, candidates, room, may_name=self._may_name(live))
        is_found = search.run(missing)
        self._spared = self._spared or candidates.spared
        if not is_found:
            return None
        named = dict.fromkeys([victim for _, victim in search.named])
        for _, yielding in search.victims:
            if yielding not in named:
                place = index.places[yielding]
                index.holders.remove(place.entry, place.slope)
        if self._victims:
            self._victims += search.victims
            self._victims.sort(key=_key_of, reverse=True)
        else:
            self._victims = search.victims
        self._named.name(search.named)
        self._widen(live)
        return search.placement

    def _may_name(self, live: LiveJob) -> bool:
        """Whether victims may be named without being released: a look at nodes says what other jobs would find."""
        draft = self._draft
        allocator = draft.allocator
        return (
            self._index.looks_at_nodes
            and self._index.keeps_refusals
            and not draft.inventory.locked
            and not live.job.exclusive
            and not allocator.has_guarantees
            and allocator.ledger is None
        )

    def _widen(self, live: LiveJob) -> None:
        """Consider every lane from here on: a preemption may free more than was needed."""
        if self._widened:
            return
        self._widened = True
        queued = set(self._lanes.values())
        mine = self._index.places[live].lane
        for lane in self._index.occupied:
            if lane is not mine and lane not in queued:
                self._lanes[self._index.rank(lane, self._draft.now_s)] = lane
        self._order = sorted(self._lanes)
        self._at = 0
        self._refused = []

    def _place_again(self, live: LiveJob, key: Key) -> None:
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
        self._named.release_for(live, key)
        placement = draft.place(live)
        if placement is not None:
            draft.assign_offered(live, placement)
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
