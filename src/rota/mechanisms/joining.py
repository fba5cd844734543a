"""The sharing mechanism: who finds no free devices joins others on theirs, if the rule lets it.

Jobs take their turn in the rule's order. When one joins, leaves or is seen to run at another speed, the devices of its
group are shared out anew. Nobody is stopped, unless the rule names those who have to yield.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from rota.core.errors import PlanRefused
from rota.core.live import LiveJob
from rota.core.model import WHOLE, DeviceType, Job, JobState
from rota.core.placement import Placement
from rota.core.policy import Allocator, Changes, Draft
from rota.core.reasons import Reason, ReasonCode
from rota.core.state import State
from rota.mechanisms.guests import Guests, Seats, beside, follow, is_settled, may_share, part_of


class SharingRule(Protocol):
    """Who goes first, who may join whom, and how a group shares its devices out."""

    @property
    def turns(self) -> bool:
        """Whether the jobs of a group have the devices in turn; otherwise they run beside each other."""

    @property
    def prefers_company(self) -> bool:
        """Whether a job joins others even if there are free devices."""

    @property
    def overlaps(self) -> bool:
        """Whether the next job loads on devices while the one before only saves."""

    def shares(self, job: Job) -> bool:
        """Whether a job takes part in sharing at all; others have what they ask for to themselves."""

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """A key; the least is looked at first."""

    def free(self, live: LiveJob, draft: Draft) -> Placement | Reason:
        """Free devices for a job that would have them to itself, or why there are none."""

    def joins(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        """How good a group is for a job, less is better; None if it may not join."""

    def has_room(self, live: LiveJob, hosts: Sequence[LiveJob], memory_bytes: int | None) -> bool:
        """Whether a group's devices have memory for a job too, by more than what they ask for."""

    def parts(self, jobs: Sequence[LiveJob], now_s: float) -> Sequence[int]:
        """Thousandths of the devices for each job of a group; together at most all of them."""

    def memory_parts(self, jobs: Sequence[LiveJob], room: int | None) -> Sequence[int]:
        """Thousandths of the memory it asks for that each job of a group keeps on devices of so many bytes."""

    def mover(self, jobs: Sequence[LiveJob], *, somebody_waits: bool) -> LiveJob | None:
        """Who of a group should have free devices to itself."""

    def again_s(self, waiting: LiveJob, now_s: float) -> float:
        """When a job that waits may join others whom it may not join now."""

    def saw(self, live: LiveJob, mates: Sequence[LiveJob], now_s: float) -> None:
        """A job is seen to run at its present speed beside these."""

    def left(self, live: LiveJob) -> None:
        """A job is gone."""

    def yields(self, live: LiveJob, holders: Sequence[LiveJob]) -> Sequence[LiveJob]:
        """Who may be stopped so that a job gets devices, first come first."""

    @property
    def memory(self) -> Any:
        """What it must remember, as a serialisable value."""

    def recall(self, memory: Any, jobs: dict[int, LiveJob]) -> None:
        """Take up what was remembered."""


class PlainRule:
    """The rule of those who need no more than who may join whom: equal parts, first in first out."""

    turns = False
    prefers_company = False
    overlaps = False

    def shares(self, job: Job) -> bool:
        """Those that ask for whole devices and can hold part of them."""
        return may_share(job) and not job.roles[0].is_fraction

    def order(self, live: LiveJob, now_s: float) -> tuple[float, ...]:
        """Who came first."""
        return (live.seq,)

    def free(self, live: LiveJob, draft: Draft) -> Placement | Reason:
        """What the allocator offers."""
        return draft.offer(live)

    def has_room(self, live: LiveJob, hosts: Sequence[LiveJob], memory_bytes: int | None) -> bool:
        """As the inventory says by what they ask for."""
        return True

    def parts(self, jobs: Sequence[LiveJob], now_s: float) -> Sequence[int]:
        """Equal parts."""
        return [WHOLE // len(jobs)] * len(jobs)

    def memory_parts(self, jobs: Sequence[LiveJob], room: int | None) -> Sequence[int]:
        """All of it."""
        return [WHOLE] * len(jobs)

    def mover(self, jobs: Sequence[LiveJob], *, somebody_waits: bool) -> LiveJob | None:
        """Nobody."""
        return None

    def again_s(self, waiting: LiveJob, now_s: float) -> float:
        """Never, unless something happens."""
        return math.inf

    def saw(self, live: LiveJob, mates: Sequence[LiveJob], now_s: float) -> None:
        """Speeds do not matter."""

    def left(self, live: LiveJob) -> None:
        """Nothing to forget."""

    def yields(self, live: LiveJob, holders: Sequence[LiveJob]) -> Sequence[LiveJob]:
        """Nobody."""
        return ()

    @property
    def memory(self) -> Any:
        """Nothing."""
        return None

    def recall(self, memory: Any, jobs: dict[int, LiveJob]) -> None:
        """Nothing."""


class SharingScheduler:
    """The policy that a sharing rule makes."""

    def __init__(self, rule: SharingRule, allocator: Allocator, *, name: str) -> None:
        self._rule = rule
        self._allocator = allocator
        self._name = name
        self._forget()

    def _forget(self) -> None:
        self._waiting: dict[LiveJob, None] = {}
        self._holders: dict[LiveJob, None] = {}
        self._guests = Guests()
        self._stale: dict[Seats, None] = {}
        """Groups whose devices may have to be shared out anew."""
        self.wakeup_s = math.inf

    @property
    def overlaps(self) -> bool:
        """As the rule wants."""
        return self._rule.overlaps

    @property
    def memory(self) -> Any:
        """What the rule remembers."""
        return {"policy": self._name, "rule": self._rule.memory}

    # -- what the engine tells -------------------------------------------------------------------

    def adopt(self, state: State) -> None:
        """Index a state anew."""
        self._forget()
        for live in state.jobs.values():
            if live.placement is not None:
                self._hold(live)
            elif live.state is JobState.WAITING and not live.unmet:
                self._waiting[live] = None
        if isinstance(state.memory, dict) and state.memory.get("policy") == self._name:
            self._rule.recall(state.memory["rule"], {live.seq: live for live in state.jobs.values()})
        if self._waiting or self._stale:
            self.wakeup_s = state.now_s

    def note(self, changes: Changes, now_s: float) -> None:
        """Keep the groups true; decide nothing yet."""
        follow(changes, self._waiting, self._hold, self._rule.left)
        for live in changes.started:
            self._hold(live)
            if is_settled(live):
                self._rule.saw(live, self._guests.mates(live), now_s)
            self._mark(live)
        if self._stale or (self._waiting and changes.started):
            self.wakeup_s = now_s

    def _hold(self, live: LiveJob) -> None:
        """A job holds other devices than before, or none."""
        if live.placement is None:
            self._holders.pop(live, None)
        else:
            self._holders[live] = None
        self._stale.update(dict.fromkeys(self._guests.rekey(live)))

    def _mark(self, live: LiveJob) -> None:
        seats = self._guests.seats(live)
        if seats:
            self._stale[seats] = None

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """Why there are no free devices; that nobody could be joined follows from it."""
        offered = self._rule.free(waiting, draft)
        return offered if isinstance(offered, Reason) else Reason(code=ReasonCode.ROUND)

    # -- the plan --------------------------------------------------------------------------------

    def plan(self, draft: Draft) -> None:
        """Share out anew where a group changed, then place who waits; who should be alone moves to free devices."""
        for seats in list(self._stale):
            jobs = self._guests.at(seats)
            if all(map(is_settled, jobs)):
                del self._stale[seats]
                if jobs and all(self._rule.shares(live.job) for live in jobs):
                    self._share_anew(draft, jobs)
        self._spread_out(draft)
        failed: set[object] = set()
        for live in sorted(self._waiting, key=lambda live: (*self._rule.order(live, draft.now_s), live.seq)):
            kind = (self._allocator.shape(live), live.job.model, live.job.labels, live.job.priority)
            if kind in failed:
                continue
            reason = self._seat(draft, live)
            if reason is not None:
                failed.add(kind)
                draft.because(live, reason)
        for live in draft.touched:
            self._waiting.pop(live, None)
            self._hold(live)
            if live.placement is None and live.state is JobState.WAITING:
                self._waiting[live] = None
        self._stale = {seats: None for seats in self._stale if not self._is_on_its_way(seats)}
        self.wakeup_s = draft.now_s if self._stale else self._again_s(draft.now_s)

    def _again_s(self, now_s: float) -> float:
        """When there may be devices for somebody who waits though nothing happens."""
        stage, rule = self._allocator.stage, self._rule
        return min((min(stage(live, now_s)[1], rule.again_s(live, now_s)) for live in self._waiting), default=math.inf)

    def _spread_out(self, draft: Draft) -> None:
        """Free devices for those of a group who should have their own, the largest groups first."""
        groups = sorted((jobs for _, jobs in self._guests.groups()), key=lambda jobs: (-len(jobs), jobs[0].seq))
        for jobs in groups:
            if len(jobs) < 2 or not all(is_settled(live) and self._rule.shares(live.job) for live in jobs):
                continue
            mover = self._rule.mover(jobs, somebody_waits=bool(self._waiting))
            if mover is None:
                continue
            there = self._rule.free(mover, draft)
            if not isinstance(there, Reason):
                draft.move(mover, there)
                self._hold(mover)

    def _is_on_its_way(self, seats: Seats) -> bool:
        """Whether a group will be heard of again by itself."""
        return not all(map(is_settled, self._guests.at(seats)))

    def _seat(self, draft: Draft, live: LiveJob) -> Reason | None:
        """Free devices, or a part of somebody's, or those of somebody who has to yield; or why there are none."""
        shares = self._rule.shares(live.job)
        if self._rule.prefers_company and shares and self._join(draft, live):
            return None
        offered = self._rule.free(live, draft)
        if not isinstance(offered, Reason):
            self._take(draft, live, offered)
            return None
        if not self._rule.prefers_company and shares and self._join(draft, live):
            return None
        return None if self._displace(draft, live) else offered

    def _take(self, draft: Draft, live: LiveJob, offered: Placement) -> None:
        """Have free devices to itself, as far as the rule gives it them."""
        if self._rule.turns and self._rule.shares(live.job) and live.job.roles[0].is_fraction:
            (part,) = self._rule.parts([live], draft.now_s)
            offered = part_of(live.job, offered, part, turns=True)
        draft.assign_offered(live, offered)
        self._hold(live)

    def _join(self, draft: Draft, live: LiveJob) -> bool:
        """Join the group that the rule likes best of those that have room."""
        found: list[tuple[tuple[float, ...], int, list[LiveJob], Placement]] = []
        for _, hosts in self._guests.groups():
            there = beside(live.job, hosts[0], draft.inventory)
            if there is None or not all(is_settled(host) and self._rule.shares(host.job) for host in hosts):
                continue
            node = draft.inventory.nodes[there[0].node].node
            liked = self._rule.joins(live, hosts, node.device_type, draft.now_s)
            if liked is not None and self._rule.has_room(live, hosts, node.device_memory_bytes):
                found.append((liked, hosts[0].seq, hosts, there))
        for _, _, hosts, there in sorted(found, key=lambda entry: entry[:2]):
            if self._let_in(draft, live, hosts, there):
                return True
        return False

    def _let_in(self, draft: Draft, live: LiveJob, hosts: list[LiveJob], there: Placement) -> bool:
        mark = draft.mark()
        *of_hosts, own = self._rule.parts([*hosts, live], draft.now_s)
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
        memory = self._rule.memory_parts(jobs, _room(jobs[0].placement or (), draft))
        try:
            self._share_out(draft, jobs, self._rule.parts(jobs, draft.now_s), memory)
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
        """Stop those who have to yield, one by one, until there is room."""
        mark = draft.mark()
        for victim in self._rule.yields(live, list(self._holders)):
            if victim.stopping is not None or victim.placement is None or victim.reserved:
                continue
            draft.release(victim)
            offered = self._rule.free(live, draft)
            if not isinstance(offered, Reason):
                self._take(draft, live, offered)
                return True
        draft.undo(mark)
        return False


def _room(placement: Placement, draft: Draft) -> int | None:
    """Bytes of the smallest of the devices of a placement; None where they are not counted."""
    counted = [draft.inventory.nodes[slot.node].node.device_memory_bytes for slot in placement]
    return min((memory for memory in counted if memory is not None), default=None)
