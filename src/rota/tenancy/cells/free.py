"""Free physical cells of a chain: split to give out a smaller one, merged again when all parts are back.

A free cell is *listed* if it is not part of a larger free cell. Cells that lack parts are never free as such, only
their whole parts are. How many cells of each level splitting could yield, and how many of those are bad, is counted
as cells come and go.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from rota.core.errors import InvariantBroken
from rota.tenancy.cells.build import Chain
from rota.tenancy.cells.tree import Physical, whole_cells


class FreeCells:
    """The listed cells of a chain by level, in the order in which they came."""

    __slots__ = ("_chain", "bad", "left", "listed")

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self.listed: list[dict[Physical, None]] = [{} for _ in range(chain.top_level + 1)]
        self.left = [0] * (chain.top_level + 1)
        """Free cells by level, those inside larger free ones included."""
        self.bad = [0] * (chain.top_level + 1)
        """How many of those are bad."""
        for top in chain.tops:
            for cell in whole_cells(top):
                self._list(cell)

    def healthy(self, level: int) -> int:
        """Free cells of a level with nothing bad in them."""
        return self.left[level] - self.bad[level]

    def take(self, cell: Physical) -> None:
        """A cell is free no more; larger free cells around it are split."""
        path = [cell]
        while not path[-1].is_listed:
            parent = path[-1].parent
            if parent is None:
                raise InvariantBroken(f"cell {cell.address} is not free and can't be taken")
            path.append(parent)
        self._unlist(path[-1])
        for whole, part in itertools.pairwise(reversed(path)):
            for child in whole.children:
                if child is not part:
                    self._list(child)

    def give(self, cell: Physical) -> None:
        """A cell is free again; it merges with its siblings as long as all of them are."""
        parent = cell.parent
        while parent is not None and parent.is_whole and all(c.is_listed or c is cell for c in parent.children):
            for child in parent.children:
                if child is not cell:
                    self._unlist(child)
            cell, parent = parent, parent.parent
        self._list(cell)

    def turned(self, cell: Physical) -> None:
        """A free cell's health changed."""
        self.bad[cell.level] += 1 if cell.bad else -1

    def counts(self) -> list[int]:
        """How many cells are listed at each level."""
        return [len(cells) for cells in self.listed]

    def is_safe(self, counts: Sequence[int], owed: Sequence[int]) -> bool:
        """Whether so many free cells, split where need be, make up for all that tenants may still ask for."""
        spare = 0
        for level in range(len(counts) - 1, 0, -1):
            spare = spare * self._chain.fanout_above(level) + counts[level] - owed[level]
            if spare < 0:
                return False
        return True

    def counts_without(self, cell: Physical) -> list[int] | None:
        """The counts once a cell is taken; None if it is not free."""
        counts = self.counts()
        part: Physical | None = cell
        while part is not None and not part.is_listed:
            part = part.parent
            if part is not None:
                counts[part.level - 1] += len(part.children) - 1
        if part is None:
            return None
        counts[part.level] -= 1
        return counts

    def _list(self, cell: Physical) -> None:
        cell.is_listed = True
        self.listed[cell.level][cell] = None
        self._add_up(cell, 1)

    def _unlist(self, cell: Physical) -> None:
        cell.is_listed = False
        del self.listed[cell.level][cell]
        self._add_up(cell, -1)

    def _add_up(self, cell: Physical, sign: int) -> None:
        for level, amount in enumerate(cell.spread):
            self.left[level] += sign * amount
        if cell.bad:
            for part in _bad_parts(cell):
                self.bad[part.level] += sign


def _bad_parts(cell: Physical) -> Iterator[Physical]:
    yield cell
    for child in cell.children:
        if child.bad:
            yield from _bad_parts(child)
