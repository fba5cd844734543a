"""Which cells of a view take a gang: few nodes, the fullest first, and inside a node devices near to each other.

The same code packs a tenant's virtual cells and, for work without a guarantee, the physical ones. A *view* is a
list of nodes that stays in the order of its last use, so that equal nodes are not reshuffled between calls.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from rota.core.cells import LEAF_LEVEL
from rota.core.model import OPPORTUNISTIC
from rota.tenancy.cells.tree import FREE, Physical, Virtual

CellT = TypeVar("CellT", Physical, Virtual)


class Shortage(Enum):
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


class View(Generic[CellT]):
    """Nodes to pack into: node-level cells, or smaller ones that are all their owner has of a node."""

    __slots__ = ("_packs_all", "nodes")

    def __init__(self, nodes: Sequence[CellT], *, packs_all: bool) -> None:
        self.nodes: list[CellT] = list(nodes)
        self._packs_all = packs_all
        """Whether a node counts as full by all that is on it, or only by work of the same priority."""

    def pack(self, sizes: Sequence[int], priority: int, suggested: Collection[str] | None) -> Packed[CellT] | Shortage:
        """Devices for tasks of these sizes: out of idle ones if that will do, else from lower priorities too."""
        sizes = sorted(sizes)
        found = self._pick_nodes(sizes, OPPORTUNISTIC, suggested)
        at = OPPORTUNISTIC
        if isinstance(found, Shortage) and priority > OPPORTUNISTIC:
            at = priority
            found = self._pick_nodes(sizes, priority, suggested)
        if isinstance(found, Shortage):
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
    ) -> list[CellT] | Shortage:
        """One pass over the nodes, best first, never back to an earlier one."""
        self._sort(priority, suggested)
        picked: list[CellT] = []
        at = 0
        for node in self.nodes:
            room = node.leaves - held(node, priority)
            while room >= sizes[at]:
                if not node.is_healthy:
                    return Shortage.BAD
                if suggested is not None and not _is_suggested(node, suggested):
                    return Shortage.NOT_SUGGESTED
                picked.append(node)
                room -= sizes[at]
                at += 1
                if at == len(sizes):
                    return picked
        return Shortage.CAPACITY

    def _sort(self, priority: int, suggested: Collection[str] | None) -> None:
        packs_all = self._packs_all

        def rank(node: CellT) -> tuple[bool, bool, int, int]:
            shunned = suggested is not None and not _is_suggested(node, suggested)
            used = node.used
            if not used:
                return (not node.is_healthy, shunned, 0, 0)
            if packs_all:
                return (not node.is_healthy, shunned, -sum(used.values()), 0)
            return (not node.is_healthy, shunned, -used.get(priority, 0), held(node, priority + 1))

        self.nodes.sort(key=rank)


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
