"""The list scheduler's index: the lane of each waiting job, the holders of devices, and when keys change."""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable
from typing import Final

from rota.core.engine.protocols import Allocator
from rota.core.messages.reasons import ReasonCode
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.mechanisms.ordering.growth_log import GrowthLog
from rota.mechanisms.ordering.lanes import Entry, Holders, Lane, moved
from rota.mechanisms.ordering.node_yields import Key
from rota.mechanisms.ordering.rule import Backfill, OrderingRule, SimpleRule

_FRAGMENTED: Final = ReasonCode.FRAGMENTED  # compiled, a member of an enum costs a search in its class each time
_HOST_BUSY: Final = ReasonCode.HOST_BUSY


class IndexEntry:
    """Where a job is indexed: in a lane if it waits, among the holders otherwise."""

    __slots__ = ("entry", "expected_s", "lane", "scattered_s", "share", "slope", "until_s")

    def __init__(
        self,
        entry: Entry,
        slope: float,
        lane: Lane | None,
        until_s: float,
        share: tuple[float, ...] = (),
        scattered_s: float = 0.0,
    ) -> None:
        self.entry = entry
        self.slope = slope
        self.lane = lane
        self.until_s = until_s
        self.expected_s = 0.0
        self.share = share
        self.scattered_s = scattered_s
        """The lane's `scattered_s` when the job joined."""


class Index:
    """All jobs that wait or hold devices, sorted by the rule."""

    def __init__(self, rule: OrderingRule, allocator: Allocator) -> None:
        self._turn = rule.of if isinstance(rule, SimpleRule) else rule.turn
        self._allocator = allocator
        self._groups = rule.groups
        self._one_lane = rule.backfill is Backfill.NONE
        self._expects = rule.backfill is Backfill.EASY
        self._ranks_holders = rule.preempts
        self._keeps_holders = self._expects or rule.backfill is Backfill.PLAN or rule.groups is not None
        self.places: dict[LiveJob, IndexEntry] = {}
        self.lanes: dict[Hashable, Lane] = {}
        self.occupied: dict[Lane, None] = {}
        """Lanes in which jobs wait."""
        self.waiting = 0
        """How many jobs wait."""
        self.holders = Holders()
        self.holding: dict[LiveJob, None] = {}
        """The holders of devices; kept only for rules that need them."""
        self.unkeyed: dict[LiveJob, Key | None] = {}
        """Jobs that were given devices and whose key as a holder has not been computed yet, with the key with which
        they waited, if they come from a lane."""
        self.fresh: dict[Lane, None] = {}
        """Lanes whose first job was not considered yet."""
        self.look_at_all = True
        """Whether an event may let the first job of any lane start."""
        self.drifts = False
        """Whether waiting jobs can overtake holders as time passes."""
        self.scattered: dict[Lane, None] = {}
        """Lanes whose first job found enough devices, but not together."""
        self.again: list[LiveJob] = []
        """Holders whose key is for one walk only."""
        self.growth = GrowthLog()
        """Nodes on which more became available, or whose holders have gone back in the order."""
        self.walk_from = 0
        """How many entries the log had when the present walk began."""
        self.looks_at_nodes = False
        """Whether jobs are refused after a look at nodes in the present walk."""
        self._grown = 0
        """Nodes that are not in that log yet, as a bit set."""
        self._timers: list[tuple[float, int, LiveJob]] = []

    @property
    def keeps_refusals(self) -> bool:
        """Whether a lane's first job that found no devices can be passed over until more becomes available."""
        return not (self._one_lane or self._keeps_holders or self.drifts or self._groups is not None)

    def begin_walk(self, inventory: Inventory) -> None:
        """Note in the log where a walk begins."""
        self.log_growth(inventory)
        self.walk_from = self.growth.count

    def log_growth(self, inventory: Inventory) -> None:
        """Enter into the log on which nodes more became available."""
        grown = self._grown | inventory.grown
        if grown:
            self._grown = inventory.grown = 0
            self.growth.note(grown)

    @property
    def next_change_s(self) -> float:
        """The next moment at which some job's key or locality changes."""
        timers = self._timers
        while timers:
            at_s, _, live = timers[0]
            place = self.places.get(live)
            if place is not None and place.until_s == at_s:
                return at_s
            heapq.heappop(timers)
        return math.inf

    def enqueue(self, live: LiveJob, now_s: float) -> None:
        """Index a waiting job."""
        turn = self._turn(live, now_s)
        live.remember(turn.memo)
        stage, relaxes_s = self._allocator.stage(live, now_s)
        slope = turn.slope
        if self._one_lane:
            stage = 0
            key = self._allocator.quota_scope(live)
        else:
            key = self._allocator.equivalence_key(live)
        group = None if self._groups is None else self._groups.of(live)
        name = (key, stage, slope, group)
        lane = self.lanes.get(name)
        if lane is None:
            lane = self.lanes[name] = Lane(slope, group, is_uniform=not self._one_lane)
        if slope < 0:
            self.drifts = True
        entry = (moved(turn.key, slope, -now_s) if slope else turn.key, live)
        until_s = turn.until_s if turn.until_s < relaxes_s else relaxes_s
        place = self.places[live] = IndexEntry(entry, slope, lane, until_s, scattered_s=lane.scattered_s(now_s))
        self.waiting += 1
        self.occupied[lane] = None
        if lane.add(entry):
            self.fresh[lane] = None
        if self._expects:
            place.expected_s = live.remaining_s(now_s)
            lane.expect(place.expected_s)
        if until_s < math.inf:
            heapq.heappush(self._timers, (until_s, live.seq, live))

    def key_holder(self, live: LiveJob, now_s: float) -> None:
        """Index a holder of devices by its key as a holder."""
        waited = self.unkeyed.pop(live, None)
        if not self._ranks_holders:
            return
        turn = self._turn(live, now_s)
        live.remember(turn.memo)
        slope = turn.slope
        old = self.places.get(live)
        gains = waited is None or waited < turn.key
        if old is not None:
            self.holders.remove(old.entry, old.slope)
            gains = moved(old.entry[0], old.slope, now_s) < turn.key
            if gains:
                self.look_at_all = True
        if slope > 0:
            self.drifts = True
        entry = (moved(turn.key, slope, -now_s) if slope else turn.key, live)
        self.places[live] = IndexEntry(entry, slope, None, turn.until_s)
        nodes = self.holders.add(entry, slope)
        if gains:
            self._grown |= nodes
        if turn.again:
            self.again.append(live)
        if turn.until_s < math.inf:
            heapq.heappush(self._timers, (turn.until_s, live.seq, live))

    def key_again(self) -> None:
        """After a walk: holders whose key was for it only, and that still hold, get another before the next."""
        for live in self.again:
            place = self.places.get(live)
            if place is not None and place.lane is None:
                self.unkeyed[live] = None
        self.again = []

    def start(self, live: LiveJob, inventory: Inventory, now_s: float) -> None:
        """Take a job that was given devices out of its lane; its key as a holder is computed later."""
        place = self.places.pop(live)
        if place.lane is not None:
            self._leave(place.lane, place, now_s)
        self.unkeyed[live] = moved(place.entry[0], place.slope, now_s) if place.slope else place.entry[0]
        if self._keeps_holders:
            self.hold(live, inventory, now_s)

    def hold(self, live: LiveJob, inventory: Inventory, now_s: float, *, resumes: bool = False) -> None:
        """Record a holder, and add its share to its group."""
        self.holding[live] = None
        groups = self._groups
        if groups is not None:
            share = groups.share(live, inventory)
            groups.change(groups.of(live), share, 1, now_s, resumes=resumes)
            self.places[live] = IndexEntry(((float(live.seq),), live), 0.0, None, math.inf, share)

    def drop(self, live: LiveJob, now_s: float) -> None:
        """Remove a job that neither waits nor holds devices any more."""
        self.unkeyed.pop(live, None)
        self.holding.pop(live, None)
        place = self.places.pop(live, None)
        if place is None:
            return
        if place.lane is not None:
            self._leave(place.lane, place, now_s)
        elif self._groups is not None:
            self._groups.change(self._groups.of(live), place.share, -1, now_s, resumes=False)
        elif self._ranks_holders:
            self.holders.remove(place.entry, place.slope)

    def record_obstacle(self, lane: Lane, code: ReasonCode | None, now_s: float) -> None:
        """Record why a lane's first job was passed over; None if it was given devices."""
        is_scattered = code is _FRAGMENTED or code is _HOST_BUSY
        if is_scattered is not lane.is_scattered:
            lane.set_scattered(is_scattered, now_s)
            if is_scattered:
                self.scattered[lane] = None
            else:
                del self.scattered[lane]

    def fire(self, now_s: float) -> None:
        """Compute the keys again that were valid until now."""
        timers = self._timers
        while timers and timers[0][0] <= now_s:
            at_s, _, live = heapq.heappop(timers)
            place = self.places.get(live)
            if place is not None and place.until_s == at_s:
                self._rekey(live, place, now_s)

    def rekey_all(self, now_s: float) -> None:
        """Compute all keys again."""
        for live, place in list(self.places.items()):
            self._rekey(live, place, now_s)
        self.look_at_all = True

    def rekey(self, live: LiveJob, now_s: float) -> None:
        """Compute a job's key again, if it has one."""
        place = self.places.get(live)
        if place is not None:
            self._rekey(live, place, now_s)

    def rank(self, lane: Lane, now_s: float) -> Key:
        """The key of a lane's first job, its group's rank before its own key."""
        key = lane.key_now(now_s)
        return key if self._groups is None else (*self._groups.rank(lane.group, now_s), *key)

    def _rekey(self, live: LiveJob, place: IndexEntry, now_s: float) -> None:
        if place.lane is None:
            self.key_holder(live, now_s)
        else:
            self._leave(place.lane, place, now_s)
            self.enqueue(live, now_s)

    def _leave(self, lane: Lane, place: IndexEntry, now_s: float) -> None:
        place.entry[1].count_scattered(lane.scattered_s(now_s) - place.scattered_s)
        self.waiting -= 1
        if lane.remove(place.entry):
            self.fresh[lane] = None
        if not len(lane):
            del self.occupied[lane]
        if self._expects:
            lane.no_longer_expect(place.expected_s)
