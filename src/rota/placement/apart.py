"""Tasks apart: as evenly over racks or domains as their room allows, so that one lost rack takes few of them.

A job asks for it by its label `apart`. Within a rack its tasks are on as few nodes as possible.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from rota.core.model.job import Job, Locality
from rota.core.model.labels import APART
from rota.core.model.placement import Placement
from rota.core.state.inventory import Inventory
from rota.placement.patterns import Piece, fewest_nodes, total_room
from rota.placement.search import find


def apart_by(job: Job) -> str | None:
    """What the tasks of a job are to be spread over, if anything: `rack` or `domain`."""
    for name, value in job.labels:
        if name == APART:
            return value
    return None


def find_apart(inventory: Inventory, job: Job, by: str, insist: Locality | None) -> Placement | None:
    """Devices for all tasks of a job, each role in equal parts over all racks or domains; None if they do not fit."""
    cells = (inventory.domains if by == "domain" else inventory.racks).values()

    def lay(by_room: Sequence[int], tasks: int) -> list[Piece] | None:
        return _evenly(cells, by_room, tasks)

    return find(inventory, job, lay, insist)


def _evenly(cells: Iterable[int], by_room: Sequence[int], tasks: int) -> list[Piece] | None:
    """Each task to the cell with the fewest of them that has room; among equals to that with the most room."""
    rooms = [[nodes & cell for nodes in by_room] for cell in cells]
    totals = [total_room(room) for room in rooms]
    if sum(totals) < tasks:
        return None
    taken = [0] * len(rooms)
    queue = [(0, -total, at) for at, total in enumerate(totals) if total]
    heapq.heapify(queue)
    for _ in range(tasks):
        count, room, at = heapq.heappop(queue)
        taken[at] = count + 1
        if taken[at] < totals[at]:
            heapq.heappush(queue, (taken[at], room, at))
    pieces: list[Piece] = []
    for at, count in enumerate(taken):
        if count:
            pieces += fewest_nodes(rooms[at], count) or ()
    return pieces
