"""Backfill with reservations of nodes: each job in order starts now, or reserves nodes for the time it can start.

With a reservation for every job this is conservative backfill: Mu'alem and Feitelson, "Utilization, predictability,
workloads, and user runtime estimates in scheduling the IBM SP2 with backfilling", TPDS 2001. With its other limits it
is what Slurm's sched/backfill does (https://slurm.schedmd.com/sched_config.html): reservations are of whole nodes, made
afresh in every walk, and only for jobs that are expected to start within a window.
"""

from __future__ import annotations

import heapq
import math
from bisect import insort
from collections.abc import Hashable

from rota.core.engine.draft import Draft
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import WHOLE
from rota.core.model.placement import Placement
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.mechanisms.ordering.index import Index
from rota.mechanisms.ordering.lanes import Lane
from rota.mechanisms.ordering.node_plan import NodePlan, first_on
from rota.mechanisms.ordering.node_yields import Key
from rota.mechanisms.ordering.rule import Planning


class PlannedWalk:
    """One walk down the order."""

    __slots__ = (
        "_displaced",
        "_draft",
        "_earliest",
        "_heap",
        "_holders",
        "_index",
        "_moved",
        "_planning",
        "_refused",
        "_unplanned",
        "last",
        "plan",
        "started",
    )

    def __init__(self, planning: Planning, index: Index, draft: Draft, displaced: dict[LiveJob, None]) -> None:
        self._planning = planning
        self._index = index
        self._draft = draft
        self.plan = NodePlan(planning.resolution_s)
        self._heap: list[tuple[Key, Lane, int]] = []
        self._displaced = displaced
        """Jobs that were given devices in this plan and lost them again: they displace no job themselves."""
        self._moved = False
        """Whether jobs that lost their devices have joined lanes since the last look at them."""
        self._holders: list[tuple[float, int, LiveJob]] = []
        """The holders of devices, in the order in which they are expected to end; empty until it is needed."""
        self._refused: dict[Lane, float] = {}
        """By lane, the shortest job that can't start now; no longer one of the lane can."""
        self._unplanned: dict[Lane, float] = {}
        """By lane, the shortest job without a start within the window."""
        self._earliest: dict[tuple[Lane, int], tuple[float, int]] = {}
        """When and where a job of a lane could start on other nodes than these, were it not for reservations."""
        self.started = 0
        self.last: LiveJob | None = None
        """The last job that was considered."""

    def run(self, *, whole: bool) -> None:
        """Walk down the order, or only to the first job of each quota scope that can't start now."""
        index, draft, planning = self._index, self._draft, self._planning
        stuck: set[Hashable] = set()
        for lane in index.lanes.values():
            self._push(lane, 0)
        examined = 0
        while self._heap and (examined < planning.depth or not planning.depth or not whole):
            key, lane, at = heapq.heappop(self._heap)
            live = lane.at(at)[1]
            scope: Hashable = None if whole else draft.allocator.quota_scope(live)
            if scope in stuck:
                continue
            examined += 1
            self.last = live
            runs_s = expected_s(live, planning, draft.now_s)
            placement = self._place_now(lane, at, runs_s)
            if placement is not None:
                draft.assign_offered(live, placement)
                index.start(live, draft.inventory, draft.now_s)
                index.record_obstacle(lane, None, draft.now_s)
                self.started += 1
                self._earliest.clear()
                if self._holders:
                    insort(self._holders, (draft.now_s + runs_s, live.seq, live))
                if self._moved:
                    self._push_all_after(key)
                else:
                    self._push(lane, at)
                continue
            self._push(lane, at + 1)
            if not whole:
                stuck.add(scope)
            elif not planning.reserve or len(self.plan.reservations) < planning.reserve:
                self._reserve(lane, live, runs_s)

    def _push(self, lane: Lane, at: int) -> None:
        if at < len(lane):
            heapq.heappush(self._heap, (lane.at(at)[0], lane, at))

    def _push_all_after(self, key: Key) -> None:
        """Go on from a place in the order, after jobs that wait again have moved others in their lanes."""
        self._moved = False
        self._heap = []
        for lane in self._index.lanes.values():
            self._push(lane, next((at for at in range(len(lane)) if lane.at(at)[0] > key), len(lane)))

    # -- now -------------------------------------------------------------------------------------

    def _place_now(self, lane: Lane, at: int, runs_s: float) -> Placement | None:
        """Devices for a job of a lane that it can keep without being in the way of a reservation."""
        live = lane.at(at)[1]
        if lane in self._refused and runs_s >= self._refused[lane]:
            return None
        draft, now_s = self._draft, self._draft.now_s
        taken = self.plan.taken(now_s, now_s + runs_s)
        answer = self._offer(live, taken)
        if isinstance(answer, Reason):
            answer = self._displace(live) or answer
        if not isinstance(answer, Reason):
            return answer
        first = first_on(self.plan.reservations, taken, now_s + runs_s)
        draft.because(live, answer if first is None else first.reason())
        if not at and first is None:
            self._index.record_obstacle(lane, answer.code, now_s)
        self._refused[lane] = runs_s
        return None

    def _offer(self, live: LiveJob, taken: int) -> Placement | Reason:
        """Devices on other nodes than these, or why there are none."""
        draft = self._draft
        if not taken:
            return draft.offer(live)
        inventory = draft.inventory
        avoided = inventory.avoided
        inventory.avoided = avoided | taken
        try:
            answer = draft.offer(live)
        finally:
            inventory.avoided = avoided
        if not isinstance(answer, Reason) and nodes_of(answer) & taken:
            return Reason(code=ReasonCode.FRAGMENTED, need_milli=live.gpu_milli)
        return answer

    def _displace(self, live: LiveJob) -> Placement | None:
        """Devices of jobs that tenancy displaces; a guarantee is kept whatever is reserved."""
        draft, index = self._draft, self._index
        if not live.job.preempts or live in self._displaced:
            return None
        offer = draft.allocator.displace(live, draft.inventory, draft.now_s)
        if offer is None:
            return None
        for victim in offer.victims:
            give_way(draft, index, victim, self._displaced)
        self._moved = True
        self._holders = []
        self._refused.clear()
        self._unplanned.clear()
        return offer.placement

    # -- later -----------------------------------------------------------------------------------

    def _reserve(self, lane: Lane, live: LiveJob, runs_s: float) -> None:
        """Reserve nodes from the first moment within the window at which a job can start and keep them."""
        if lane in self._unplanned and runs_s >= self._unplanned[lane]:
            return
        now_s = self._draft.now_s
        last_s = now_s + self._planning.window_s
        from_s = now_s
        while from_s <= last_s:
            to_s = from_s + runs_s
            next_s = self.plan.next_end_s(from_s, to_s)
            free_s, nodes = self._free_at(lane, live, self.plan.taken(from_s, to_s))
            starts_s = max(free_s, from_s)
            if starts_s <= min(next_s, last_s):
                if self.plan.reserve(live, starts_s, runs_s, nodes):
                    return
                next_s = starts_s
            if next_s <= from_s:
                break
            from_s = next_s
        self._unplanned[lane] = runs_s

    def _free_at(self, lane: Lane, live: LiveJob, taken: int) -> tuple[float, int]:
        """When, within the window, and on which nodes but these a job of a lane can start, once others have ended."""
        found = self._earliest.get((lane, taken))
        if found is None:
            found = self._earliest[lane, taken] = self._search(live, taken)
        return found

    def _search(self, live: LiveJob, taken: int) -> tuple[float, int]:
        """Release holders in the order in which they are expected to end until the job fits."""
        draft = self._draft
        last_s = draft.now_s + self._planning.window_s
        room = RoomCount(live, draft.inventory, taken)
        if room.suffices:  # where only reservations keep it from starting now
            answer = self._offer(live, taken)
            if not isinstance(answer, Reason):
                return draft.now_s, nodes_of(answer)
        trial = draft.trial()
        found = (math.inf, 0)
        group_s = within_s = self._planning.group_s
        first_s = -1.0
        named: list[LiveJob] = []
        holders = self._by_end()
        for at, (end_s, _, holder) in enumerate(holders):
            if end_s > last_s or end_s == math.inf:
                break
            held = holder.placement
            if held is None or (taken and not nodes_of(held) & ~taken):
                continue
            named.append(holder)
            room.give_back(holder, held)
            if group_s and at + 1 < len(holders):
                if first_s < 0:
                    first_s = (math.floor(end_s / group_s) + 1) * group_s
                next_s = holders[at + 1][0]
                if next_s <= first_s + within_s:
                    continue
                while next_s < math.inf and next_s > first_s + within_s:
                    within_s *= 2
            if room.suffices:
                for each in named:
                    draft.release(each)
                named = []
                answer = self._offer(live, taken)
                if not isinstance(answer, Reason):
                    found = (end_s, nodes_of(answer))
                    break
        draft.take_back(trial)
        return found

    def _by_end(self) -> list[tuple[float, int, LiveJob]]:
        """The holders of devices, in the order in which they are expected to end."""
        if not self._holders:
            now_s = self._draft.now_s
            for live in self._index.holding:
                end_s = now_s + expected_s(live, self._planning, now_s)
                self._holders.append((end_s, live.seq, live))
            self._holders.sort()
        return self._holders


class RoomCount:
    """A bound on how many tasks find room on the nodes that a job may use, by their devices alone."""

    __slots__ = ("_allowed", "_free", "_inventory", "_per_task", "_tasks", "_total")

    def __init__(self, live: LiveJob, inventory: Inventory, taken: int) -> None:
        role = live.job.roles[0]
        self._inventory = inventory
        counts = len(live.job.roles) == 1 and role.device_milli >= WHOLE
        self._per_task = role.device_milli // WHOLE if counts else 0
        """0 where whole devices tell nothing."""
        self._tasks = role.count if live.job.elastic is None else live.job.elastic.min_tasks
        self._allowed = 0
        """The nodes that the job may use, as a bit set."""
        self._free: dict[int, int] = {}
        """Devices that are free on these nodes, now or once holders have ended."""
        self._total = 0
        if not counts:
            return
        for pool in inventory.eligible(role):
            self._allowed |= pool.nodes & ~taken
            for free in range(1, len(pool.by_free)):
                nodes = pool.by_free[free] & ~taken
                while nodes:
                    low = nodes & -nodes
                    nodes ^= low
                    self._free[low.bit_length() - 1] = free
                    self._total += free // self._per_task

    @property
    def suffices(self) -> bool:
        """Whether there may be room enough."""
        return not self._per_task or self._total >= self._tasks

    def give_back(self, holder: LiveJob, held: Placement) -> None:
        """Count what a holder has as free."""
        per_task = self._per_task
        if not per_task:
            return
        for slot in held:
            if self._allowed >> slot.node & 1:
                devices = self._inventory.nodes[slot.node].node.devices
                before = self._free.get(slot.node, 0)
                after = devices if holder.job.exclusive else min(before + slot.devices.bit_count(), devices)
                self._free[slot.node] = after
                self._total += after // per_task - before // per_task


def expected_s(live: LiveJob, planning: Planning, now_s: float) -> float:
    """How long a job is expected to run from now on."""
    if not planning.limits:
        return live.remaining_s(now_s)
    limit_s = live.job.estimate_s
    return math.inf if limit_s is None else max(limit_s - live.run_s(now_s), 0.0)


def nodes_of(placement: Placement) -> int:
    """The nodes of a placement, as a bit set."""
    nodes = 0
    for slot in placement:
        nodes |= 1 << slot.node
    return nodes


def give_way(draft: Draft, index: Index, victim: LiveJob, displaced: dict[LiveJob, None]) -> None:
    """Take devices from a job that tenancy displaces; unless it got them in this plan only, it waits again."""
    draft.release(victim)
    index.drop(victim, draft.now_s)
    if draft.touched[victim] is None:
        displaced[victim] = None
        index.enqueue(victim, draft.now_s)
