"""Defragmentation for elastic jobs: smaller jobs move to make room on as few nodes as possible.

Sizes that divide nodes evenly always fit if there are enough devices, as in a buddy allocator. A job only displaces
smaller ones, so that moving terminates.
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
    """Places jobs on the fewest nodes their sizes need, and moves `movable` jobs out of the way."""

    def __init__(self, draft: Draft, resizer: Resizer, movable: Iterable[Candidate]) -> None:
        self._draft = draft
        self._resizer = resizer
        self._movable = [found for found in movable if found.is_elastic or len(found.live.job.roles) == 1]
        self._node_devices = max((account.node.devices for account in draft.inventory.nodes), default=1) or 1

    def is_compact(self, found: Candidate) -> bool:
        """Return whether a job spans no more nodes than it needs."""
        nodes = {slot.node for slot in found.live.placement or ()}
        return len(nodes) <= self._least_nodes(_milli(found))

    def place(self, found: Candidate, tasks: int) -> bool:
        """Place or grow a job to this size on the fewest nodes; return False, with nothing changed, if impossible."""
        mark = self._draft.mark()
        if self._is_compacted(found, tasks):
            return True
        self._draft.undo(mark)
        return False

    def _is_compacted(self, found: Candidate, tasks: int) -> bool:
        draft, mark = self._draft, self._draft.mark()
        if found.live.placement is not None:
            if found.is_elastic and self._resizer.grow(draft, found.live, tasks, None) and self.is_compact(found):
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
        return all(self._is_compacted(other, size) for other, size in moved)

    def _is_placed(self, found: Candidate, tasks: int) -> bool:
        return self._resizer.place(self._draft, found.live, tasks, None) is None and self.is_compact(found)

    def _make_room(self, milli: int) -> list[tuple[Candidate, int]] | None:
        """Release the fewest jobs to free enough nodes; return them with their sizes, largest first, or None."""
        each = min(math.ceil(milli / WHOLE), self._node_devices)
        held = self._smaller_by_node(milli)
        account = self._draft.inventory.nodes
        usable = [at for at, node in enumerate(account) if node.up and not node.drained]
        rooms = [(at, each - account[at].free) for at in usable]
        fitting = sorted(
            (max(short, 0), at) for at, short in rooms if short <= sum(devices for devices, _ in held.get(at, ()))
        )
        wanted = fitting[: self._least_nodes(milli)]
        if len(wanted) < self._least_nodes(milli):
            return None
        moved: dict[int, tuple[Candidate, int]] = {}
        for short, at in wanted:
            for found in _fewest_to_move(held.get(at, []), short):
                if found.live.placement is not None:
                    moved[found.seq] = (found, _tasks(found))
                    self._draft.release(found.live)
        return sorted(moved.values(), key=lambda one: (-one[1] * one[0].per_task_milli, one[0].seq))

    def _smaller_by_node(self, milli: int) -> dict[int, list[tuple[int, Candidate]]]:
        """Return movable jobs that hold less than this, with their devices on each node."""
        held: dict[int, list[tuple[int, Candidate]]] = {}
        for found in self._movable:
            if found.live.placement is None or _milli(found) >= milli:
                continue
            for slot in found.live.placement:
                held.setdefault(slot.node, []).append((slot.devices.bit_count(), found))
        return held

    def _least_nodes(self, milli: int) -> int:
        return max(math.ceil(milli / (self._node_devices * WHOLE)), 1)


def _fewest_to_move(held: list[tuple[int, Candidate]], short: int) -> list[Candidate]:
    """Return the jobs to move for that many devices: the smallest that suffices, else the largest, repeatedly."""
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
