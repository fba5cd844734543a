"""Placements of users: a function ranks the nodes, and gangs are filled in that order.

The search keeps what must hold (whole gangs, one device type, memory, hard locality): a function can choose badly, not
wrongly. Tasks that ask for a fraction of a device are placed as by `any`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.model.cluster import Node
from rota.core.model.job import Job, Locality
from rota.core.model.placement import Placement
from rota.core.state.inventory import Inventory
from rota.placement.patterns import Piece
from rota.placement.search import find
from rota.plugins import Plugin, PluginKind

PLACEMENTS = PluginKind(what="placement", group="rota.placements")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChoice:
    """A node that has room for at least one task of a job."""

    node: Node
    free: int
    """Devices that are free."""
    room: int
    """Tasks of the job for which there is room."""
    jobs: int
    """Jobs that run on it."""


def find_ranked(inventory: Inventory, job: Job, ranking: Plugin, insist: Locality | None) -> Placement | None:
    """Devices for all tasks of a job on the nodes of lowest rank, or None."""

    def lay(by_room: Sequence[int], tasks: int) -> list[Piece] | None:
        ranked = sorted((_rank(inventory, job, ranking, node, room), node, room) for node, room in _rooms(by_room))
        pieces: list[Piece] = []
        for _, node, room in ranked:
            taken = min(room, tasks)
            pieces.append((node, taken))
            tasks -= taken
            if not tasks:
                return pieces
        return None

    return find(inventory, job, lay, insist)


def _rank(inventory: Inventory, job: Job, ranking: Plugin, node: int, room: int) -> float:
    account = inventory.nodes[node]
    choice = NodeChoice(node=account.node, free=account.free, room=room, jobs=account.users)
    return ranking.number(f"node {account.node.id} and job {job.id}", choice, job)


def _rooms(by_room: Sequence[int]) -> list[tuple[int, int]]:
    """Every node with room, and how many tasks it takes."""
    return [
        (node, room)
        for room, nodes in enumerate(by_room)
        if room
        for node in range(nodes.bit_length())
        if nodes >> node & 1
    ]
