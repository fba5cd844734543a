"""The sharing mechanism: who finds no free devices joins others on theirs, if the rule lets it.

Jobs take their turn in the rule's order. When one joins, leaves or is seen to run at another speed, the devices of its
group are shared out anew. Nobody is stopped, unless the rule names those who have to yield.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.engine.protocols import Allocator, Changes
from rota.core.errors import PlanRefused
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import WHOLE, DeviceType, JobState
from rota.core.model.placement import Placement, device_indexes, meet
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.mechanisms.colocation.fractional import can_give
from rota.mechanisms.colocation.groups import DeviceGroups, Seats, beside, follow, is_settled, part_of
from rota.mechanisms.colocation.refusal_cache import RefusalCache
from rota.mechanisms.colocation.regroup import gather
from rota.mechanisms.colocation.rule import ColocationRule


class ColocationScheduler:
    """The policy that a sharing rule makes."""

    def __init__(self, rule: ColocationRule, allocator: Allocator, *, name: str) -> None:
        self._rule = rule
        self._allocator = allocator
        self._name = name
        self._forget()

    def _forget(self) -> None:
        self._waiting: dict[LiveJob, None] = {}
        self._holders: dict[LiveJob, None] = {}
        self._guests = DeviceGroups()
        self._stale: dict[Seats, None] = {}
        """Groups whose devices may have to be shared out anew."""
        self._untried = RefusalCache()
        self._firm: dict[Hashable, Reason] = {}
        """For whom there is no room in the present plan even if all yield who have to, and why."""
        self._regroup_s = -math.inf
        """When groups may be formed anew."""
        self.wakeup_s = math.inf

    @property
    def overlaps(self) -> bool:
        """As the rule wants."""
        return self._rule.overlaps

    @property
    def moves_parts(self) -> bool:
        """As the rule wants."""
        return self._rule.moves_parts

    @property
    def memory(self) -> Any:
        """What the rule remembers, and when groups may be formed anew."""
        due = {"regroup_s": self._regroup_s} if self._regroup_s > -math.inf else {}
        return {"policy": self._name, "rule": self._rule.memory, **due}

    # -- what the engine tells -------------------------------------------------------------------

    def adopt(self, state: State) -> None:
        """Index a state anew."""
        self._forget()
        for live in state.jobs.values():
            if live.placement is not None:
                self._hold(live)
            elif live.is_contending:
                self._waiting[live] = None
        if isinstance(state.memory, dict) and state.memory.get("policy") == self._name:
            self._rule.recall(state.memory["rule"], {live.seq: live for live in state.jobs.values()})
            self._regroup_s = state.memory.get("regroup_s", -math.inf)
        self._look(self._holders)
        if self._waiting or self._stale:
            self.wakeup_s = state.now_s

    def note(self, changes: Changes, now_s: float) -> None:
        """Keep the groups true; decide nothing yet."""
        follow(changes, self._waiting, self._hold, self._rule.left)
        for live in changes.started:
            self._hold(live)
        around = self._guests.disturbed() if self._rule.looks_around else {}
        self._look({**around, **dict.fromkeys(changes.started)})
        if self._stale or (self._waiting and changes.started):
            self.wakeup_s = now_s

    def _look(self, jobs: Iterable[LiveJob]) -> None:
        """Let the rule see at what speeds these run; their groups and others that this concerns are shared out anew."""
        for live in jobs:
            self._mark(live)
            if is_settled(live):
                for other in self._rule.saw(live, self._guests):
                    self._mark(other)

    def _hold(self, live: LiveJob) -> None:
        """A job holds other devices than before, or none."""
        if live.placement is None:
            self._holders.pop(live, None)
        else:
            self._holders[live] = None
        self._changed(self._guests.rekey(live))

    def _changed(self, groups: tuple[Seats, ...]) -> None:
        self._stale.update(dict.fromkeys(groups))
        self._untried.changed(groups)

    def _mark(self, live: LiveJob) -> None:
        seats = self._guests.seats(live)
        if seats:
            self._stale[seats] = None
            self._untried.changed((seats,))

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """Why there are no free devices; that nobody could be joined follows from it."""
        mark = draft.mark()
        offered = self._rule.free(waiting, draft, self._guests)
        draft.undo(mark)
        return offered if isinstance(offered, Reason) else Reason(code=ReasonCode.ROUND)

    # -- the plan --------------------------------------------------------------------------------

    def plan(self, draft: Draft) -> None:
        """Share out anew where a group changed, then place who waits; who should be alone moves to free devices."""
        for seats in list(self._stale):
            jobs = self._guests.at(seats)
            if all(map(is_settled, jobs)):
                del self._stale[seats]
                self._share_anew(draft, jobs)
        self._spread_out(draft)
        if self._waiting and draft.now_s >= self._regroup_s and self._rule.regroup_s < math.inf:
            self._regroup(draft)
        failed: set[object] = set()
        self._firm.clear()
        for live in sorted(self._still_waiting(), key=lambda live: (*self._rule.order(live, draft.now_s), live.seq)):
            kind = (self._allocator.equivalence_key(live), live.job.model, live.job.labels, live.job.priority)
            if kind in failed:
                continue
            reason = self._seat(draft, live, kind)
            if reason is not None:
                failed.add(kind)
                draft.because(live, reason)
        for live in draft.touched:
            self._waiting.pop(live, None)
            self._hold(live)
            if live.placement is None and live.state is JobState.WAITING:
                self._waiting[live] = None
        if not self._waiting:
            self._untried.forget()
        self._stale = {seats: None for seats in self._stale if not self._is_on_its_way(seats)}
        self.wakeup_s = draft.now_s if self._stale else self._again_s(draft.now_s)

    def _again_s(self, now_s: float) -> float:
        """When there may be devices for somebody who waits though nothing happens."""
        stage, rule = self._allocator.stage, self._rule
        regroup_s = self._regroup_s if self._waiting and rule.regroup_s < math.inf else math.inf
        return min([regroup_s, *(min(stage(live, now_s)[1], rule.again_s(live, now_s)) for live in self._waiting)])

    def _still_waiting(self) -> list[LiveJob]:
        """Who has no devices in the plan so far."""
        return [live for live in self._waiting if live.placement is None]

    def _regroup(self, draft: Draft) -> None:
        """Groups of all who run or wait, formed anew."""
        self._regroup_s = draft.now_s + self._rule.regroup_s
        held = [live for _, jobs in self._guests.groups() if all(map(is_settled, jobs)) for live in jobs]
        able = [live for live in (*held, *self._waiting) if self._rule.shares(live.job)]
        able.sort(key=lambda live: (*self._rule.order(live, draft.now_s), live.seq))
        seats = {self._guests.seats(live) for live in able} - {None}
        devices = sum(mask.bit_count() for each in seats for _, mask in each or ())

        def near(one: LiveJob, other: LiveJob) -> bool:
            return self._guests.seats(one) is not None and self._guests.seats(one) == self._guests.seats(other)

        crews = self._rule.crews(able, devices + draft.inventory.free, near)

        def seat(live: LiveJob, home: Seats | None) -> Seats | None:
            if home is None:
                offered = self._rule.free(live, draft, self._guests)
                if not isinstance(offered, Reason):
                    self._take(draft, live, offered)
            else:
                hosts = self._guests.at(home)
                there = beside(live.job, hosts[0], draft.inventory)
                if there is not None and self._rule.bears(live, hosts, _kind(there, draft)):
                    self._let_in(draft, live, hosts, there)
            return self._guests.seats(live)

        gather(draft, able, crews, self._guests, seat)

    def _spread_out(self, draft: Draft) -> None:
        """Free devices for those of a group who should have their own, the largest groups first."""
        shared = (jobs for _, jobs in self._guests.groups() if len(jobs) > 1)
        for jobs in sorted(shared, key=lambda jobs: (-len(jobs), jobs[0].seq)):
            if not all(is_settled(live) and self._rule.shares(live.job) for live in jobs):
                continue
            mover = self._rule.mover(jobs, somebody_waits=bool(self._waiting))
            if mover is None:
                continue
            there = self._rule.free(mover, draft, self._guests)
            if not isinstance(there, Reason):
                draft.move(mover, there)
                self._hold(mover)

    def _is_on_its_way(self, seats: Seats) -> bool:
        """Whether a group will be heard of again by itself."""
        return not all(map(is_settled, self._guests.at(seats)))

    def _seat(self, draft: Draft, live: LiveJob, kind: Hashable) -> Reason | None:
        """Free devices, or a part of somebody's, or those of somebody who has to yield; or why there are none."""
        needs = (self._allocator.equivalence_key(live), self._rule.looks_at(live.job))
        known = self._firm.get(needs)
        offered = known or self._rule.free(live, draft, self._guests)
        if not isinstance(offered, Reason):
            self._take(draft, live, offered)
            return None
        if self._rule.shares(live.job) and self._join(draft, live, kind):
            return None
        if known is None and self._displace(draft, live):
            self._firm.clear()
            return None
        self._firm[needs] = offered
        return offered

    def _take(self, draft: Draft, live: LiveJob, offered: Placement) -> None:
        """Have devices that the rule found; who has parts of the same ones shares out with it what is left."""
        draft.assign_offered(live, offered)
        self._hold(live)
        own = self._guests.seats(live)
        for seats in dict.fromkeys([own, *self._guests.overlapping(live)] if own else []):
            jobs = self._guests.at(seats)
            if all(can_give(each, draft) for each in jobs):
                self._share_anew(draft, jobs)

    def _join(self, draft: Draft, live: LiveJob, kind: Hashable) -> bool:
        """Join the group that the rule likes best of those that have room."""
        found: list[tuple[tuple[float, ...], int, list[LiveJob], Placement]] = []
        untried = self._untried.of(kind, self._guests.places)
        for seats in list(untried):
            hosts = self._guests.at(seats)
            if hosts and not all(map(is_settled, hosts)):
                continue
            offered = self._room_beside(draft, live, hosts)
            if offered is not None:
                found.append((offered[0], hosts[0].seq, hosts, offered[1]))
            elif self._rule.is_steady:
                del untried[seats]
        for _, _, hosts, there in sorted(found, key=lambda entry: entry[:2]):
            if self._let_in(draft, live, hosts, there):
                return True
        return False

    def _room_beside(
        self, draft: Draft, live: LiveJob, hosts: Sequence[LiveJob]
    ) -> tuple[tuple[float, ...], Placement] | None:
        """How much the rule likes a group for a job, and its place there; None if it may not join."""
        if not hosts or not all(self._rule.shares(host.job) for host in hosts):
            return None
        there = beside(live.job, hosts[0], draft.inventory)
        if there is None:
            return None
        node = draft.inventory.nodes[there[0].node].node
        liked = self._rule.joins(live, hosts, node.device_type, draft.now_s)
        if liked is None or not self._rule.has_room(live, hosts, node.device_memory_bytes):
            return None
        return liked, there

    def _let_in(self, draft: Draft, live: LiveJob, hosts: list[LiveJob], there: Placement) -> bool:
        mark = draft.mark()
        *of_hosts, own = self._rule.parts([*hosts, live], draft.now_s, _room_milli(hosts, draft), self._guests)
        *memory_of_hosts, memory = self._rule.memory_parts([*hosts, live], _room(there, draft))
        try:
            self._share_out(draft, hosts, of_hosts, memory_of_hosts)
            draft.assign(live, part_of(live.job, there, own, turns=self._rule.turns, memory_milli=memory))
        except PlanRefused:
            draft.undo(mark)
            return False
        self._hold(live)
        return True

    def _share_anew(self, draft: Draft, jobs: Sequence[LiveJob]) -> None:
        """As much as the rule gives each, unless somebody else has a part of the same devices."""
        mark = draft.mark()
        try:
            if jobs and all(self._rule.shares(live.job) for live in jobs):
                memory = self._rule.memory_parts(jobs, _room(jobs[0].placement or (), draft))
                parts = self._rule.parts(jobs, draft.now_s, _room_milli(jobs, draft), self._guests)
                self._share_out(draft, jobs, parts, memory)
                return
            for live in jobs:
                after = self._rule.held_back(live, self._guests)
                if after != live.placement:
                    draft.share(live, after)
        except PlanRefused:
            draft.undo(mark)

    def _share_out(self, draft: Draft, jobs: Sequence[LiveJob], parts: Sequence[int], memory: Sequence[int]) -> None:
        """Give each its part: those first who get less, so that there is room for the others."""
        wanted = []
        for live, part, kept in zip(jobs, parts, memory, strict=True):
            assert live.placement is not None
            after = part_of(live.job, live.placement, part, turns=self._rule.turns, memory_milli=kept)
            if after != live.placement:
                wanted.append((part - live.placement[0].milli, live.seq, live, after))
        for _, _, live, after in sorted(wanted, key=lambda entry: entry[:2]):
            draft.share(live, after)

    def _displace(self, draft: Draft, live: LiveJob) -> bool:
        """Stop those who have to yield, one by one, until there is room; who was in nobody's way goes on."""
        mark = draft.mark()
        held: dict[LiveJob, Placement] = {}
        offered: Placement | Reason | None = None
        for victim in self._rule.yields(live, list(self._holders)):
            if victim.is_leaving or not victim.held:
                continue
            held[victim] = victim.held
            draft.release(victim)
            self._guests.rekey(victim)
            offered = self._rule.free(live, draft, self._guests)
            if not isinstance(offered, Reason):
                break
        if offered is None or isinstance(offered, Reason):
            self._call_back(draft, mark, held)
            return False
        spared = [victim for victim, place in held.items() if not meet(place, offered)]
        self._call_back(draft, mark, held)
        self._take(draft, live, self._room_without(draft, live, [each for each in held if each not in spared], spared))
        return True

    def _room_without(
        self, draft: Draft, live: LiveJob, victims: Sequence[LiveJob], spared: Sequence[LiveJob]
    ) -> Placement:
        """A place for a job without these, and without those too if that is not enough."""
        for victim in victims:
            self._send_off(draft, victim)
        offered = self._rule.free(live, draft, self._guests)
        if isinstance(offered, Reason):
            for victim in spared:
                self._send_off(draft, victim)
            offered = self._rule.free(live, draft, self._guests)
        assert not isinstance(offered, Reason), "there was room without all of them"
        return offered

    def _send_off(self, draft: Draft, victim: LiveJob) -> None:
        """Stop somebody, for whose sake others may have another part."""
        draft.release(victim)
        self._changed(self._guests.rekey(victim))

    def _call_back(self, draft: Draft, mark: int, held: Iterable[LiveJob]) -> None:
        """All of them go on as before the mark."""
        draft.undo(mark)
        for victim in held:
            self._guests.rekey(victim)


def _kind(placement: Placement, draft: Draft) -> DeviceType:
    return draft.inventory.nodes[placement[0].node].node.device_type


def _room_milli(jobs: Sequence[LiveJob], draft: Draft) -> int:
    """Thousandths of their devices that a group has or could have: what nobody outside of it holds."""
    left = WHOLE
    for slot in jobs[0].placement or ():
        shares = draft.inventory.nodes[slot.node].shares
        left = min([left, *(shares.get(device, (0, 0))[0] for device in device_indexes(slot.devices))])
    return min(left + sum(live.placement[0].milli for live in jobs if live.placement), WHOLE)


def _room(placement: Placement, draft: Draft) -> int | None:
    """Bytes of the smallest of the devices of a placement; None where they are not counted."""
    counted = [draft.inventory.nodes[slot.node].node.device_memory_bytes for slot in placement]
    return min((memory for memory in counted if memory is not None), default=None)
