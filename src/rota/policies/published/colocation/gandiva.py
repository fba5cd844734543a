"""Gandiva: time slicing, packing by trial, migration and growth, all by introspection (Xiao et al., OSDI 2018)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.engine.protocols import Allocator, Capabilities, Changes, Policy
from rota.core.errors import PlanRefused, RotaError
from rota.core.messages.decisions import DecisionKind
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import WHOLE, Job
from rota.core.model.placement import Placement
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.mechanisms.colocation.groups import DeviceGroups, DeviceSet, follow, may_share, on_devices_of
from rota.mechanisms.colocation.growth import Growth
from rota.mechanisms.colocation.time_slicing import TimeSlices, has_whole_devices, makes_room
from rota.mechanisms.constrained_job import on_node
from rota.mechanisms.declare import MOVES, SHARES, DeclaredPolicy, Knowledge, Traits


@dataclass(frozen=True, slots=True, kw_only=True)
class GandivaParams:
    """A time slice takes `quantum_s`; at most `most` jobs share devices. `pack`, `migrate` and `grow` can be turned
    off.

    Where switching between jobs takes long, as when their memory is copied to the host, slices are so long that at most
    the part `switching` of the time is lost to it.

    Elastic jobs grow on their node when no job has waited for `grow_after_s`.
    """

    quantum_s: float = 60.0
    most: int = 4
    pack: bool = True
    migrate: bool = True
    grow: bool = True
    grow_after_s: float = 300.0
    switching: float = 0.05

    def __post_init__(self) -> None:
        if not 0 < self.quantum_s < math.inf:
            raise RotaError(f"quantum_s is {self.quantum_s:g}; it must be above 0")
        if not 0 < self.switching < math.inf:
            raise RotaError(f"switching is {self.switching:g}; it must be above 0")
        if self.most < 1:
            raise RotaError(f"most is {self.most}; it must be at least 1")


class Gandiva:
    """First in first out onto nodes with jobs of the same size; a job that finds no free devices is time-sliced."""

    capabilities = Capabilities(suspends=True, asks_guard=True, explains_turns=True)

    def __init__(self, params: GandivaParams, allocator: Allocator) -> None:
        self._params = params
        self._allocator = allocator
        self._reset()

    def _reset(self) -> None:
        self._waiting: dict[LiveJob, None] = {}
        self._groups = DeviceGroups()
        self._slices = TimeSlices(self._params.quantum_s, packs=self._params.pack, switching=self._params.switching)
        self._growth = Growth(self._params.grow_after_s)
        self._elastic: dict[LiveJob, None] = {}
        """Jobs that hold devices and may be resized."""
        self._due_s: dict[DeviceSet, float] = {}
        """When a group is due for its next slice or trial."""
        self._changed = False
        self._relax_s = math.inf
        """When the locality of a waiting job relaxes next."""
        self._loads: dict[int, tuple[set[int], int]] = {}
        """By node, the sizes of the jobs on it and the devices they request in total."""
        self._counted_at = 0
        """Number of group changes when the loads were counted."""
        self.wakeup_s = math.inf

    @property
    def memory(self) -> Any:
        """Observed speeds and pairs, and since when no job has waited."""
        return {"policy": "gandiva", "slices": self._slices.memory, "idle_s": self._growth.idle_since_s}

    # -- what the engine tells -------------------------------------------------------------------

    def adopt(self, state: State) -> None:
        """Rebuild all indexes from a state."""
        self._reset()
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
        """Update the groups and record speeds; decide nothing."""
        follow(changes, self._waiting, self._hold, self._slices.forget)
        for live in changes.started:
            self._hold(live)
            self._slices.observe(live, now_s)
            devices = self._groups.devices_of(live)
            if devices:
                self._due_s[devices] = self.wakeup_s = now_s
            self._changed |= bool(self._waiting) or live.job.elastic is not None
        if changes.arrived or changes.left or changes.freed or changes.shrunk:
            self._changed = True

    def _hold(self, live: LiveJob) -> None:
        self._due_s.update(dict.fromkeys(self._groups.rekey(live), -math.inf))
        if live.job.elastic is not None:
            self._elastic.pop(live, None)
            if live.placement is not None:
                self._elastic[live] = None

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """Return why there are no free devices; a group with room would have been used.

        Of a suspended job: which job has its turn, and for how long.
        """
        devices = self._groups.devices_of(waiting)
        if waiting.is_suspended and devices:
            return self._slices.explain(waiting, self._groups.at(devices))
        offered = draft.offer(waiting)
        return offered if isinstance(offered, Reason) else Reason(code=ReasonCode.ROUND)

    # -- the plan --------------------------------------------------------------------------------

    def plan(self, draft: Draft) -> None:
        """End time slices, place waiting jobs, then migrate jobs that share devices or span nodes, then grow."""
        self._changed |= self._relax_s <= draft.now_s
        is_changed = self._changed
        self._serve_groups(draft)
        if self._changed or self._growth.due_s <= draft.now_s:
            self._changed = False
            self._place(draft)
            if self._params.migrate and not self._waiting:
                self._spread(draft)
                self._defragment(draft)
            if self._params.grow:
                self._growth.resize(draft, list(self._elastic), jobs_wait=bool(self._waiting))
        for live in draft.touched:
            self._hold(live)
        if is_changed:
            stage = self._allocator.stage
            self._relax_s = min((stage(live, draft.now_s)[1] for live in self._waiting), default=math.inf)
        slices_s = (due_s for due_s in self._due_s.values() if due_s > draft.now_s)
        self.wakeup_s = min([self._growth.due_s, self._relax_s, *slices_s])

    def _serve_groups(self, draft: Draft) -> None:
        """Serve the groups that are due or have changed."""
        for devices in [devices for devices, due_s in self._due_s.items() if due_s <= draft.now_s]:
            jobs = _time_sliced(self._groups.at(devices))
            found = self._slices.serve(draft, jobs) if jobs else None
            if found is None or found == math.inf:
                del self._due_s[devices]
            else:
                self._due_s[devices] = found

    def _place(self, draft: Draft) -> None:
        failed: set[object] = set()
        for live in sorted(self._waiting, key=lambda live: live.seq):
            key = self._allocator.equivalence_key(live)
            if key in failed:
                continue
            reason = self._place_job(draft, live)
            if reason is None:
                del self._waiting[live]
                self._hold(live)
            else:
                failed.add(key)
                draft.because(live, reason)

    def _place_job(self, draft: Draft, live: LiveJob) -> Reason | None:
        there = self._find_affine(draft.inventory, live) or draft.offer(live)
        if not isinstance(there, Reason):
            draft.assign(live, there)
            return None
        return None if can_be_sliced(live.job) and self._oversubscribe(draft, live) else there

    def _find_affine(self, inventory: Inventory, live: LiveJob) -> Placement | None:
        """Return a placement on the least loaded node whose jobs all have this size, else on an empty node."""
        if not can_be_sliced(live.job):
            return None
        loads, wanted = self._node_loads(), live.job.gpu_milli // WHOLE
        able = [node for node, account in enumerate(inventory.nodes) if account.free >= wanted]
        like = [node for node in able if node in loads and loads[node][0] == {live.job.gpu_milli}]
        idle = [node for node in able if node not in loads]
        for node in (*sorted(like, key=lambda node: (loads[node][1], node)), *idle):
            found = on_node(inventory, live.job, node)
            if found is not None:
                return found
        return None

    def _node_loads(self) -> dict[int, tuple[set[int], int]]:
        if self._counted_at != self._groups.changes:
            self._loads, self._counted_at = {}, self._groups.changes
            for devices, jobs in self._groups.groups():
                for node, mask in devices:
                    sizes, load = self._loads.get(node, (set(), 0))
                    self._loads[node] = (sizes | {jobs[0].job.gpu_milli}, load + mask.bit_count() * len(jobs))
        return self._loads

    def _oversubscribe(self, draft: Draft, live: LiveJob) -> bool:
        """Begin a time slice on the devices of the smallest group that admits the job."""
        found = []
        for _, jobs in self._groups.groups():
            if len(jobs) >= self._params.most or jobs[0].suspended_on is not None:
                continue
            there = on_devices_of(live.job, jobs[0], draft.inventory)
            if there is None:
                continue
            if all(can_be_sliced(each.job) and (each.is_settled or each.is_suspended) for each in jobs) and all(
                makes_room(each) for each in jobs
            ):
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

    def _spread(self, draft: Draft) -> None:
        """Move a suspended job, or the last of a packed pair, to free devices, the largest groups first."""
        groups = sorted((jobs for _, jobs in self._groups.groups()), key=lambda jobs: (-len(jobs), jobs[0].seq))
        for jobs in map(_time_sliced, groups):
            if not jobs or any(map(draft.alters, jobs)):
                continue
            last = max(jobs, key=lambda live: (live.is_suspended, live.seq))
            if last.is_suspended or (last.is_settled and not has_whole_devices(last)):
                self._move(draft, last, self._find_free(draft, last))

    def _defragment(self, draft: Draft) -> None:
        """Move jobs that span several nodes to one node that has room for all of their tasks."""
        for _, jobs in list(self._groups.groups()):
            (live, *others) = jobs
            nodes = {slot.node for slot in live.placement or ()}
            if others or len(nodes) < 2 or not live.is_settled or not can_be_sliced(live.job) or draft.alters(live):
                continue
            mark = draft.mark()
            draft.release(live)
            there = self._find_affine(draft.inventory, live)
            draft.undo(mark)
            self._move(draft, live, there)

    def _find_free(self, draft: Draft, live: LiveJob) -> Placement | None:
        found = self._find_affine(draft.inventory, live) or draft.offer(live)
        return None if isinstance(found, Reason) else found

    def _move(self, draft: Draft, live: LiveJob, there: Placement | None) -> None:
        if there is None or not draft.may_preempt(live):
            return
        draft.move(live, there)
        self._hold(live)


def can_be_sliced(job: Job) -> bool:
    """Return whether a job can be time-sliced: it may share, and requests whole devices."""
    return may_share(job) and not job.roles[0].is_fraction


def _time_sliced(jobs: list[LiveJob]) -> list[LiveJob]:
    """Return the jobs of a group that are time-sliced; the others requested fractions."""
    return [live for live in jobs if can_be_sliced(live.job)]


def _make(values: GandivaParams, allocator: Allocator, knowledge: Knowledge) -> Policy:
    return Gandiva(values, allocator)


gandiva = DeclaredPolicy(
    name="gandiva",
    cites="Xiao et al., OSDI 2018",
    summary="Jobs that find no free devices are time-sliced; pairs that run well together are packed, others migrate.",
    traits=Traits(
        scheduling_input="arrival order, observed speed",
        dimensions="time and space",
        preemption="suspend and resume, move",
        starvation="no",
        placement="by affinity of sizes; time-sliced, packed, migrated",
        intrusiveness="framework",
    ),
    params=GandivaParams,
    placement="consolidate",
    make=_make,
    whole_cluster=True,
    emits=MOVES | SHARES | {DecisionKind.SUSPEND, DecisionKind.RESUME},
    packs=True,
)
