"""Which cells of a view take a gang: few nodes, the fullest first, and inside a node devices near to each other.

The same code packs a tenant's virtual cells and, for work without a guarantee, the physical ones.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from rota.core.model.cells import LEAF_LEVEL
from rota.core.model.job import OPPORTUNISTIC
from rota.tenancy.cells.tree import FREE, Cell, Physical, Virtual

CellT = TypeVar("CellT", Physical, Virtual)


class PackingFailure(Enum):
    """Why a view takes a gang not."""

    CAPACITY = "capacity"
    """Too few devices, or none near enough to each other."""
    BAD = "bad"
    """It would need a bad node."""
    NOT_SUGGESTED = "not-suggested"
    """It would need a node that the caller did not suggest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed(Generic[CellT]):
    """Devices for each task, tasks in ascending order of size."""

    tasks: tuple[tuple[CellT, ...], ...]


Rank = tuple[bool, int, int, int]
"""A node's place in the order: bad ones last, then by how full it is. It ends in the devices that are idle there."""


class PackingView(Generic[CellT]):
    """Nodes to pack into: node-level cells, or smaller ones that are all their owner has of a node.

    Nodes of one rank stand together in their own order, so that a request looks at ranks rather than at nodes and its
    answer depends on nothing but what is there now. A cell reports changes of its use or health itself, and finds its
    new place when the view is next asked.
    """

    __slots__ = ("_by_rank", "_packs_all", "_place", "_rank", "_ranks", "_stale", "nodes")

    def __init__(self, nodes: Sequence[CellT], *, packs_all: bool) -> None:
        self.nodes: tuple[CellT, ...] = tuple(nodes)
        self._packs_all = packs_all
        """Whether a node counts as full by all that is on it, or only by work without a guarantee."""
        self._rank: dict[CellT, Rank] = {}
        self._place: dict[CellT, int] = {node: place for place, node in enumerate(nodes)}
        self._by_rank: dict[Rank, list[int]] = {}
        """The places of the nodes of each rank, in order."""
        self._ranks: list[Rank] = []
        self._stale: dict[Cell, None] = dict.fromkeys(nodes)
        for node in nodes:
            node.stale_in = self._stale

    def pack(
        self, sizes: Sequence[int], priority: int, suggested: Collection[str] | None
    ) -> Packed[CellT] | PackingFailure:
        """Devices for tasks of these sizes: out of idle ones if they suffice, else from lower priorities too."""
        sizes = sorted(sizes)
        at = OPPORTUNISTIC
        found = self._pick_nodes(sizes, at, suggested)
        if isinstance(found, PackingFailure) and priority > OPPORTUNISTIC:
            at = priority
            found = self._pick_nodes(sizes, at, suggested)
        if isinstance(found, PackingFailure):
            return found
        left: dict[CellT, list[CellT]] = {}
        tasks: list[tuple[CellT, ...]] = []
        for size, node in zip(sizes, found, strict=True):
            if node not in left:
                left[node] = _available(node, at)
            devices = nearest(left[node], size)
            tasks.append(tuple(devices))
            if len(devices) < len(left[node]):
                taken = set(devices)
                left[node] = [leaf for leaf in left[node] if leaf not in taken]
            else:
                left[node] = []
        return Packed(tasks=tuple(tasks))

    def room(self, priority: int) -> int:
        """Devices that are idle or held at a lower priority."""
        return sum(node.leaves - held(node, priority) for node in self.nodes)

    def _pick_nodes(
        self, sizes: Sequence[int], priority: int, suggested: Collection[str] | None
    ) -> list[CellT] | PackingFailure:
        """One pass over the nodes, best first, never back to an earlier one."""
        picked: list[CellT] = []
        at = 0
        for node in self._in_order(priority, sizes[0], suggested):
            room = node.leaves - held(node, priority)
            while room >= sizes[at]:
                if not node.is_healthy:
                    return PackingFailure.BAD
                if suggested is not None and not _is_suggested(node, suggested):
                    return PackingFailure.NOT_SUGGESTED
                picked.append(node)
                room -= sizes[at]
                at += 1
                if at == len(sizes):
                    return picked
        return PackingFailure.CAPACITY

    def _in_order(self, priority: int, least: int, suggested: Collection[str] | None) -> Iterator[CellT]:
        """Nodes in the order in which they are tried; where only idle devices count, those with too few left out."""
        self._refresh()
        if suggested is not None:
            nodes = [self.nodes[place] for rank in self._ranks for place in self._by_rank[rank]]
            nodes.sort(key=lambda node: (self._rank[node][0], not _is_suggested(node, suggested), self._rank[node]))
            yield from nodes
            return
        for rank in self._ranks:
            if priority > OPPORTUNISTIC or rank[-1] >= least:
                for place in self._by_rank[rank]:
                    yield self.nodes[place]

    def _refresh(self) -> None:
        """Give nodes that changed their new places."""
        for cell in self._stale:
            node: CellT = cell  # type: ignore[assignment]  # only nodes of this view report changes
            place, before, after = self._place[node], self._rank.get(node), self._rank_of(node)
            if before == after:
                continue
            if before is not None:
                peers = self._by_rank[before]
                del peers[bisect_left(peers, place)]
                if not peers:
                    del self._by_rank[before]
                    del self._ranks[bisect_left(self._ranks, before)]
            if after not in self._by_rank:
                self._by_rank[after] = []
                insort(self._ranks, after)
            insort(self._by_rank[after], place)
            self._rank[node] = after
        self._stale.clear()

    def _rank_of(self, node: CellT) -> Rank:
        used = node.used
        if not used:
            return (not node.is_healthy, 0, 0, node.leaves)
        total = sum(used.values())
        if self._packs_all:
            return (not node.is_healthy, -total, 0, node.leaves - total)
        own = used.get(OPPORTUNISTIC, 0)
        return (not node.is_healthy, -own, total - own, node.leaves - total)


def held(cell: Physical | Virtual, priority: int) -> int:
    """Devices held at a priority or a higher one."""
    used = cell.used
    if not used:
        return 0
    return sum(amount for at, amount in used.items() if at >= priority)


def _is_suggested(cell: Physical | Virtual, suggested: Collection[str]) -> bool:
    """Whether a node may be used; a virtual one that stands for nothing yet may."""
    physical = cell.physical if isinstance(cell, Virtual) else cell
    return physical is None or any(node in suggested for node in physical.nodes)


def _available(node: CellT, priority: int) -> list[CellT]:
    """Idle devices of a node, then those of lower priority, each in order."""
    idle: list[CellT] = []
    lower: list[CellT] = []
    _gather(node, priority, idle, lower)
    return idle + lower


def _gather(cell: CellT, priority: int, idle: list[CellT], lower: list[CellT]) -> None:
    if cell.level == LEAF_LEVEL:
        if cell.priority == FREE:
            idle.append(cell)
        elif cell.priority < priority:
            lower.append(cell)
        return
    for child in cell.children:
        _gather(child, priority, idle, lower)


def nearest(available: Sequence[CellT], size: int) -> list[CellT]:
    """The first so many of these devices whose common cell is the smallest."""
    if len(available) == size:
        return list(available)
    around: list[CellT] = list(available)
    if size == 1:
        return around[:1]
    while True:
        around = [parent if (parent := cell.parent) is not None else cell for cell in around]
        places: dict[CellT, list[int]] = {}
        for place, cell in enumerate(around):
            places.setdefault(cell, []).append(place)
        enough = [found[:size] for found in places.values() if len(found) >= size]
        if enough:
            return [available[place] for place in min(enough)]
