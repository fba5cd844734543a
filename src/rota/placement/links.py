"""Devices by the links between them: the nodes on which a job's own exchange is fastest.

Candidates start at a switch and take its nodes first, then the nearest others. Each is judged by the time of the job's
collective on the network, then by how many jobs its nodes already serve.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from rota.core.model.job import Job, Locality
from rota.core.model.placement import Placement
from rota.core.state.inventory import Inventory
from rota.network.demand import IterationDemand, demand_of
from rota.network.model import NetworkModel
from rota.network.routing import Router
from rota.network.traffic import RankPlace, traffic_of
from rota.placement.patterns import Piece
from rota.placement.search import find

MOST_CANDIDATES = 12
MOST_RANKS = 64
"""Ranks of a larger job stand for several each: its exchange is judged between nodes."""
_UNKNOWN = IterationDemand(compute_s=1.0, bytes=1e9)


class _KnownNetwork(NamedTuple):
    model: NetworkModel
    router: Router
    homes: tuple[int, ...]
    """The switch of each node; its own vertex where there is none."""
    places: tuple[int, ...]
    """The number of each node in the network."""


@lru_cache(maxsize=8)
def _network(spec: str, names: tuple[str, ...]) -> _KnownNetwork:
    from rota.files.network.network_file import network_from_spec

    model = network_from_spec(spec, names)
    model.topology.check_nodes(names, model.source)
    topology = model.topology
    place = {name: number for number, name in enumerate(topology.nodes)}
    homes = []
    for name in names:
        ends = {topology.index[end] for end in topology.endpoints[place[name]]}
        heads = [topology.head[link] for end in sorted(ends) for link in topology.out_links[end]]
        homes.append(next((head for head in heads if topology.owner[head] < 0), topology.vertex(place[name])))
    return _KnownNetwork(
        model, Router(topology, ecmp=model.ecmp, seed=model.seed), tuple(homes), tuple(place[name] for name in names)
    )


def find_by_links(inventory: Inventory, job: Job, spec: str, insist: Locality | None) -> Placement | None:
    """Devices for all tasks of a job where its exchange takes least time, or None."""
    known = _network(spec, tuple(str(account.node.id) for account in inventory.nodes))
    demand = demand_of(job, known.model.models, known.model.usual) or _UNKNOWN

    def lay(by_room: Sequence[int], tasks: int) -> list[Piece] | None:
        room = {
            node: count
            for count, nodes in enumerate(by_room)
            if count
            for node in range(nodes.bit_length())
            if nodes >> node & 1
        }
        candidates = [pieces for order in _orders(known, room) if (pieces := _filled(order, room, tasks))]
        if not candidates:
            return None
        judged = [(*_cost(known, inventory, demand, pieces, job.id), pieces) for pieces in candidates]
        return min(judged)[-1]

    return find(inventory, job, lay, insist)


def _orders(known: _KnownNetwork, room: dict[int, int]) -> list[list[int]]:
    """Orders of nodes: from each of several switches outwards, those with the tightest room for the job first."""
    rooms: dict[int, int] = {}
    for node, count in room.items():
        rooms[known.homes[node]] = rooms.get(known.homes[node], 0) + count
    starts = sorted(rooms, key=lambda switch: (-rooms[switch], switch))[:MOST_CANDIDATES]
    starts += sorted(rooms, key=lambda switch: (rooms[switch], switch))[:MOST_CANDIDATES]
    found = []
    for start in dict.fromkeys(starts):
        far = {home: len(known.router.paths(start, home, 1)[0]) if home != start else 0 for home in rooms}
        found.append(sorted(room, key=lambda n: (far[known.homes[n]], known.homes[n], -room[n], n)))
    return found


def _filled(order: Sequence[int], room: dict[int, int], tasks: int) -> list[Piece] | None:
    pieces: list[Piece] = []
    for node in order:
        taken = min(room[node], tasks)
        pieces.append((node, taken))
        tasks -= taken
        if not tasks:
            return pieces
    return None


def _cost(
    known: _KnownNetwork, inventory: Inventory, demand: IterationDemand, pieces: Sequence[Piece], name: str
) -> tuple[float, int, int]:
    """Return the time of the exchange, the jobs beside it, and the room that it leaves on its nodes."""
    few = sum(tasks for _, tasks in pieces) <= MOST_RANKS
    ranks = [
        RankPlace(node=known.places[node], device=device)
        for node, tasks in pieces
        for device in range(tasks if few else 1)
    ]
    comm_s = traffic_of(demand, ranks, known.model, known.router, 0).comm_s if len(ranks) > 1 else 0.0
    users = sum(inventory.nodes[node].users for node, _ in pieces)
    left = sum(inventory.nodes[node].free for node, _ in pieces)
    return round(comm_s, 12), users, left
