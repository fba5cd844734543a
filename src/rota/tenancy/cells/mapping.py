"""Where virtual cells come to lie: a choice of physical cells that keeps every tenant's guarantee.

Works on copies of the free lists; nothing changes until the plan that it becomes part of is carried out.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from rota.core.model.job import OPPORTUNISTIC
from rota.tenancy.cells.accounts import CellAccounts
from rota.tenancy.cells.free import FreeCells
from rota.tenancy.cells.tree import Physical, Virtual

Sites = dict[Virtual, Physical]
"""The device that each virtual device is to stand for."""


@dataclass(slots=True, eq=False)
class CellNeed:
    """A virtual cell that needs a physical one, with those of its parts that need one."""

    cell: Virtual
    parts: dict[Virtual, CellNeed] = field(default_factory=dict)


def find_sites(accounts: CellAccounts, leaves: Iterable[Virtual], suggested: Collection[str] | None) -> Sites | None:
    """A physical device for each virtual one, or None if that takes a bad or unsuggested node."""
    sites: Sites = {}
    roots: dict[Virtual, CellNeed] = {}
    inner: dict[Virtual, dict[Virtual, CellNeed]] = {}
    for leaf in leaves:
        if leaf.physical is not None:
            sites[leaf] = leaf.physical
            continue
        _file_need(leaf, roots, inner)
    search = _Search(suggested, sites)
    for parent, needs in inner.items():
        assert parent.physical is not None, "inner needs are below bound cells"
        if not search.place(list(needs.values()), parent.physical.children):
            return None
    if roots:
        chain = next(iter(roots)).chain
        ground = _Ground(accounts.free[chain], accounts.owed[chain])
        for need in roots.values():
            if not ground.settle(need, search):
                return None
    return sites


def _file_need(leaf: Virtual, roots: dict[Virtual, CellNeed], inner: dict[Virtual, dict[Virtual, CellNeed]]) -> None:
    """File a device under the needs of all unbound cells above it."""
    path = [leaf]
    while path[-1].parent is not None and path[-1].parent.physical is None:
        path.append(path[-1].parent)
    top = path.pop()
    siblings = roots if top.parent is None else inner.setdefault(top.parent, {})
    need = siblings.setdefault(top, CellNeed(top))
    while path:
        cell = path.pop()
        need = need.parts.setdefault(cell, CellNeed(cell))


class _Search:
    """Assigns physical cells to needs, part by part, with backtracking."""

    __slots__ = ("_sites", "_suggested")

    def __init__(self, suggested: Collection[str] | None, sites: Sites) -> None:
        self._suggested = suggested
        self._sites = sites

    def usable(self, cells: Iterable[Physical]) -> list[Physical]:
        """Cells that may be bound; those that displace least first."""
        suggested = self._suggested
        fit = [
            cell
            for cell in cells
            if cell.virtual is None
            and not (cell.bad and len(cell.nodes) == 1)
            and (suggested is None or any(node in suggested for node in cell.nodes))
        ]
        if len(fit) > 1:
            fit.sort(key=lambda cell: cell.used.get(OPPORTUNISTIC, 0) if cell.used else 0)
        return fit

    def place(self, needs: Sequence[CellNeed], cells: Iterable[Physical]) -> bool:
        """Assign a cell to each need, or none to any.

        A matching by augmenting paths: first choices stand unless a later need can only be met by moving one.
        """
        fit = self.usable(cells)
        if len(fit) < len(needs):
            return False
        need_by_cell: dict[Physical, CellNeed] = {}
        for need in needs:
            if not self._match(need, fit, need_by_cell, set()):
                return False
        return all(self.put(need, cell) for cell, need in need_by_cell.items())

    def _match(
        self, need: CellNeed, fit: Sequence[Physical], need_by_cell: dict[Physical, CellNeed], tried: set[Physical]
    ) -> bool:
        for cell in fit:
            if cell not in tried and cell not in need_by_cell and self.put(need, cell):
                need_by_cell[cell] = need
                return True
        for cell in fit:
            if cell in tried or cell not in need_by_cell or not self.put(need, cell):
                continue
            tried.add(cell)
            if self._match(need_by_cell[cell], fit, need_by_cell, tried):
                need_by_cell[cell] = need
                return True
        return False

    def put(self, need: CellNeed, cell: Physical) -> bool:
        """Assign this cell to a need."""
        if not need.cell.may_be(cell):
            return False
        if not need.parts:
            self._sites[need.cell] = cell
            return True
        return self.place(list(need.parts.values()), cell.children)


class _Ground:
    """A copy of a chain's free lists on which guaranteed cells are bound one after the other."""

    __slots__ = ("_free", "_listed", "_owed")

    def __init__(self, free: FreeCells, owed: Sequence[int]) -> None:
        self._free = free
        self._listed = [dict(cells) for cells in free.listed]
        self._owed = list(owed)

    def settle(self, need: CellNeed, search: _Search) -> bool:
        """Bind a guaranteed cell: from the lowest level with a free one, else by splitting a higher one."""
        wanted = need.cell.level
        self._owed[wanted] -= 1
        levels = [level for level in range(wanted, len(self._listed)) if self._listed[level]]
        for attempt, level in enumerate(levels):
            if attempt and not self._can_spare(level, wanted):
                continue
            for whole in search.usable(self._listed[level]):
                path = self._descend(need, whole, search)
                if path is not None:
                    self._split(path)
                    return True
        return False

    def _descend(self, need: CellNeed, cell: Physical, search: _Search) -> list[Physical] | None:
        """The way from a free cell down to the part of it that takes the need."""
        if cell.level == need.cell.level:
            return [cell] if search.put(need, cell) else None
        for child in search.usable(cell.children):
            path = self._descend(need, child, search)
            if path is not None:
                return [cell, *path]
        return None

    def _split(self, path: Sequence[Physical]) -> None:
        del self._listed[path[0].level][path[0]]
        for whole, part in itertools.pairwise(path):
            for child in whole.children:
                if child is not part:
                    self._listed[child.level][child] = None

    def _can_spare(self, level: int, wanted: int) -> bool:
        """Whether splitting a cell of this level leaves all other guarantees intact."""
        whole = next(iter(self._listed[level]))
        counts = [len(cells) for cells in self._listed]
        counts[level] -= 1
        while whole.level > wanted:
            counts[whole.level - 1] += len(whole.children) - 1
            whole = whole.children[0]
        return self._free.is_safe(counts, self._owed)
