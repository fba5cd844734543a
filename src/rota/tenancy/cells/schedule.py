"""A request in, a plan out: devices, the virtual cells that they stand for, victims and downgraded gangs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from rota.core.model.cells import CellTypeName, PinnedId
from rota.core.model.job import OPPORTUNISTIC, TenantId
from rota.tenancy.cells.accounts import CellAccounts
from rota.tenancy.cells.claims import Claim, Seat
from rota.tenancy.cells.mapping import find_sites
from rota.tenancy.cells.packing import Packed, PackingFailure, PackingView, held
from rota.tenancy.cells.tree import Physical, Virtual


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRequest:
    """What a gang asks for: devices per task, where, and with what right."""

    name: str
    tenant: TenantId
    priority: int
    sizes: tuple[int, ...]
    leaf_types: tuple[CellTypeName, ...] = ()
    """Accepted device types, best first; none means any."""
    pinned: PinnedId | None = None
    lazy: bool = False

    @property
    def devices(self) -> int:
        """Devices of all tasks."""
        return sum(self.sizes)


class Obstacle(Enum):
    """What keeps a gang from its devices."""

    QUOTA = "quota"
    """Its tenant's cells are all in use at its priority or a higher one."""
    SHAPE = "shape"
    """Enough devices, but no cells of the shape that its tasks need."""
    BAD = "bad"
    """It would need a bad node."""
    NOT_SUGGESTED = "not-suggested"
    """It would need a node that was not suggested."""
    BUSY = "busy"
    """Without a guarantee, and too few devices are idle."""


_OBSTACLES = {
    PackingFailure.CAPACITY: Obstacle.SHAPE,
    PackingFailure.BAD: Obstacle.BAD,
    PackingFailure.NOT_SUGGESTED: Obstacle.NOT_SUGGESTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a gang waits: what it needs, what is available, and what its tenant owns in all."""

    obstacle: Obstacle
    need: int
    room: int
    owned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPlan:
    """Devices for each task, tasks in ascending order of size, and what has to happen before."""

    request: GangRequest
    tasks: tuple[tuple[Seat, ...], ...]
    victims: tuple[Claim, ...] = ()
    """Gangs that must go."""
    downgraded: tuple[Claim, ...] = ()
    """Gangs that lose their guarantee; those that are not victims as well continue to run."""

    @property
    def seats(self) -> list[Seat]:
        """The devices of all tasks."""
        return [seat for task in self.tasks for seat in task]


def downgrade(accounts: CellAccounts, claim: Claim, by: str) -> list[Seat]:
    """Let a gang continue without its guarantee. Return its former cells, for `upgrade`."""
    former = claim.seats
    held = [seat for seat in former if seat[0].claim is claim]
    accounts.vacate(claim, held)
    claim.downgraded_by = by
    claim.seats = [(leaf, None) for leaf, _ in former]
    accounts.occupy(claim, [(leaf, None) for leaf, _ in held])
    return former


def upgrade(accounts: CellAccounts, claim: Claim, former: list[Seat]) -> None:
    """Undo a downgrade."""
    held = [leaf for leaf, _ in claim.seats if leaf.claim is claim]
    accounts.vacate(claim, [(leaf, None) for leaf in held])
    claim.downgraded_by = None
    claim.seats = former
    mine = set(held)
    accounts.occupy(claim, [seat for seat in former if seat[0] in mine])


class Scheduler:
    """Makes plans. What it tries on the accounts, it undoes."""

    def __init__(self, accounts: CellAccounts) -> None:
        self._books = accounts
        self._virtual: dict[tuple[TenantId, CellTypeName | PinnedId], PackingView[Virtual]] = {}
        self._physical: dict[CellTypeName, PackingView[Physical]] = {}
        forest = accounts.forest
        for chain in forest.chains.values():
            self._physical[chain.name] = PackingView(chain.nodes, packs_all=False)
        for tenant, estate in forest.estates.items():
            for name, roots in estate.roots.items():
                level = forest.chains[name].node_level
                self._virtual[tenant, name] = PackingView(nodes_of(roots, level), packs_all=True)
            for pinned, root in estate.pinned.items():
                level = forest.chains[root.chain].node_level
                self._virtual[tenant, pinned] = PackingView(nodes_of([root], level), packs_all=True)

    def plan(
        self, request: GangRequest, suggested: Collection[str] | None = None, *, spares: bool = False
    ) -> GangPlan | Refusal:
        """Devices for a gang and what has to happen before it has them, or why it waits.

        The first chain that suffices is taken, as HiveD does; with `spares` the first without victims, if
        there is one.
        """
        self._books.settle()
        shortage = PackingFailure.CAPACITY
        harsh: GangPlan | None = None
        for chain in self.chains(request):
            found = (
                self._plan_own(request, chain, suggested)
                if request.priority > OPPORTUNISTIC
                else self._plan_idle(request, chain, suggested)
            )
            if isinstance(found, PackingFailure):
                shortage = found
            elif not spares or not (found.victims or found.downgraded):
                return found
            else:
                harsh = harsh or found
        return harsh or self._refusal(request, shortage)

    def chains(self, request: GangRequest) -> list[CellTypeName | PinnedId]:
        """Where to look, in order: the pinned cell, or the chains of the accepted types."""
        if request.pinned is not None:
            return [request.pinned]
        chains = self._books.forest.chains
        owned = chains if request.priority == OPPORTUNISTIC else self._books.forest.estates[request.tenant].roots
        names = sorted(owned, key=lambda name: (chains[name].leaf_type, name), reverse=True)
        if not request.leaf_types:
            return list(names)
        return [name for kind in request.leaf_types for name in names if chains[name].leaf_type == kind]

    def room(self, request: GangRequest) -> int:
        """Devices by count that the gang could take, in the chain that has most."""
        return max((self._room(request, chain) for chain in self.chains(request)), default=0)

    def _room(self, request: GangRequest, chain: CellTypeName | PinnedId) -> int:
        if request.pinned is not None:
            return self._virtual[request.tenant, chain].room(request.priority)
        if request.priority > OPPORTUNISTIC:
            roots = self._books.forest.estates[request.tenant].roots[CellTypeName(chain)]
            return sum(root.leaves - held(root, request.priority) for root in roots)
        tops = self._books.forest.chains[CellTypeName(chain)].tops
        return sum(top.leaves - held(top, OPPORTUNISTIC) for top in tops)

    def _owned(self, request: GangRequest, chain: CellTypeName | PinnedId) -> int:
        """Devices of a chain that the tenant owns; without a guarantee, all of them."""
        if request.priority == OPPORTUNISTIC:
            return sum(node.leaves for node in self._physical[CellTypeName(chain)].nodes)
        return sum(node.leaves for node in self._virtual[request.tenant, chain].nodes)

    def _best_chain(self, request: GangRequest) -> tuple[int, int]:
        """What is owned and available in the accepted chain with most room; 0 if there is none."""
        found = [(self._owned(request, chain), self._room(request, chain)) for chain in self.chains(request)]
        return max(found, key=lambda pair: (pair[0] >= request.devices, pair[1], pair[0]), default=(0, 0))

    def _plan_idle(
        self, request: GangRequest, chain: CellTypeName | PinnedId, suggested: Collection[str] | None
    ) -> GangPlan | PackingFailure:
        found = self._physical[CellTypeName(chain)].pack(request.sizes, OPPORTUNISTIC, suggested)
        if isinstance(found, PackingFailure):
            return found
        return GangPlan(request=request, tasks=tuple(tuple((leaf, None) for leaf in task) for task in found.tasks))

    def _plan_own(
        self, request: GangRequest, chain: CellTypeName | PinnedId, suggested: Collection[str] | None
    ) -> GangPlan | PackingFailure:
        found = self._virtual[request.tenant, chain].pack(request.sizes, request.priority, suggested)
        if isinstance(found, PackingFailure):
            return found
        accounts = self._books
        yielding = _lazily_preempted(found)
        version = dict(accounts.version) if yielding else None
        former = [(claim, downgrade(accounts, claim, request.name)) for claim in yielding]
        sites = find_sites(accounts, (leaf for task in found.tasks for leaf in task), suggested)
        for claim, seats in reversed(former):
            upgrade(accounts, claim, seats)
        if version is not None:
            accounts.version.update(version)
        if sites is None:
            return PackingFailure.BAD if suggested is None else PackingFailure.NOT_SUGGESTED
        tasks = tuple(tuple((sites[leaf], leaf) for leaf in task) for task in found.tasks)
        victims = tuple(dict.fromkeys(leaf.claim for task in tasks for leaf, _ in task if leaf.claim is not None))
        return GangPlan(request=request, tasks=tasks, victims=victims, downgraded=tuple(yielding))

    def _refusal(self, request: GangRequest, shortage: PackingFailure) -> Refusal:
        owned, room = self._best_chain(request)
        if room < request.devices:
            # Nodes that come back would not be enough either.
            obstacle = Obstacle.QUOTA if request.priority > OPPORTUNISTIC else Obstacle.BUSY
        else:
            obstacle = _OBSTACLES[shortage]
        return Refusal(obstacle=obstacle, need=request.devices, room=room, owned=owned)


def nodes_of(roots: Sequence[Virtual], level: int) -> list[Virtual]:
    """What counts as a node to a tenant: its nodes, and cells it owns that are smaller than one."""

    def parts(cell: Virtual) -> Iterator[Virtual]:
        if cell.level <= level:
            yield cell
        else:
            for child in cell.children:
                yield from parts(child)

    whole = [node for root in roots if root.level >= level for node in parts(root)]
    return whole + [root for root in roots if root.level < level]


def _lazily_preempted(found: Packed[Virtual]) -> list[Claim]:
    """Gangs on these cells that prefer to lose their guarantee, not their devices; pinned cells can't be replaced."""
    yielding: dict[Claim, None] = {}
    for task in found.tasks:
        for leaf in task:
            claim = None if leaf.physical is None else leaf.physical.claim
            if claim is None or not claim.lazy or leaf.root.is_pinned:
                continue
            if claim.is_guaranteed:
                yielding[claim] = None
    return list(yielding)
