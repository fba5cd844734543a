"""Gangs that come pod by pod, as Kubernetes brings them, and preemption in phases.

The first pod of a gang decides for all; the others take the places that it left for them. A gang that has to
preempt reserves its devices at once and has them when those who were told to go are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NewType

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.cells import CellPlan, CellTypeName, PinnedId
from rota.core.model.job import OPPORTUNISTIC, TenantId
from rota.tenancy.cells.books import Books
from rota.tenancy.cells.claims import Claim, Seat
from rota.tenancy.cells.recovery import HeldDevice, recover
from rota.tenancy.cells.schedule import GangPlan, GangRequest, Refusal, Scheduler, downgrade
from rota.tenancy.cells.tree import Physical, Virtual

PodId = NewType("PodId", str)
GroupId = NewType("GroupId", str)

HIGHEST_PRIORITY = 1000


class PodRefused(RotaError):
    """A pod asks for something that can never be."""


class Phase(Enum):
    """Whether a call may start a preemption, or only report that one is needed."""

    FILTERING = "Filtering"
    PREEMPTING = "Preempting"


class GroupState(Enum):
    """Where a gang stands; the values are the words of HiveD's API."""

    ALLOCATED = "Allocated"
    PREEMPTING = "Preempting"
    BEING_PREEMPTED = "BeingPreempted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpec:
    """What a pod asks for. `members` are (pods, devices each) of its whole gang; empty means a gang of itself."""

    tenant: TenantId
    priority: int
    devices: int
    leaf_type: CellTypeName | None = None
    pinned: PinnedId | None = None
    group: GroupId | None = None
    members: tuple[tuple[int, int], ...] = ()
    lazy: bool = False
    ignores_suggestions: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """Where one pod of a gang runs: what survives a restart."""

    node: str
    indexes: tuple[int, ...]
    root_types: tuple[CellTypeName | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """The pod goes here. `records` are the places of the whole gang, `place` is the pod's among them."""

    node: str
    indexes: tuple[int, ...]
    chain: CellTypeName
    group: GroupId
    place: int
    records: tuple[TaskRecord, ...]
    plan: GangPlan | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt:
    """These pods have to go first."""

    victims: tuple[PodId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing can be done now, and why."""

    why: str


Answer = Bind | Preempt | Wait


@dataclass(slots=True, eq=False)
class Group:
    """A gang that has devices, or reserves them."""

    name: GroupId
    claim: Claim
    records: tuple[TaskRecord, ...]
    chain: CellTypeName
    ignores_suggestions: bool
    pods: list[PodId | None]
    waiting: dict[PodId, None] = field(default_factory=dict)
    """Pods of a gang that is still preempting."""

    @property
    def state(self) -> GroupState:
        """Where it stands."""
        if self.claim.reserves:
            return GroupState.PREEMPTING
        return GroupState.BEING_PREEMPTED if self.claim.evicted else GroupState.ALLOCATED

    @property
    def bound(self) -> list[PodId]:
        """Its pods that have their places."""
        return [pod for pod in self.pods if pod is not None]


class Gangs:
    """All gangs on a cluster of cells."""

    def __init__(self, plan: CellPlan) -> None:
        self.books = Books(plan)
        self._scheduler = Scheduler(self.books)
        self.groups: dict[GroupId, Group] = {}
        self._group_of: dict[Claim, Group] = {}

    # -- pods ------------------------------------------------------------------------------------

    def schedule(self, pod: PodId, spec: PodSpec, phase: Phase, suggested: Collection[str] | None = None) -> Answer:
        """Where a pod goes, who must go first, or why it waits. Only `commit` lets it have its place."""
        name = spec.group or GroupId(pod)
        group = self.groups.get(name)
        ignores = group.ignores_suggestions if group is not None else spec.ignores_suggestions
        allowed = None if ignores else suggested
        _refuse_nonsense(spec)
        if group is not None:
            if group.state is GroupState.PREEMPTING and phase is Phase.PREEMPTING and self._is_stranded(group, allowed):
                self._cancel(group)
            else:
                return self._join(group, pod, spec)
        self._refuse_unowned(spec)
        return self._found(name, pod, spec, phase, allowed)

    def commit(self, pod: PodId, spec: PodSpec, bind: Bind) -> None:
        """The pod is bound as it was told."""
        group = self.groups.get(bind.group)
        if group is None:
            if bind.plan is None:
                raise PodRefused(f"pod {pod}: its group {bind.group!r} is gone")
            group = self._admit(bind, bind.plan, spec)
        group.claim.reserves = False
        group.waiting.clear()
        group.pods[bind.place] = pod

    def recover(self, pod: PodId, spec: PodSpec, bind: Bind) -> None:
        """A pod was bound before the scheduler started."""
        group = self.groups.get(bind.group)
        if group is None:
            claim = _claim(spec, bind.group)
            held = [
                HeldDevice(chain=bind.chain, node=record.node, index=index, root_type=root_type)
                for record in bind.records
                for index, root_type in zip(record.indexes, record.root_types, strict=True)
            ]
            recover(self.books, claim, held)
            group = self._remember(bind, claim, spec.ignores_suggestions)
        group.pods[bind.place] = pod

    def delete(self, pod: PodId, spec: PodSpec) -> None:
        """A pod is gone, bound or not; with the last one its group ends."""
        group = self.groups.get(spec.group or GroupId(pod))
        if group is None:
            return
        group.waiting.pop(pod, None)
        group.pods = [None if other == pod else other for other in group.pods]
        if group.state is GroupState.PREEMPTING:
            if not group.waiting:
                self._cancel(group)
        elif not group.bound:
            self._end(group)

    # -- what users see --------------------------------------------------------------------------

    def promised(self, tenant: TenantId, chain: CellTypeName) -> list[Virtual]:
        """A tenant's own cells of a chain, pinned ones left out."""
        self.books.settle()
        estate = self.books.forest.estates.get(tenant)
        return [] if estate is None else estate.roots.get(chain, [])

    # -- the first pod and the others ------------------------------------------------------------

    def _join(self, group: Group, pod: PodId, spec: PodSpec) -> Answer:
        """A pod of a gang whose places are decided."""
        place = next(
            (
                at
                for at, record in enumerate(group.records)
                if len(record.indexes) == spec.devices and group.pods[at] is None
            ),
            None,
        )
        if place is None:
            raise PodRefused(
                f"pod {pod}: group {group.name!r} has all its pods of {spec.devices} devices; name another group"
            )
        if group.claim.evicted:
            return Wait(why=f"group {group.name} is being preempted")
        if group.claim.reserves:
            group.waiting[pod] = None
            victims = self._victims(group.claim.seats)
            if victims:
                return Preempt(victims=victims)
        return _bind(group.name, group.chain, group.records, place, None)

    def _found(self, name: GroupId, pod: PodId, spec: PodSpec, phase: Phase, allowed: Collection[str] | None) -> Answer:
        """The first pod of a gang decides for all of them."""
        request = _request(spec, name)
        plan = self._scheduler.plan(request, allowed)
        if isinstance(plan, Refusal):
            return Wait(why=_sentence(plan, spec))
        records = _records(plan)
        place = next(at for at, record in enumerate(records) if len(record.indexes) == spec.devices)
        chain = plan.tasks[0][0][0].chain
        if not plan.victims:
            return _bind(name, chain, records, place, plan)
        victims = tuple(pod for claim in plan.victims for pod in self._group_of[claim].bound)
        if phase is Phase.PREEMPTING:
            bind = _bind(name, chain, records, place, plan)
            group = self._reserve(bind, plan, spec)
            group.waiting[pod] = None
        return Preempt(victims=victims)

    def _admit(self, bind: Bind, plan: GangPlan, spec: PodSpec) -> Group:
        """A new gang takes its devices; weaker reservations of them end."""
        for weaker in plan.cancelled:
            self._cancel(self._group_of[weaker])
        for claim in plan.downgraded:
            downgrade(self.books, claim, bind.group)
        claim = _claim(spec, bind.group)
        claim.seats = plan.seats
        self.books.occupy(claim, claim.seats)
        return self._remember(bind, claim, spec.ignores_suggestions)

    def _reserve(self, bind: Bind, plan: GangPlan, spec: PodSpec) -> Group:
        """A new gang holds its devices from now on; those on them have been told to go."""
        for weaker in plan.cancelled:
            self._cancel(self._group_of[weaker])
        for claim in plan.downgraded:
            downgrade(self.books, claim, bind.group)
        claim = _claim(spec, bind.group)
        claim.reserves = True
        claim.seats = plan.seats
        wanted = {leaf for leaf, _ in claim.seats}
        for victim in plan.victims:
            taken = [seat for seat in victim.seats if seat[0] in wanted and seat[0].claim is victim]
            self.books.vacate(victim, taken)
            for leaf, _ in taken:
                leaf.displaced = victim
            victim.evicted = True
        self.books.occupy(claim, claim.seats)
        return self._remember(bind, claim, spec.ignores_suggestions)

    def _remember(self, bind: Bind, claim: Claim, ignores: bool) -> Group:
        group = Group(bind.group, claim, bind.records, bind.chain, ignores, [None] * len(bind.records))
        self.groups[bind.group] = group
        self._group_of[claim] = group
        return group

    # -- ends ------------------------------------------------------------------------------------

    def _victims(self, seats: Sequence[Seat]) -> tuple[PodId, ...]:
        """Pods of the gangs that are still on these devices."""
        gangs = {leaf.displaced: None for leaf, _ in seats if leaf.displaced is not None}
        return tuple(pod for claim in gangs for pod in self._group_of[claim].bound)

    def _is_stranded(self, group: Group, allowed: Collection[str] | None) -> bool:
        """Whether a reservation lies on a node that is bad or not suggested."""
        return any(leaf.bad or (allowed is not None and leaf.node not in allowed) for leaf, _ in group.claim.seats)

    def _cancel(self, group: Group) -> None:
        """A reservation ends; who is still there keeps what it has."""
        claim = group.claim
        self._forget(group)
        self.books.vacate(claim, claim.seats)
        spared: dict[Claim, list[Physical]] = {}
        for leaf, _ in claim.seats:
            if leaf.displaced is not None:
                spared.setdefault(leaf.displaced, []).append(leaf)
                leaf.displaced = None
        for victim, leaves in spared.items():
            back = set(leaves)
            self.books.occupy(victim, [seat for seat in victim.seats if seat[0] in back])
            victim.evicted = any(leaf.displaced is victim for leaf, _ in victim.seats)

    def _end(self, group: Group) -> None:
        claim = group.claim
        self._forget(group)
        self.books.vacate(claim, [seat for seat in claim.seats if seat[0].claim is claim])
        for leaf, _ in claim.seats:
            if leaf.displaced is claim:
                leaf.displaced = None

    def _forget(self, group: Group) -> None:
        del self.groups[group.name]
        del self._group_of[group.claim]

    # -- requests --------------------------------------------------------------------------------

    def _refuse_unowned(self, spec: PodSpec) -> None:
        """Only a new gang needs a tenant that owns what it asks for: one that runs may have outlived it."""
        forest = self.books.forest
        estate = forest.estates.get(spec.tenant)
        if estate is None:
            raise PodRefused(f"unknown virtual cluster {spec.tenant!r}; {did_you_mean(spec.tenant, forest.estates)}")
        if spec.pinned is not None:
            if spec.pinned not in estate.pinned:
                known = did_you_mean(spec.pinned, estate.pinned)
                raise PodRefused(f"virtual cluster {spec.tenant!r} has no pinned cell {spec.pinned!r}; {known}")
            if spec.priority == OPPORTUNISTIC:
                raise PodRefused(f"pinnedCellId is {spec.pinned!r}; opportunistic pods can't ask for a pinned cell")
        elif spec.leaf_type is not None:
            self._refuse_type(spec, spec.leaf_type)

    def _refuse_type(self, spec: PodSpec, wanted: CellTypeName) -> None:
        chains = self.books.forest.chains
        types = {chain.leaf_type for chain in chains.values()}
        if wanted not in types:
            raise PodRefused(f"unknown leafCellType {wanted!r}; {did_you_mean(wanted, types)}")
        roots = self.books.forest.estates[spec.tenant].roots
        if spec.priority > OPPORTUNISTIC and all(chains[name].leaf_type != wanted for name in roots):
            owned = did_you_mean(wanted, {chains[name].leaf_type for name in roots})
            raise PodRefused(f"virtual cluster {spec.tenant!r} has no {wanted!r}; {owned}")


def _refuse_nonsense(spec: PodSpec) -> None:
    if not OPPORTUNISTIC <= spec.priority <= HIGHEST_PRIORITY:
        raise PodRefused(f"priority is {spec.priority}; it must lie between -1 and {HIGHEST_PRIORITY}")
    if spec.devices <= 0:
        raise PodRefused(f"leafCellNumber is {spec.devices}; it must be at least 1")
    if any(pods <= 0 or devices <= 0 for pods, devices in spec.members):
        raise PodRefused("affinityGroup.members: every podNumber and leafCellNumber must be at least 1")
    if spec.members and all(devices != spec.devices for _, devices in spec.members):
        raise PodRefused(f"affinityGroup.members has no entry with the pod's leafCellNumber, {spec.devices}")


def _request(spec: PodSpec, name: GroupId) -> GangRequest:
    members = spec.members or ((1, spec.devices),)
    sizes = sorted(devices for pods, devices in members for _ in range(pods))
    return GangRequest(
        name=name,
        tenant=spec.tenant,
        priority=spec.priority,
        sizes=tuple(sizes),
        leaf_types=() if spec.leaf_type is None else (spec.leaf_type,),
        pinned=spec.pinned,
        lazy=spec.lazy,
    )


def _claim(spec: PodSpec, name: GroupId) -> Claim:
    return Claim(name=name, tenant=spec.tenant, priority=spec.priority, lazy=spec.lazy, pinned=spec.pinned)


def _records(plan: GangPlan) -> tuple[TaskRecord, ...]:
    return tuple(
        TaskRecord(
            node=task[0][0].nodes[0],
            indexes=tuple(leaf.index for leaf, _ in task),
            root_types=tuple(None if virtual is None else virtual.root.type for _, virtual in task),
        )
        for task in plan.tasks
    )


def _bind(
    name: GroupId, chain: CellTypeName, records: tuple[TaskRecord, ...], place: int, plan: GangPlan | None
) -> Bind:
    record = records[place]
    return Bind(
        node=record.node, indexes=record.indexes, chain=chain, group=name, place=place, records=records, plan=plan
    )


def _sentence(refusal: Refusal, spec: PodSpec) -> str:
    return (
        f"needs {refusal.need} devices, {refusal.room} of {refusal.owned} in {spec.tenant} could be had: "
        f"{refusal.obstacle.value}"
    )
