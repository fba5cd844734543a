"""The claims on devices, the bindings of virtual to physical cells, and bad hardware.

Everything changes through four doors: `occupy`, `vacate`, `set_bad`, `set_healthy`. What follows from the rules
rather than from a request (a tenant's cell that is doomed because too little healthy hardware is left, a bad
part that its tenant must see) is not kept from event to event but recomputed by `settle`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.core.errors import InvariantBroken, RotaError
from rota.core.model.cells import CellPlan, CellTypeName
from rota.core.model.job import OPPORTUNISTIC, TenantId
from rota.tenancy.cells.build import Chain, build
from rota.tenancy.cells.claims import Claim, Seat
from rota.tenancy.cells.free import FreeCells
from rota.tenancy.cells.tree import FREE, Physical, Virtual, count, devices_of, turned, whole_cells


class CellAccounts:
    """The state of all cells."""

    def __init__(self, plan: CellPlan) -> None:
        self.forest = build(plan)
        self.free: dict[CellTypeName, FreeCells] = {}
        self.owed: dict[CellTypeName, list[int]] = {}
        """By chain and level: guaranteed cells that are not bound, of all tenants."""
        self.unbound: dict[CellTypeName, dict[TenantId, list[int]]] = {}
        """The same for each tenant that owns cells of the chain."""
        self._doomed: dict[CellTypeName, dict[Virtual, None]] = {}
        """Guaranteed cells that are bound to bad hardware only so that their tenant sees it."""
        self._unsettled: dict[CellTypeName, None] = {}
        self._bad: dict[CellTypeName, dict[Physical, None]] = {}
        self.version: dict[tuple[TenantId, CellTypeName], int] = {}
        """How often a tenant's cells of a chain changed, and how often (tenant "") free devices of a chain did."""
        for chain in self.forest.chains.values():
            self._open(chain)
        for physical in self.forest.pinned.values():
            if physical.virtual is not None:
                for cell in whole_cells(physical):
                    self.free[physical.chain].take(cell)
        self._refuse_broken_promises()

    def _refuse_broken_promises(self) -> None:
        """Counts may suffice where what is left beside pinned cells does not."""
        for chain in self.forest.chains.values():
            free, owed = self.free[chain.name], self.owed[chain.name]
            if not free.is_safe(free.counts(), owed):
                raise RotaError(
                    f"virtualClusters: pinned cells break up so many large cells of chain {chain.name!r} that not all "
                    "guaranteed ones fit at once; pin cells next to each other, or guarantee less"
                )

    def _open(self, chain: Chain) -> None:
        self.free[chain.name] = FreeCells(chain)
        self._doomed[chain.name] = {}
        self._bad[chain.name] = {}
        owed = self.owed[chain.name] = [0] * (chain.top_level + 1)
        unbound = self.unbound[chain.name] = {}
        for tenant, estate in self.forest.estates.items():
            for root in estate.roots.get(chain.name, ()):
                owed[root.level] += 1
                unbound.setdefault(tenant, [0] * (chain.top_level + 1))[root.level] += 1

    # -- holding devices -------------------------------------------------------------------------

    def occupy(self, claim: Claim, seats: Sequence[Seat]) -> None:
        """Let a claim hold these devices, which must be free."""
        for leaf, virtual in seats:
            if leaf.claim is not None:
                raise InvariantBroken(f"device {leaf.address} is held by {leaf.claim.name}, not free for {claim.name}")
            leaf.claim = claim
            if virtual is None:
                leaf.priority = OPPORTUNISTIC
            else:
                leaf.priority = virtual.priority = claim.priority
                self._join(leaf, virtual)
        self._recount(seats, 1, claim)
        self._show_bad_parts(virtual.root for _, virtual in seats if virtual is not None)

    def vacate(self, claim: Claim, seats: Sequence[Seat]) -> None:
        """Take these devices from a claim."""
        self._recount(seats, -1, claim)
        for leaf, virtual in seats:
            if leaf.claim is not claim:
                raise InvariantBroken(f"device {leaf.address} is not held by {claim.name}")
            leaf.claim = None
            leaf.priority = FREE
            if virtual is not None:
                virtual.priority = FREE
        for _, virtual in seats:
            if virtual is not None and virtual.physical is not None:
                self._part(virtual)

    def _recount(self, seats: Sequence[Seat], sign: int, claim: Claim) -> None:
        # Seats of one claim are all guaranteed or all not.
        priority = OPPORTUNISTIC if not seats or seats[0][1] is None else claim.priority
        count([leaf for leaf, _ in seats], priority, sign)
        count([virtual for _, virtual in seats if virtual is not None], priority, sign)
        if seats:
            self._note(TenantId(""), seats[0][0].chain)
            if seats[0][1] is not None:
                self._note(claim.tenant, seats[0][0].chain)

    def _note(self, tenant: TenantId, chain: CellTypeName) -> None:
        key = (tenant, chain)
        self.version[key] = self.version.get(key, 0) + 1

    # -- binding ---------------------------------------------------------------------------------

    def _join(self, physical: Physical, virtual: Virtual) -> None:
        """Bind a device and all above it, up to where they are bound to each other already."""
        pairs: list[tuple[Physical, Virtual]] = []
        below: Physical | None = physical
        above: Virtual | None = virtual
        while below is not None and above is not None and below.virtual is not above:
            pairs.append((below, above))
            below, above = below.parent, above.parent
        if above is not None and below is None:
            raise InvariantBroken(f"virtual cell {virtual.address} does not fit onto {physical.address}")
        for below, above in reversed(pairs):
            self._clear(below, above)
            if above.parent is None:
                self._adopt_root(above, below)
            _bind(below, above)
        self._doomed[virtual.chain].pop(virtual.root, None)

    def _clear(self, physical: Physical, virtual: Virtual) -> None:
        """What either is bound to instead must be unused: bound only because it is bad."""
        for other in (physical.virtual, virtual):
            if other is not None and other.physical is not None:
                if other.used or other.is_pinned:
                    raise InvariantBroken(f"virtual cell {other.address} is in use and can't be bound again")
                self._unbind(other)

    def _adopt_root(self, root: Virtual, physical: Physical) -> None:
        if root.is_pinned:
            raise InvariantBroken(f"pinned cell {root.address} can't be bound to {physical.address}")
        self.free[root.chain].take(physical)
        self._change_unbound(root, -1)

    def _change_unbound(self, root: Virtual, change: int) -> None:
        self.owed[root.chain][root.level] += change
        self.unbound[root.chain][root.tenant][root.level] += change
        self._unsettled[root.chain] = None
        self._note(root.tenant, root.chain)

    def _part(self, virtual: Virtual) -> None:
        """Nothing holds this virtual device any more: unbind as much around it as is unused."""
        unused = virtual
        while unused.parent is not None and not unused.parent.used:
            unused = unused.parent
        if unused.is_pinned:
            for child in unused.children:
                self._unbind(child)
        elif not unused.used:
            self._unbind(unused)
        top = unused if unused.is_pinned else unused.parent
        if top is not None:
            self._show_bad_parts((top,))

    def _unbind(self, virtual: Virtual) -> None:
        """A virtual cell and all of its parts stand for nothing any more."""
        physical = virtual.physical
        if physical is None:
            return
        for child in virtual.children:
            self._unbind(child)
        virtual.physical = None
        physical.virtual = None
        turned(virtual)
        if virtual.parent is None:
            self.free[virtual.chain].give(physical)
            self._doomed[virtual.chain].pop(virtual, None)
            self._change_unbound(virtual, 1)

    def _show_bad_parts(self, bound: Iterable[Virtual]) -> None:
        """A bad part of a bound cell is bound too, so that its tenant knows which of its devices are bad.

        Unless the cell has more parts than guaranteed, and enough of them are healthy.
        """
        for virtual in bound:
            physical = virtual.physical
            if physical is None or not physical.bad:
                continue
            unbound = [part for part in virtual.children if part.physical is None]
            sound = sum(1 for child in physical.children if child.virtual is None and not child.bad)
            for child in physical.children:
                if not child.bad:
                    continue
                if child.virtual is None and len(unbound) > sound:
                    spare = next(part for part in unbound if part.may_be(child))
                    unbound.remove(spare)
                    _bind(child, spare)
                if child.virtual is not None:
                    self._show_bad_parts((child.virtual,))

    # -- health ----------------------------------------------------------------------------------

    def set_bad(self, node: str) -> None:
        """A machine can't be used."""
        self._turn(node, bad=True)

    def set_healthy(self, node: str) -> None:
        """A machine can be used again."""
        self._turn(node, bad=False)

    def _turn(self, node: str, *, bad: bool) -> None:
        for cell in self.forest.cells_by_node.get(node, ()):
            changed: list[Physical] = []
            for leaf in devices_of(cell):
                if bool(leaf.bad) != bad:
                    self._turn_leaf(leaf, bad, changed)
            if changed:
                self._after_turn(cell, changed, bad)

    def _turn_leaf(self, leaf: Physical, bad: bool, changed: list[Physical]) -> None:
        cell: Physical | None = leaf
        while cell is not None:
            was_bad = bool(cell.bad)
            cell.bad += 1 if bad else -1
            if bool(cell.bad) == was_bad:
                return
            changed.append(cell)
            turned(cell)
            if cell.virtual is not None:
                turned(cell.virtual)
            if cell.is_free_territory:
                self.free[cell.chain].turned(cell)
            if bad:
                self._bad[cell.chain][cell] = None
            else:
                del self._bad[cell.chain][cell]
            cell = cell.parent

    def _after_turn(self, node: Physical, changed: Sequence[Physical], bad: bool) -> None:
        self._unsettled[node.chain] = None
        self._note(TenantId(""), node.chain)
        bound = [cell for cell in changed if cell.virtual is not None]
        for cell in changed:
            around = cell if cell.virtual is not None else cell.parent
            if around is not None and around.virtual is not None:
                self._note(around.virtual.tenant, node.chain)
                if bad:
                    self._show_bad_parts((around.virtual,))
        if not bad:
            for cell in bound:
                virtual = cell.virtual
                if virtual is not None and not virtual.used and not virtual.is_pinned:
                    self._unbind(virtual)

    # -- doomed cells ----------------------------------------------------------------------------

    def settle(self) -> None:
        """Bind what is doomed and unbind what is so no longer, in chains where something happened.

        From the top level down: giving a bad cell to a tenant, or taking it back, leaves the number of healthy
        cells as it is at the cell's own level and above, and changes it only below.
        """
        while self._unsettled:
            chain, _ = self._unsettled.popitem()
            if self._bad[chain] or self._doomed[chain]:
                self._settle(self.forest.chains[chain])
            self._unsettled.pop(chain, None)

    def _settle(self, chain: Chain) -> None:
        free = self.free[chain.name]
        for level in range(chain.top_level, 0, -1):
            for tenant, unbound in self.unbound[chain.name].items():
                doomed = [root for root in self._doomed[chain.name] if root.tenant == tenant and root.level == level]
                while doomed and unbound[level] < free.healthy(level):
                    self._unbind(doomed.pop())
                while unbound[level] > free.healthy(level):
                    physical = self._cell_to_doom(chain, level)
                    if physical is None:
                        break
                    roots = self.forest.estates[tenant].roots[chain.name]
                    root = next(r for r in roots if r.level == level and r.physical is None)
                    self._doom(root, physical)

    def _cell_to_doom(self, chain: Chain, level: int) -> Physical | None:
        """A free bad cell whose loss costs the least: out of the smallest free cell, without breaking a guarantee."""
        free = self.free[chain.name]
        owed = list(self.owed[chain.name])
        owed[level] -= 1
        best: tuple[int, Physical] | None = None
        for cell in self._bad[chain.name]:
            if cell.level != level:
                continue
            whole: Physical | None = cell
            while whole is not None and not whole.is_listed:
                whole = whole.parent
            if whole is None or (best is not None and whole.level >= best[0]):
                continue
            counts = free.counts_without(cell)
            if counts is not None and free.is_safe(counts, owed):
                best = (whole.level, cell)
                if whole.level == level:
                    break
        return None if best is None else best[1]

    def unbind_doomed(self, root: Virtual) -> None:
        """Unbind a guaranteed cell that is not in use; `settle` may bind it again."""
        if root.physical is not None and not root.used and not root.is_pinned:
            self._unbind(root)

    def unbind_doomed_around(self, leaf: Physical) -> None:
        """Unbind guaranteed cells that are bound to a device without being used."""
        cell: Physical | None = leaf
        while cell is not None:
            if cell.virtual is not None and cell.virtual.parent is None:
                self.unbind_doomed(cell.virtual)
            cell = cell.parent

    def _doom(self, root: Virtual, physical: Physical) -> None:
        self._adopt_root(root, physical)
        _bind(physical, root)
        self._doomed[root.chain][root] = None
        self._show_bad_parts((root,))


def _bind(physical: Physical, virtual: Virtual) -> None:
    physical.virtual = virtual
    virtual.physical = physical
    turned(virtual)
