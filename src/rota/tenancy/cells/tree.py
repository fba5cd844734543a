"""Cells, physical and virtual: two forests of the same shape, joined where a virtual cell is in use.

Both count, at every cell, how many of its devices are held at which priority; both are packed by the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rota.core.model.cells import LEAF_LEVEL, CellTypeName, PinnedId
from rota.core.model.job import OPPORTUNISTIC, TenantId

if TYPE_CHECKING:
    from rota.tenancy.cells.claims import Claim

FREE = OPPORTUNISTIC - 1
"""The priority of a free device: below that of any gang."""


class Cell:
    """What physical and virtual cells have in common."""

    __slots__ = ("above", "address", "chain", "leaves", "level", "priority", "stale_in", "type", "used")

    def __init__(self, chain: CellTypeName, kind: CellTypeName, level: int, address: str) -> None:
        self.chain = chain
        self.type = kind
        self.level = level
        self.address = address
        self.above: Cell | None = None
        """The cell that it is part of, of either kind; `parent` is the same with its type."""
        self.leaves = 1 if level == LEAF_LEVEL else 0
        self.used: dict[int, int] = {}
        """Devices held in this cell, by priority."""
        self.stale_in: dict[Cell, None] | None = None
        """Where a cell that is a node of some view reports its changes."""
        self.priority = FREE
        """Of a device: whose it is. Cells above it have no use for this."""

    def __repr__(self) -> str:
        return f"<{self.type} {self.address}>"


class Physical(Cell):
    """A piece of hardware: a device, a node, a rack."""

    __slots__ = (
        "bad",
        "children",
        "claim",
        "index",
        "is_listed",
        "is_whole",
        "node",
        "nodes",
        "parent",
        "pinned",
        "spread",
        "virtual",
    )

    def __init__(self, chain: CellTypeName, kind: CellTypeName, level: int, address: str) -> None:
        super().__init__(chain, kind, level, address)
        self.parent: Physical | None = None
        self.children: tuple[Physical, ...] = ()
        self.node: str | None = None
        """The machine it is or lies in; None above machines."""
        self.nodes: tuple[str, ...] = ()
        """The machines in it."""
        self.index = -1
        """Of a device: its number on the machine."""
        self.pinned: PinnedId | None = None
        self.virtual: Virtual | None = None
        """The virtual cell that it stands for now."""
        self.is_whole = True
        """Whether it has as many children as its type has, and so have they: only such a cell can be guaranteed."""
        self.is_listed = False
        """Whether it is free as a whole and not part of a larger free cell."""
        self.bad = 0
        """How many of its children are bad; of a device, whether it is."""
        self.spread: tuple[int, ...] = ()
        """How many cells of each level there are in it, itself included."""
        self.claim: Claim | None = None
        """Of a device: the claim on it."""

    @property
    def is_healthy(self) -> bool:
        """Whether nothing in it is bad."""
        return not self.bad

    @property
    def is_free_territory(self) -> bool:
        """Whether it is free, by itself or as part of a larger free cell."""
        cell: Physical | None = self
        while cell is not None:
            if cell.is_listed:
                return True
            cell = cell.parent
        return False


class Virtual(Cell):
    """A cell of a tenant's private cluster; bound to a physical cell while it is in use, or bad."""

    __slots__ = ("children", "is_pinned", "order", "parent", "physical", "root", "tenant", "twin")

    def __init__(self, chain: CellTypeName, kind: CellTypeName, level: int, address: str, tenant: TenantId) -> None:
        super().__init__(chain, kind, level, address)
        self.tenant = tenant
        self.parent: Virtual | None = None
        self.children: tuple[Virtual, ...] = ()
        self.root: Virtual = self
        """The guaranteed cell of which this one is a part."""
        self.physical: Physical | None = None
        self.is_pinned = False
        """Of a guaranteed cell: whether it is pinned to one physical cell."""
        self.order = 0
        self.twin: Physical | None = None
        """Of a part of a pinned cell that is not whole: the cell of its shape, for which alone it may stand."""

    def may_be(self, physical: Physical) -> bool:
        """Whether it may stand for a cell of its level."""
        return self.twin is None or self.twin is physical

    @property
    def is_healthy(self) -> bool:
        """Bad only if it stands for something bad."""
        return self.physical is None or not self.physical.bad


def turned(cell: Cell) -> None:
    """A cell's health may have changed."""
    if cell.stale_in is not None:
        cell.stale_in[cell] = None


def devices_of(cell: Physical) -> Iterator[Physical]:
    """The devices in a physical cell, in order."""
    if cell.level == LEAF_LEVEL:
        yield cell
    for child in cell.children:
        yield from devices_of(child)


def virtual_devices_of(cell: Virtual) -> Iterator[Virtual]:
    """The devices in a virtual cell, in order."""
    if cell.level == LEAF_LEVEL:
        yield cell
    for child in cell.children:
        yield from virtual_devices_of(child)


def whole_cells(cell: Physical) -> Iterator[Physical]:
    """The largest cells in a cell, itself included, that are whole."""
    if cell.is_whole:
        yield cell
        return
    for child in cell.children:
        yield from whole_cells(child)


def ancestor(cell: Physical, level: int) -> Physical | None:
    """The cell of a level in which a cell lies; None if its tree is not that high."""
    found: Physical | None = cell
    while found is not None and found.level < level:
        found = found.parent
    return found


def count(cells: Iterable[Cell], priority: int, change: int) -> None:
    """Devices of these cells are held at a priority now, or no longer: update all cells above them.

    Cell by cell upwards, all devices of one cell together: a gang's devices share nearly all of their ancestors.
    """
    amounts: dict[Cell, int] = {}
    for cell in cells:
        amounts[cell] = change
    while amounts:
        above: dict[Cell, int] = {}
        for cell, amount in amounts.items():
            left = cell.used.get(priority, 0) + amount
            if left:
                cell.used[priority] = left
            else:
                cell.used.pop(priority, None)
            if cell.stale_in is not None:
                cell.stale_in[cell] = None
            parent = cell.above
            if parent is not None:
                above[parent] = above.get(parent, 0) + amount
        amounts = above
