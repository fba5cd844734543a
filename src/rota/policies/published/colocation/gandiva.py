"""Gandiva: time slices, packing by trial, migration and growth, all by what is seen (Xiao et al., OSDI 2018)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.engine.protocols import Allocator, Changes, Policy
from rota.core.errors import PlanRefused, RotaError
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import WHOLE, Job
from rota.core.model.placement import Placement
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.mechanisms.colocation.groups import DeviceGroups, Seats, beside, follow, is_settled
from rota.mechanisms.colocation.groups import may_share as may_share_parts
from rota.mechanisms.colocation.growth import Growth
from rota.mechanisms.colocation.time_slicing import TimeSlices, has_all, is_resting
from rota.mechanisms.constrained_job import on_node
from rota.mechanisms.declare import DeclaredPolicy, Knowledge, Traits


@dataclass(frozen=True, slots=True, kw_only=True)
class GandivaParams:
    """A slice takes `quantum_s`; at most `most` jobs share devices. `pack`, `migrate` and `grow` can be left out.

    Elastic jobs grow on their node when nobody has waited for `grow_after_s`.
    """

    quantum_s: float = 60.0
    most: int = 4
    pack: bool = True
    migrate: bool = True
    grow: bool = True
    grow_after_s: float = 300.0

    def __post_init__(self) -> None:
        if not 0 < self.quantum_s < math.inf:
            raise RotaError(f"quantum_s is {self.quantum_s:g}; it must be above 0")
        if self.most < 1:
            raise RotaError(f"most is {self.most}; it must be at least 1")


class Gandiva:
    """First in first out onto nodes with jobs of the same size; who finds no devices shares some in slices."""

    suspends = True

    def __init__(self, params: GandivaParams, allocator: Allocator) -> None:
        self._params = params
        self._allocator = allocator
        self._forget()

    def _forget(self) -> None:
        self._waiting: dict[LiveJob, None] = {}
        self._guests = DeviceGroups()
        self._slices = TimeSlices(self._params.quantum_s, packs=self._params.pack)
        self._growth = Growth(self._params.grow_after_s)
        self._elastic: dict[LiveJob, None] = {}
        """Who holds devices and may be resized."""
        self._due_s: dict[Seats, float] = {}
        """When to look after a group again though nothing happens."""
        self._changed = False
        self._relax_s = math.inf
        """When somebody who waits asks for less."""
        self._loads: dict[int, tuple[set[int], int]] = {}
        """By node the sizes of the jobs there and how many devices they want."""
        self._counted_at = 0
        """How often groups had changed when that was counted."""
        self.wakeup_s = math.inf

    @property
    def memory(self) -> Any:
        """What was seen of speeds and pairs, and how long nobody has waited."""
        return {"policy": "gandiva", "slices": self._slices.memory, "idle_s": self._growth.idle_since_s}

    # -- what the engine tells -------------------------------------------------------------------

    def adopt(self, state: State) -> None:
        """Index a state anew."""
        self._forget()
        if isinstance(state.memory, dict) and state.memory.get("policy") == "gandiva":
            self._slices.recall(state.memory["slices"])
            self._growth.idle_since_s = state.memory["idle_s"]
        for live in state.jobs.values():
            self._hold(live)
            if live.is_contending and live.placement is None:
                self._waiting[live] = None
        self._changed = bool(state.jobs)
        self.wakeup_s = state.now_s if state.jobs else math.inf

    def note(self, changes: Changes, now_s: float) -> None:
        """Keep the groups true; decide nothing yet."""
        follow(changes, self._waiting, self._hold, self._slices.left)
        for live in changes.started:
            self._hold(live)
            self._slices.saw(live)
            seats = self._guests.seats(live)
            if seats:
                self._due_s[seats] = self.wakeup_s = now_s
            self._changed |= bool(self._waiting) or live.job.elastic is not None
        if changes.arrived or changes.left or changes.freed or changes.shrunk:
            self._changed = True

    def _hold(self, live: LiveJob) -> None:
        self._due_s.update(dict.fromkeys(self._guests.rekey(live), -math.inf))
        if live.job.elastic is not None:
            self._elastic.pop(live, None)
            if live.placement is not None:
                self._elastic[live] = None

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """Why there are no free devices; that no group has room follows from it."""
        offered = draft.offer(waiting)
        return offered if isinstance(offered, Reason) else Reason(code=ReasonCode.ROUND)

    # -- the plan --------------------------------------------------------------------------------

    def plan(self, draft: Draft) -> None:
        """Slices that are over, then who waits, then better places for those who share or are split."""
        self._changed |= self._relax_s <= draft.now_s
        is_changed = self._changed
        self._turn(draft)
        if self._changed or self._growth.due_s <= draft.now_s:
            self._changed = False
            self._place(draft)
            if self._params.migrate and not self._waiting:
                self._spread_out(draft)
                self._gather(draft)
            if self._params.grow:
                self._growth.tend(draft, list(self._elastic), somebody_waits=bool(self._waiting))
        for live in draft.touched:
            self._hold(live)
        if is_changed:
            stage = self._allocator.stage
            self._relax_s = min((stage(live, draft.now_s)[1] for live in self._waiting), default=math.inf)
        slices_s = (due_s for due_s in self._due_s.values() if due_s > draft.now_s)
        self.wakeup_s = min([self._growth.due_s, self._relax_s, *slices_s])

    def _turn(self, draft: Draft) -> None:
        """Look after the groups whose slice is over, and those that changed."""
        for seats in [seats for seats, due_s in self._due_s.items() if due_s <= draft.now_s]:
            jobs = _sharers(self._guests.at(seats))
            found = self._slices.tend(draft, jobs) if jobs else None
            if found is None or found == math.inf:
                del self._due_s[seats]
            else:
                self._due_s[seats] = found

    def _place(self, draft: Draft) -> None:
        failed: set[object] = set()
        for live in sorted(self._waiting, key=lambda live: live.seq):
            shape = self._allocator.equivalence_key(live)
            if shape in failed:
                continue
            reason = self._seat(draft, live)
            if reason is None:
                del self._waiting[live]
                self._hold(live)
            else:
                failed.add(shape)
                draft.because(live, reason)

    def _seat(self, draft: Draft, live: LiveJob) -> Reason | None:
        there = self._affine(draft.inventory, live) or draft.offer(live)
        if not isinstance(there, Reason):
            draft.assign(live, there)
            return None
        return None if may_share(live.job) and self._oversubscribe(draft, live) else there

    def _affine(self, inventory: Inventory, live: LiveJob) -> Placement | None:
        """On a node where all jobs are of this size, the least loaded first; else on one that nobody uses."""
        if not may_share(live.job):
            return None
        loads, wanted = self._counted(), live.job.gpu_milli // WHOLE
        able = [node for node, books in enumerate(inventory.nodes) if books.free >= wanted]
        like = [node for node in able if node in loads and loads[node][0] == {live.job.gpu_milli}]
        idle = [node for node in able if node not in loads]
        for node in (*sorted(like, key=lambda node: (loads[node][1], node)), *idle):
            found = on_node(inventory, live.job, node)
            if found is not None:
                return found
        return None

    def _counted(self) -> dict[int, tuple[set[int], int]]:
        if self._counted_at != self._guests.changes:
            self._loads, self._counted_at = {}, self._guests.changes
            for seats, jobs in self._guests.groups():
                for node, devices in seats:
                    sizes, load = self._loads.get(node, (set(), 0))
                    self._loads[node] = (sizes | {jobs[0].job.gpu_milli}, load + devices.bit_count() * len(jobs))
        return self._loads

    def _oversubscribe(self, draft: Draft, live: LiveJob) -> bool:
        """Begin a slice on devices that others have, where fewest are."""
        found = []
        for _, jobs in self._guests.groups():
            if len(jobs) >= self._params.most or jobs[0].suspended_on is not None:
                continue
            there = beside(live.job, jobs[0], draft.inventory)
            if there is None:
                continue
            if all(may_share(each.job) and (is_settled(each) or is_resting(each)) for each in jobs):
                found.append((len(jobs), jobs[0].seq, jobs, there))
        for _, _, jobs, there in sorted(found, key=lambda entry: entry[:2]):
            mark = draft.mark()
            try:
                self._slices.make_room(draft, jobs)
                draft.assign(live, there)
            except PlanRefused:
                draft.undo(mark)
                continue
            return True
        return False

    # -- migration -------------------------------------------------------------------------------

    def _spread_out(self, draft: Draft) -> None:
        """Free devices for those who share theirs: who rests, or came last to a pair, in the largest groups first."""
        groups = sorted((jobs for _, jobs in self._guests.groups()), key=lambda jobs: (-len(jobs), jobs[0].seq))
        for jobs in map(_sharers, groups):
            if not jobs or any(map(draft.alters, jobs)):
                continue
            last = max(jobs, key=lambda live: (is_resting(live), live.seq))
            if is_resting(last) or (is_settled(last) and not has_all(last)):
                self._move(draft, last, self._elsewhere(draft, last))

    def _gather(self, draft: Draft) -> None:
        """One node for jobs that are split over several, where one has room for all of it."""
        for _, jobs in list(self._guests.groups()):
            (live, *others) = jobs
            nodes = {slot.node for slot in live.placement or ()}
            if others or len(nodes) < 2 or not is_settled(live) or not may_share(live.job) or draft.alters(live):
                continue
            mark = draft.mark()
            draft.release(live)
            there = self._affine(draft.inventory, live)
            draft.undo(mark)
            self._move(draft, live, there)

    def _elsewhere(self, draft: Draft, live: LiveJob) -> Placement | None:
        found = self._affine(draft.inventory, live) or draft.offer(live)
        return None if isinstance(found, Reason) else found

    def _move(self, draft: Draft, live: LiveJob, there: Placement | None) -> None:
        if there is None:
            return
        draft.move(live, there)
        self._hold(live)


def may_share(job: Job) -> bool:
    """Whether a job can have slices of whole devices."""
    return may_share_parts(job) and not job.roles[0].is_fraction


def _sharers(jobs: list[LiveJob]) -> list[LiveJob]:
    """Those of a group who have slices of its devices; the others asked for a part of one."""
    return [live for live in jobs if may_share(live.job)]


def _make(values: GandivaParams, allocator: Allocator, knowledge: Knowledge) -> Policy:
    return Gandiva(values, allocator)


gandiva = DeclaredPolicy(
    name="gandiva",
    cites="Xiao et al., OSDI 2018",
    summary="Who finds no devices shares some in slices; pairs that run well together are packed, others migrate.",
    traits=Traits(
        scheduling_input="arrival order, observed speed",
        dimensions="time and space",
        preemption="suspend and resume, move",
        starvation="no",
        placement="by affinity of sizes; in turn, packed, migrated",
        intrusiveness="framework",
    ),
    params=GandivaParams,
    placement="consolidate",
    make=_make,
    whole_cluster=True,
)
