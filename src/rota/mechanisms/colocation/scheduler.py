"""Co-location scheduler: a job that finds no free devices shares those of running jobs, if the rule admits it.

Waiting jobs are served in the rule's order. When a job joins or leaves a group, or is observed at another speed, the
fractions of its group are recomputed. Jobs are preempted only where the rule names victims.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.engine.protocols import Allocator, Capabilities, Changes
from rota.core.errors import PlanRefused
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import DeviceType, JobState
from rota.core.model.placement import Placement, meet
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.mechanisms.colocation.fractional import can_resize, room_milli
from rota.mechanisms.colocation.groups import DeviceGroups, DeviceSet, follow, on_devices_of, with_fraction
from rota.mechanisms.colocation.growth import Growth
from rota.mechanisms.colocation.refusal_cache import RefusalCache
from rota.mechanisms.colocation.regroup import regroup
from rota.mechanisms.colocation.rule import ColocationRule


class ColocationScheduler:
    """Policy made of a co-location rule."""

    def __init__(self, rule: ColocationRule, allocator: Allocator, *, name: str, growth: Growth | None = None) -> None:
        self._rule = rule
        self._allocator = allocator
        self._name = name
        self._growth = growth
        """How elastic jobs grow while no job waits; None: they keep the size that they ask for."""
        self._reset()

    def _reset(self) -> None:
        self._waiting: dict[LiveJob, None] = {}
        self._holders: dict[LiveJob, None] = {}
        self._groups = DeviceGroups()
        self._stale: dict[DeviceSet, None] = {}
        """Groups whose fractions have to be recomputed."""
        self._refusals = RefusalCache()
        self._no_room: dict[Hashable, Reason] = {}
        """By placement key, why the present plan has no room even after all preemptions that the rule allows."""
        self._regroup_s = -math.inf
        """Earliest time of the next regrouping."""
        self.wakeup_s = math.inf

    @property
    def capabilities(self) -> Capabilities:
        """Those that the rule asks for."""
        return Capabilities(overlaps=self._rule.overlaps, moves_parts=self._rule.moves_parts, asks_guard=True)

    @property
    def memory(self) -> Any:
        """The rule's memory and the time of the next regrouping."""
        due: dict[str, float | None] = {"regroup_s": self._regroup_s} if self._regroup_s > -math.inf else {}
        due |= {} if self._growth is None else {"idle_s": self._growth.idle_since_s}
        return {"policy": self._name, "rule": self._rule.memory, **due}

    # -- events from the engine ------------------------------------------------------------------

    def adopt(self, state: State) -> None:
        """Rebuild all indexes from a state."""
        self._reset()
        for live in state.jobs.values():
            if live.placement is not None:
                self._index(live)
            elif live.is_contending:
                self._waiting[live] = None
        if isinstance(state.memory, dict) and state.memory.get("policy") == self._name:
            self._rule.recall(state.memory["rule"], {live.seq: live for live in state.jobs.values()})
            self._regroup_s = state.memory.get("regroup_s", -math.inf)
            if self._growth is not None:
                self._growth.idle_since_s = state.memory.get("idle_s")
        self._observe(self._holders)
        if self._waiting or self._stale:
            self.wakeup_s = state.now_s

    def note(self, changes: Changes, now_s: float) -> None:
        """Update the groups and let the rule observe speeds; decide nothing."""
        follow(changes, self._waiting, self._index, self._rule.forget)
        for live in changes.started:
            self._index(live)
        neighbours = self._groups.on_changed_nodes() if self._rule.observes_nodes else {}
        self._observe({**neighbours, **dict.fromkeys(changes.started)})
        if self._stale or (self._waiting and changes.started):
            self.wakeup_s = now_s

    def _observe(self, jobs: Iterable[LiveJob]) -> None:
        """Let the rule observe the speeds of jobs; mark their groups and those that the rule names as stale."""
        for live in jobs:
            self._mark_stale(live)
            if live.is_settled:
                for other in self._rule.observe(live, self._groups):
                    self._mark_stale(other)

    def _index(self, live: LiveJob) -> None:
        """Index a job by the devices it holds now, if any."""
        if live.placement is None:
            self._holders.pop(live, None)
        else:
            self._holders[live] = None
        self._note_changed(self._groups.rekey(live))

    def _note_changed(self, groups: tuple[DeviceSet, ...]) -> None:
        self._stale.update(dict.fromkeys(groups))
        self._refusals.changed(groups)

    def _mark_stale(self, live: LiveJob) -> None:
        devices = self._groups.devices_of(live)
        if devices:
            self._stale[devices] = None
            self._refusals.changed((devices,))

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """Return why a job gets no free devices; a job that does is due for the next plan."""
        mark = draft.mark()
        offered = self._rule.find_free(waiting, draft, self._groups)
        draft.undo(mark)
        return offered if isinstance(offered, Reason) else Reason(code=ReasonCode.ROUND)

    # -- the plan --------------------------------------------------------------------------------

    def plan(self, draft: Draft) -> None:
        """Recompute the fractions of changed groups, move and regroup jobs, then place waiting jobs."""
        for devices in list(self._stale):
            jobs = self._groups.at(devices)
            if all(live.is_settled for live in jobs):
                del self._stale[devices]
                self._recompute(draft, jobs)
        self._migrate(draft)
        if self._waiting and draft.now_s >= self._regroup_s and self._rule.regroup_s < math.inf:
            self._regroup(draft)
        self._place_waiting(draft)
        if self._growth is not None:
            waits = any(live.placement is None for live in self._waiting)
            self._growth.resize(draft, list(self._holders), jobs_wait=waits)
        for live in draft.touched:
            self._waiting.pop(live, None)
            self._index(live)
            if live.placement is None and live.state is JobState.WAITING:
                self._waiting[live] = None
        if not self._waiting:
            self._refusals.clear()
        self._stale = {devices: None for devices in self._stale if not self._is_in_transition(devices)}
        self.wakeup_s = draft.now_s if self._stale else self._next_plan_s(draft.now_s)
        if self._growth is not None:
            self.wakeup_s = min(self.wakeup_s, self._growth.due_s)

    def _place_waiting(self, draft: Draft) -> None:
        """Serve waiting jobs in the rule's order, one failure per class of equivalent jobs."""
        failed: set[object] = set()
        self._no_room.clear()
        waiting = [live for live in self._waiting if live.placement is None]
        for live in sorted(waiting, key=lambda live: (*self._rule.order(live, draft.now_s), live.seq)):
            job_class = (self._allocator.equivalence_key(live), live.job.model, live.job.labels, live.job.priority)
            if job_class in failed:
                continue
            reason = self._place(draft, live, job_class)
            if reason is not None:
                failed.add(job_class)
                draft.because(live, reason)

    def _next_plan_s(self, now_s: float) -> float:
        """Return when a waiting job may be placed without any event."""
        stage, rule = self._allocator.stage, self._rule
        regroup_s = self._regroup_s if self._waiting and rule.regroup_s < math.inf else math.inf
        times_s = (min(stage(live, now_s)[1], rule.next_admission_s(live, now_s)) for live in self._waiting)
        return min([regroup_s, *times_s])

    def _regroup(self, draft: Draft) -> None:
        """Form the groups of all running and waiting jobs from scratch."""
        self._regroup_s = draft.now_s + self._rule.regroup_s
        held = [
            live
            for _, jobs in self._groups.groups()
            if all(live.is_settled and draft.may_preempt(live) for live in jobs)
            for live in jobs
        ]
        able = [live for live in (*held, *self._waiting) if self._rule.is_shareable(live.job)]
        able.sort(key=lambda live: (*self._rule.order(live, draft.now_s), live.seq))
        device_sets = {self._groups.devices_of(live) for live in able} - {None}
        devices = sum(mask.bit_count() for each in device_sets for _, mask in each or ())

        def together(one: LiveJob, other: LiveJob) -> bool:
            own = self._groups.devices_of(one)
            return own is not None and own == self._groups.devices_of(other)

        formed = self._rule.form_groups(able, devices + draft.inventory.free, together)

        def place(live: LiveJob, home: DeviceSet | None) -> DeviceSet | None:
            if home is None:
                offered = self._rule.find_free(live, draft, self._groups)
                if not isinstance(offered, Reason):
                    self._take(draft, live, offered)
            else:
                hosts = self._groups.at(home)
                there = on_devices_of(live.job, hosts[0], draft.inventory)
                if there is not None and self._rule.can_run_with(live, hosts, _device_type(there, draft)):
                    self._colocate(draft, live, hosts, there)
            return self._groups.devices_of(live)

        regroup(draft, able, formed, self._groups, place)

    def _migrate(self, draft: Draft) -> None:
        """Move jobs that the rule selects from their group to free devices, the largest groups first."""
        shared = (jobs for _, jobs in self._groups.groups() if len(jobs) > 1)
        for jobs in sorted(shared, key=lambda jobs: (-len(jobs), jobs[0].seq)):
            if not all(live.is_settled and self._rule.is_shareable(live.job) for live in jobs):
                continue
            selected = self._rule.select_to_move(jobs, jobs_wait=bool(self._waiting))
            if selected is None or not draft.may_preempt(selected):
                continue
            there = self._rule.find_free(selected, draft, self._groups)
            if not isinstance(there, Reason):
                draft.move(selected, there)
                self._index(selected)

    def _is_in_transition(self, devices: DeviceSet) -> bool:
        """Return whether the driver has still to answer an order for a group, which causes the next plan."""
        return not all(live.is_settled for live in self._groups.at(devices))

    def _place(self, draft: Draft, live: LiveJob, job_class: Hashable) -> Reason | None:
        """Place a job on free devices, co-locate it, or preempt victims for it; return why if all three fail."""
        key = (self._allocator.equivalence_key(live), self._rule.placement_key(live.job))
        known = self._no_room.get(key)
        offered = known or self._rule.find_free(live, draft, self._groups)
        if not isinstance(offered, Reason):
            self._take(draft, live, offered)
            return None
        if self._rule.is_shareable(live.job) and self._join_best(draft, live, job_class):
            return None
        if known is None and self._preempt(draft, live):
            self._no_room.clear()
            return None
        self._no_room[key] = offered
        return offered

    def _take(self, draft: Draft, live: LiveJob, offered: Placement) -> None:
        """Assign a placement that the rule found, and recompute the fractions of all jobs on the same devices."""
        draft.assign_offered(live, offered)
        self._index(live)
        own = self._groups.devices_of(live)
        for devices in dict.fromkeys([own, *self._groups.overlapping(live)] if own else []):
            jobs = self._groups.at(devices)
            if all(can_resize(each, draft) for each in jobs):
                self._recompute(draft, jobs)

    # -- co-location -----------------------------------------------------------------------------

    def _join_best(self, draft: Draft, live: LiveJob, job_class: Hashable) -> bool:
        """Co-locate a job with the group of the lowest cost that has room for it; return whether there is one."""
        found: list[tuple[tuple[float, ...], int, list[LiveJob], Placement]] = []
        candidates = self._refusals.candidates(job_class, self._groups.device_sets)
        for devices in list(candidates):
            hosts = self._groups.at(devices)
            if hosts and not all(live.is_settled for live in hosts):
                continue
            admitted = self._admitted(draft, live, hosts)
            if admitted is not None:
                found.append((admitted[0], hosts[0].seq, hosts, admitted[1]))
            elif self._rule.refusals_stand:
                del candidates[devices]
        for _, _, hosts, there in sorted(found, key=lambda entry: entry[:2]):
            if self._colocate(draft, live, hosts, there):
                return True
        return False

    def _admitted(
        self, draft: Draft, live: LiveJob, hosts: Sequence[LiveJob]
    ) -> tuple[tuple[float, ...], Placement] | None:
        """Return the cost of co-locating a job with a group and its placement there; None if it is refused."""
        if not hosts or not all(self._rule.is_shareable(host.job) for host in hosts):
            return None
        there = on_devices_of(live.job, hosts[0], draft.inventory)
        if there is None:
            return None
        node = draft.inventory.nodes[there[0].node].node
        cost = self._rule.admit(live, hosts, node.device_type, draft.now_s)
        if cost is None or not self._rule.fits_memory(live, hosts, node.device_memory_bytes):
            return None
        return cost, there

    def _colocate(self, draft: Draft, live: LiveJob, hosts: list[LiveJob], there: Placement) -> bool:
        """Resize the hosts and assign a job the rest of their devices; return whether the draft allows it."""
        mark = draft.mark()
        *of_hosts, own = self._rule.fractions([*hosts, live], draft.now_s, room_milli(hosts, draft), self._groups)
        *memory_of_hosts, memory = self._rule.memory_fractions([*hosts, live], _memory_bytes(there, draft))
        try:
            self._apply(draft, hosts, of_hosts, memory_of_hosts)
            placement = with_fraction(live.job, there, own, time_sliced=self._rule.time_sliced, memory_milli=memory)
            draft.assign(live, placement)
        except PlanRefused:
            draft.undo(mark)
            return False
        self._index(live)
        return True

    def _recompute(self, draft: Draft, jobs: Sequence[LiveJob]) -> None:
        """Give each job of a group the fraction that the rule computes, if the draft allows it."""
        mark = draft.mark()
        try:
            if jobs and all(self._rule.is_shareable(live.job) for live in jobs):
                memory = self._rule.memory_fractions(jobs, _memory_bytes(jobs[0].placement or (), draft))
                fractions = self._rule.fractions(jobs, draft.now_s, room_milli(jobs, draft), self._groups)
                self._apply(draft, jobs, fractions, memory)
                return
            for live in jobs:
                after = self._rule.throttled(live, self._groups)
                if after != live.placement:
                    draft.share(live, after)
        except PlanRefused:
            draft.undo(mark)

    def _apply(self, draft: Draft, jobs: Sequence[LiveJob], fractions: Sequence[int], memory: Sequence[int]) -> None:
        """Resize the jobs of a group, those that shrink first so that there is room for those that grow."""
        changed = []
        for live, fraction, kept in zip(jobs, fractions, memory, strict=True):
            assert live.placement is not None
            after = with_fraction(
                live.job, live.placement, fraction, time_sliced=self._rule.time_sliced, memory_milli=kept
            )
            if after != live.placement:
                changed.append((fraction - live.placement[0].milli, live.seq, live, after))
        for _, _, live, after in sorted(changed, key=lambda entry: entry[:2]):
            draft.share(live, after)

    # -- preemption ------------------------------------------------------------------------------

    def _preempt(self, draft: Draft, live: LiveJob) -> bool:
        """Stop victims one by one until a job fits, then spare those whose devices it does not use."""
        if not live.job.preempts:
            return False
        mark = draft.mark()
        held: dict[LiveJob, Placement] = {}
        offered: Placement | Reason | None = None
        for victim in self._rule.victims(live, list(self._holders)):
            if victim.is_leaving or not victim.held or not draft.may_preempt(victim):
                continue
            held[victim] = victim.held
            draft.release(victim)
            self._groups.rekey(victim)
            offered = self._rule.find_free(live, draft, self._groups)
            if not isinstance(offered, Reason):
                break
        if offered is None or isinstance(offered, Reason):
            self._restore(draft, mark, held)
            return False
        spared = [victim for victim, place in held.items() if not meet(place, offered)]
        self._restore(draft, mark, held)
        stopped = [victim for victim in held if victim not in spared]
        self._take(draft, live, self._room_after(draft, live, stopped, spared))
        return True

    def _room_after(
        self, draft: Draft, live: LiveJob, victims: Sequence[LiveJob], spared: Sequence[LiveJob]
    ) -> Placement:
        """Stop the victims and return a placement for a job; stop the spared ones too if that is not enough."""
        for victim in victims:
            self._stop(draft, victim)
        offered = self._rule.find_free(live, draft, self._groups)
        if isinstance(offered, Reason):
            for victim in spared:
                self._stop(draft, victim)
            offered = self._rule.find_free(live, draft, self._groups)
        assert not isinstance(offered, Reason), "the job fits after all of these preemptions"
        return offered

    def _stop(self, draft: Draft, victim: LiveJob) -> None:
        """Stop a job and mark the groups on its devices as changed."""
        draft.release(victim)
        self._note_changed(self._groups.rekey(victim))

    def _restore(self, draft: Draft, mark: int, victims: Iterable[LiveJob]) -> None:
        """Undo the draft to the mark and index the victims by the devices they hold again."""
        draft.undo(mark)
        for victim in victims:
            self._groups.rekey(victim)


def _device_type(placement: Placement, draft: Draft) -> DeviceType:
    return draft.inventory.nodes[placement[0].node].node.device_type


def _memory_bytes(placement: Placement, draft: Draft) -> int | None:
    """Return the memory of the smallest device of a placement; None where memory is not counted."""
    counted = [draft.inventory.nodes[slot.node].node.device_memory_bytes for slot in placement]
    return min((memory for memory in counted if memory is not None), default=None)
