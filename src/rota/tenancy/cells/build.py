"""From guarantees to trees: infers what a file leaves out and refuses guarantees that can't be kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rota.core.errors import RotaError, did_you_mean
from rota.core.garbage import collection_paused
from rota.core.model.cells import LEAF_LEVEL, CellEntry, CellPlan, CellTypeName, PinnedId, TenantCells
from rota.core.model.job import TenantId
from rota.tenancy.cells.tree import Physical, Virtual, devices_of, whole_cells

_UNLISTED = CellEntry()


@dataclass(slots=True)
class Chain:
    """The top cells of one type, with what all of them share."""

    name: CellTypeName
    ladder: tuple[CellTypeName, ...]
    node_level: int
    fanout: tuple[int, ...]
    """Children of a cell by its level; 0 for devices. Index 0 is unused."""
    tops: list[Physical] = field(default_factory=list)
    nodes: list[Physical] = field(default_factory=list)
    is_odd: bool = False
    """Whether some cell lists another number of children than its type has."""

    @property
    def top_level(self) -> int:
        """The level of the top cells."""
        return len(self.ladder)

    def fanout_above(self, level: int) -> int:
        """Children of a cell of the level above; 0 above the top."""
        return self.fanout[level + 1] if level < self.top_level else 0

    @property
    def leaf_type(self) -> CellTypeName:
        """The type of its devices."""
        return self.ladder[0]


@dataclass(slots=True)
class TenantForest:
    """What a tenant owns: guaranteed cells by chain, and pinned ones by name."""

    tenant: TenantId
    roots: dict[CellTypeName, list[Virtual]] = field(default_factory=dict)
    pinned: dict[PinnedId, Virtual] = field(default_factory=dict)


@dataclass(slots=True)
class Forest:
    """All trees. Nothing is bound or held yet but the pinned cells."""

    plan: CellPlan
    chains: dict[CellTypeName, Chain] = field(default_factory=dict)
    estates: dict[TenantId, TenantForest] = field(default_factory=dict)
    pinned: dict[PinnedId, Physical] = field(default_factory=dict)
    cells_by_node: dict[str, list[Physical]] = field(default_factory=dict)
    """The node-level cells of each machine: one for each type of device that it has."""
    devices: dict[tuple[CellTypeName, str, int], Physical] = field(default_factory=dict)

    def find_device(self, chain: CellTypeName, node: str, index: int) -> Physical | None:
        """A device of a machine; in another chain if its machine was moved there."""
        found = self.devices.get((chain, node, index))
        if found is None:
            for cell in self.cells_by_node.get(node, ()):
                found = found or self.devices.get((cell.chain, node, index))
        return found


def build(plan: CellPlan) -> Forest:
    """The trees of a plan."""
    forest = Forest(plan)
    with collection_paused():  # hundreds of thousands of cells are made, and all are kept
        for position, entry in enumerate(plan.physical):
            _plant(forest, entry, position)
        for chain in forest.chains.values():
            if chain.is_odd:
                _measure(chain)
        for tenant, cells in plan.tenants.items():
            forest.estates[tenant] = _estate(forest, tenant, cells)
    _refuse_overcommitment(forest)
    return forest


def chain_of(plan: CellPlan, name: CellTypeName) -> Chain:
    """An empty chain of a type."""
    ladder = plan.ladder(name)
    fanout = (0, 0, *(plan.types[kind].children for kind in ladder[1:]))
    return Chain(name, ladder, plan.node_level(name), fanout)


# -- physical cells ------------------------------------------------------------------------------


def _plant(forest: Forest, entry: CellEntry, position: int) -> None:
    where = f"physicalCluster.physicalCells[{position}]"
    plan = forest.plan
    if entry.type is None:
        raise RotaError(f"{where}.cellType is missing; a top cell must state its type")
    if entry.type not in plan.types:
        raise RotaError(f"{where}.cellType is {entry.type!r}, which cellTypes lacks; {plan.unknown_type(entry.type)}")
    chain = forest.chains.get(entry.type)
    if chain is None:
        try:
            chain = chain_of(plan, entry.type)
        except RotaError as error:
            raise RotaError(f"{where}: {error}") from error
    if chain.top_level < chain.node_level:
        raise RotaError(f"{where}.cellType is {entry.type!r}, part of a node; top cells are nodes or larger")
    forest.chains[entry.type] = chain
    chain.tops.append(_grow(forest, chain, entry, chain.top_level, position, None, where))


def _grow(
    forest: Forest,
    chain: Chain,
    entry: CellEntry,
    level: int,
    position: int,
    parent: Physical | None,
    where: str,
) -> Physical:
    """A cell with all below it. `position` counts within the node, or above nodes within the level."""
    own = entry.address if entry.address is not None else str(position)
    address = own if parent is None else f"{parent.address}/{own}"
    cell = Physical(chain.name, chain.ladder[level - 1], level, address)
    cell.parent = cell.above = parent
    cell.node = None if parent is None else parent.node
    if level == chain.node_level:
        if entry.address is None:
            raise RotaError(f"{where}.cellAddress is missing; a node's address is its name")
        cell.node = own
        forest.cells_by_node.setdefault(own, []).append(cell)
        chain.nodes.append(cell)
        position = 0
    if entry.pinned is not None:
        _pin(forest, cell, entry.pinned, where)
    if level == LEAF_LEVEL:
        return _device(forest, chain, cell, own, where)
    width = chain.fanout[level]
    if entry.children is None:
        # Only the way to what is listed is spelt out: large clusters are made of children that are not.
        inside = where if level <= chain.node_level else f"{where}.cellChildren[0]"
        cell.children = tuple(
            _grow(forest, chain, _UNLISTED, level - 1, position * width + i, cell, inside) for i in range(width)
        )
    elif not entry.children:
        raise RotaError(f"{where}.cellChildren is empty; leave it out to have {width} children made")
    else:
        cell.children = tuple(
            _grow(forest, chain, child, level - 1, position * width + i, cell, f"{where}.cellChildren[{i}]")
            for i, child in enumerate(entry.children)
        )
    cell.leaves = sum(child.leaves for child in cell.children)
    chain.is_odd = chain.is_odd or len(cell.children) != width
    cell.nodes = (cell.node,) if cell.node is not None else tuple(n for child in cell.children for n in child.nodes)
    spread = [sum(amounts) for amounts in zip(*(child.spread for child in cell.children), strict=True)]
    cell.spread = (*spread, 1)
    return cell


def _measure(chain: Chain) -> None:
    """Reduce the fan-out to the most children that any cell has, then mark the cells that are whole."""
    most = [0] * (chain.top_level + 1)
    for top in chain.tops:
        for cell in _below(top):
            most[cell.level] = max(most[cell.level], len(cell.children))
    chain.fanout = tuple(min(stated, found) for stated, found in zip(chain.fanout, most, strict=True))
    for top in chain.tops:
        _mark(top, chain)


def _mark(cell: Physical, chain: Chain) -> None:
    for child in cell.children:
        _mark(child, chain)
    cell.is_whole = len(cell.children) >= chain.fanout[cell.level] and all(child.is_whole for child in cell.children)


def _device(forest: Forest, chain: Chain, cell: Physical, own: str, where: str) -> Physical:
    if not own.isdecimal():
        raise RotaError(f"{where}.cellAddress is {own!r}; a device's address is its number on the node")
    cell.index = int(own)
    assert cell.node is not None, "a device lies in a node, since its top cell is a node or larger"
    cell.nodes = (cell.node,)
    cell.spread = (0, 1)
    key = (chain.name, cell.node, cell.index)
    if key in forest.devices:
        raise RotaError(f"{where}: device {own} of node {cell.node!r} is listed twice")
    forest.devices[key] = cell
    return cell


def _pin(forest: Forest, cell: Physical, pinned: PinnedId, where: str) -> None:
    if pinned in forest.pinned:
        raise RotaError(f"{where}.pinnedCellId is {pinned!r}, which is pinned elsewhere too; names must differ")
    cell.pinned = pinned
    forest.pinned[pinned] = cell


# -- virtual cells -------------------------------------------------------------------------------


def _estate(forest: Forest, tenant: TenantId, cells: TenantCells) -> TenantForest:
    estate = TenantForest(tenant)
    where = f"virtualClusters.{tenant}"
    running = 0
    for position, quota in enumerate(cells.quotas):
        chain = forest.chains.get(quota.chain)
        if chain is None:
            raise RotaError(
                f"{where}.virtualCells[{position}].cellType starts with {quota.chain!r}, of which there is no "
                f"physical cell; {did_you_mean(quota.chain, forest.chains)}"
            )
        if quota.type not in chain.ladder:
            raise RotaError(
                f"{where}.virtualCells[{position}].cellType ends in {quota.type!r}, which is no part of "
                f"{quota.chain!r}; {did_you_mean(quota.type, chain.ladder)}"
            )
        for _ in range(quota.cells):
            level = chain.ladder.index(quota.type) + 1
            root = _virtual(chain, level, f"{tenant}/{running}", tenant)
            root.order = running
            estate.roots.setdefault(chain.name, []).append(root)
            running += 1
    for position, pinned in enumerate(cells.pinned):
        estate.pinned[pinned] = _pinned_root(forest, tenant, pinned, f"{where}.pinnedCells[{position}].pinnedCellId")
    return estate


def _pinned_root(forest: Forest, tenant: TenantId, pinned: PinnedId, where: str) -> Virtual:
    physical = forest.pinned.get(pinned)
    if physical is None:
        raise RotaError(f"{where} is {pinned!r}, which no physical cell bears; {did_you_mean(pinned, forest.pinned)}")
    if physical.virtual is not None:
        raise RotaError(f"{where} is {pinned!r}, which belongs to tenant {physical.virtual.tenant!r} already")
    inside = next((cell for cell in _above(physical) if cell.virtual is not None), None)
    if inside is not None:
        raise RotaError(f"{where} is {pinned!r}, which lies in the pinned cell {inside.pinned!r}")
    if any(cell.virtual is not None for child in physical.children for cell in _below(child)):
        raise RotaError(f"{where} is {pinned!r}, which contains another pinned cell that a tenant owns")
    address = f"{tenant}/{pinned}"
    if physical.is_whole:
        root = _virtual(forest.chains[physical.chain], physical.level, address, tenant)
    else:
        root = _twin(physical, address, tenant)
    root.is_pinned = True
    root.physical = physical
    physical.virtual = root
    return root


def _above(cell: Physical) -> Iterator[Physical]:
    while cell.parent is not None:
        cell = cell.parent
        yield cell


def _below(cell: Physical) -> Iterator[Physical]:
    yield cell
    for child in cell.children:
        yield from _below(child)


def _virtual(chain: Chain, level: int, address: str, tenant: TenantId, parent: Virtual | None = None) -> Virtual:
    cell = Virtual(chain.name, chain.ladder[level - 1], level, address, tenant)
    cell.parent = cell.above = parent
    if parent is not None:
        cell.root = parent.root
    if level > LEAF_LEVEL:
        cell.children = tuple(
            _virtual(chain, level - 1, f"{address}/{i}", tenant, cell) for i in range(chain.fanout[level])
        )
        cell.leaves = sum(child.leaves for child in cell.children)
    return cell


def _twin(physical: Physical, address: str, tenant: TenantId, parent: Virtual | None = None) -> Virtual:
    """A virtual cell of the very shape of a physical one, part by part."""
    cell = Virtual(physical.chain, physical.type, physical.level, address, tenant)
    cell.parent = cell.above = parent
    cell.twin = physical
    if parent is not None:
        cell.root = parent.root
    if physical.children:
        cell.children = tuple(_twin(child, f"{address}/{i}", tenant, cell) for i, child in enumerate(physical.children))
        cell.leaves = physical.leaves
    return cell


# -- guarantees ------------------------------------------------------------------------------------


def promised(forest: Forest, chain: Chain) -> dict[int, int]:
    """Whole cells of a chain that tenants own, by level, pinned ones included."""
    amounts: dict[int, int] = {}
    for estate in forest.estates.values():
        for root in estate.roots.get(chain.name, ()):
            amounts[root.level] = amounts.get(root.level, 0) + 1
        for root in estate.pinned.values():
            if root.chain == chain.name and root.physical is not None:
                for cell in whole_cells(root.physical):
                    amounts[cell.level] = amounts.get(cell.level, 0) + 1
    return amounts


def _refuse_overcommitment(forest: Forest) -> None:
    """From the top down: what a level does not guarantee can be split for the level below.

    Only whole cells count; of others, their whole parts.
    """
    for chain in forest.chains.values():
        amounts = promised(forest, chain)
        there = [0] * (chain.top_level + 1)
        for top in chain.tops:
            for cell in whole_cells(top):
                there[cell.level] += 1
        left = 0
        for level in range(chain.top_level, 0, -1):
            left = left * chain.fanout_above(level) + there[level]
            needed = amounts.get(level, 0)
            if needed > left:
                raise RotaError(
                    f"virtualClusters: tenants own {needed} cells of {chain.ladder[level - 1]!r} in chain "
                    f"{chain.name!r} (level {level}), of which {left} are left: "
                    f"{_owners(forest, chain, level)}; guarantee less or add physical cells"
                )
            left -= needed


def _owners(forest: Forest, chain: Chain, level: int) -> str:
    """The fields in which cells of a level are guaranteed."""
    kind = chain.ladder[level - 1]
    fields = [
        f"virtualClusters.{tenant}.virtualCells[{position}]"
        for tenant, cells in forest.plan.tenants.items()
        for position, quota in enumerate(cells.quotas)
        if quota.chain == chain.name and quota.type == kind
    ]
    fields += [
        f"virtualClusters.{tenant}.pinnedCells ({pinned})"
        for tenant, estate in forest.estates.items()
        for pinned, root in estate.pinned.items()
        if root.chain == chain.name and root.level == level
    ]
    return ", ".join(fields)


def devices_total(forest: Forest) -> int:
    """Devices of all chains."""
    return sum(1 for chain in forest.chains.values() for top in chain.tops for _ in devices_of(top))
