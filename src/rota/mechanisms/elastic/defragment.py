"""Room for a job of a size that divides nodes without a rest: smaller jobs move where their devices lie in the way.

Such sizes always fit together if there are devices enough, as in a buddy allocator. Who is moved is smaller than who
moves it, so that moving ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from rota.core.engine.draft import Draft
from rota.core.model.job import WHOLE
from rota.core.model.placement import tasks_of
from rota.mechanisms.elastic.resize import Resizer
from rota.mechanisms.elastic.rule import Candidate


class Defragmenter:
    """Seats jobs on as few nodes as their sizes need, and moves `movable` holders for them."""

    def __init__(self, draft: Draft, seating: Resizer, movable: Iterable[Candidate]) -> None:
        self._draft = draft
        self._seating = seating
        self._movable = [found for found in movable if found.is_elastic or len(found.live.job.roles) == 1]
        self._node_devices = max((books.node.devices for books in draft.inventory.nodes), default=1) or 1

    def is_compact(self, found: Candidate) -> bool:
        """Whether a holder is on no more nodes than it needs."""
        nodes = {slot.node for slot in found.live.placement or ()}
        return len(nodes) <= self._least_nodes(_milli(found))

    def seat(self, found: Candidate, tasks: int) -> bool:
        """Let a job have this size on as few nodes as can be; nothing is changed if that can't be done."""
        mark = self._draft.mark()
        if self._seated(found, tasks):
            return True
        self._draft.undo(mark)
        return False

    def _seated(self, found: Candidate, tasks: int) -> bool:
        draft, mark = self._draft, self._draft.mark()
        if found.live.placement is not None:
            if found.is_elastic and self._seating.grow(draft, found.live, tasks, None) and self.is_compact(found):
                return True
            draft.undo(mark)
            draft.release(found.live)
            mark = draft.mark()
        if self._is_placed(found, tasks):
            return True
        draft.undo(mark)
        moved = self._make_room(tasks * found.per_task_milli)
        if moved is None or not self._is_placed(found, tasks):
            return False
        return all(self._seated(other, size) for other, size in moved)

    def _is_placed(self, found: Candidate, tasks: int) -> bool:
        return self._seating.place(self._draft, found.live, tasks, None) is None and self.is_compact(found)

    def _make_room(self, milli: int) -> list[tuple[Candidate, int]] | None:
        """Empty the nodes on which least is in the way; who held it at which size, largest first, None if none can."""
        each = min(math.ceil(milli / WHOLE), self._node_devices)
        held = self._smaller_by_node(milli)
        books = self._draft.inventory.nodes
        usable = [at for at, node in enumerate(books) if node.up and not node.drained]
        rooms = [(at, each - books[at].free) for at in usable]
        fitting = sorted(
            (max(short, 0), at) for at, short in rooms if short <= sum(devices for devices, _ in held.get(at, ()))
        )
        wanted = fitting[: self._least_nodes(milli)]
        if len(wanted) < self._least_nodes(milli):
            return None
        moved: dict[int, tuple[Candidate, int]] = {}
        for short, at in wanted:
            for found in _least_in_the_way(held.get(at, []), short):
                if found.live.placement is not None:
                    moved[found.seq] = (found, _tasks(found))
                    self._draft.release(found.live)
        return sorted(moved.values(), key=lambda one: (-one[1] * one[0].per_task_milli, one[0].seq))

    def _smaller_by_node(self, milli: int) -> dict[int, list[tuple[int, Candidate]]]:
        """Movable jobs that hold less than this, with their devices on each node."""
        held: dict[int, list[tuple[int, Candidate]]] = {}
        for found in self._movable:
            if found.live.placement is None or _milli(found) >= milli:
                continue
            for slot in found.live.placement:
                held.setdefault(slot.node, []).append((slot.devices.bit_count(), found))
        return held

    def _least_nodes(self, milli: int) -> int:
        return max(math.ceil(milli / (self._node_devices * WHOLE)), 1)


def _least_in_the_way(held: list[tuple[int, Candidate]], short: int) -> list[Candidate]:
    """Who goes so that so many devices are free: the smallest that does it alone, else the largest and so on."""
    left = sorted(held, key=lambda one: (one[0], one[1].seq))
    gone: list[Candidate] = []
    while short > 0 and left:
        at = next((index for index, (devices, _) in enumerate(left) if devices >= short), len(left) - 1)
        devices, found = left.pop(at)
        gone.append(found)
        short -= devices
    return gone


def _milli(found: Candidate) -> int:
    return _tasks(found) * found.per_task_milli


def _tasks(found: Candidate) -> int:
    return tasks_of(found.live.placement or ()) if found.is_elastic else 1
