"""Devices by the links between them: the nodes on which a job's exchange is fastest, alone or beside other jobs.

Candidates start at a switch and take its nodes first, then the nearest others. Each is judged by the time of the job's
collective on the network, then by how many jobs its nodes already serve; under `cassini` by the time of an iteration
that the jobs on its links leave it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from rota.core.model.job import WHOLE, Job, Locality
from rota.core.model.placement import Placement, device_indexes
from rota.core.state.inventory import Inventory
from rota.network.demand import IterationDemand, demand_of
from rota.network.model import NetworkModel
from rota.network.routing import Router, mixed
from rota.network.traffic import JobTraffic, RankPlace, traffic_of
from rota.network.turns import phased_job
from rota.placement.link_neighbours import LinkNeighbours
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


def find_by_links(
    inventory: Inventory, job: Job, spec: str, insist: Locality | None, neighbours: LinkNeighbours | None = None
) -> Placement | None:
    """Devices for all tasks of a job where its exchange takes least time, or None.

    With neighbours, its iteration is judged as it is beside the jobs that send on the same links.
    """
    known = _network(spec, tuple(str(account.node.id) for account in inventory.nodes))
    demand = demand_of(job, known.model.models, known.model.usual) or _UNKNOWN
    if neighbours is not None:
        neighbours.refresh(known.model, inventory)

    def lay(by_room: Sequence[int], tasks: int) -> list[Piece] | None:
        room = {
            node: count
            for count, nodes in enumerate(by_room)
            if count
            for node in range(nodes.bit_length())
            if nodes >> node & 1
        }
        orders = _orders(known, room)
        if neighbours is not None:
            orders += _orders_by_load(known, room, neighbours.wanted(known.model))
        candidates = [pieces for order in orders if (pieces := _filled(known, order, room, tasks))]
        judged = sorted((_judged(known, inventory, demand, pieces, job) for pieces in candidates), key=_Candidate.rank)
        if not judged:
            return None
        return judged[0].pieces if neighbours is None else _fittest(known, neighbours, judged, job).pieces

    return find(inventory, job, lay, insist)


class _Candidate(NamedTuple):
    """Nodes that a job could have, and how it would run there alone."""

    traffic: JobTraffic | None
    users: int
    left: int
    pieces: list[Piece]

    def rank(self) -> tuple[float, int, int, list[Piece]]:
        """By the time of the exchange, the jobs beside it, and the room that it leaves on its nodes."""
        return (0.0 if self.traffic is None else round(self.traffic.comm_s, 12), self.users, self.left, self.pieces)


def _fittest(known: _KnownNetwork, neighbours: LinkNeighbours, judged: Sequence[_Candidate], job: Job) -> _Candidate:
    """The candidate with the shortest iteration beside other jobs; the first of several that are equal."""
    best, least_s = judged[0], math.inf
    scores: dict[Hashable, float] = {}
    for candidate in judged:
        if candidate.traffic is None:
            return candidate
        sender = phased_job(candidate.traffic)
        if sender.alone_s >= least_s:
            continue
        fits = neighbours.score(sender, job.id, known.model, scores) if sender.loads else 1.0
        beside_s = sender.alone_s * (2.0 - fits)
        if beside_s < least_s * (1 - 1e-9):
            best, least_s = candidate, beside_s
    return best


def _orders(known: _KnownNetwork, room: dict[int, int]) -> list[list[int]]:
    """Orders of nodes: from each of several switches outwards, those with the tightest room for the job first."""
    rooms = _room_by_switch(known, room)
    starts = sorted(rooms, key=lambda switch: (-rooms[switch], switch))[:MOST_CANDIDATES]
    starts += sorted(rooms, key=lambda switch: (rooms[switch], switch))[:MOST_CANDIDATES]
    return [_outwards(known, room, start, {}) for start in dict.fromkeys(starts)]


def _orders_by_load(known: _KnownNetwork, room: dict[int, int], wanted: Mapping[int, float]) -> list[list[int]]:
    """Orders from the switches whose links other jobs use least: by that use, and by the number of the switch.

    Of switches that are equally far, the least used come next; or those that follow, so that each meets another one.
    """
    rooms = _room_by_switch(known, room)
    starts = sorted(rooms, key=lambda switch: (wanted.get(switch, 0.0), switch))[:MOST_CANDIDATES]
    turn = {start: {home: float(home < start) for home in rooms} for start in starts}
    return [_outwards(known, room, start, by) for start in starts for by in (wanted, turn[start])]


def _room_by_switch(known: _KnownNetwork, room: dict[int, int]) -> dict[int, int]:
    rooms: dict[int, int] = {}
    for node, count in room.items():
        rooms[known.homes[node]] = rooms.get(known.homes[node], 0) + count
    return rooms


def _outwards(known: _KnownNetwork, room: dict[int, int], start: int, by: Mapping[int, float]) -> list[int]:
    """The nodes with room from a switch outwards; of switches that are equally far, those with the least of `by`."""
    at: dict[int, tuple[int, float, int]] = {}
    for home in {known.homes[node] for node in room}:
        far = len(known.router.paths(start, home, 1)[0]) if home != start else 0
        at[home] = (far, by.get(home, 0.0), home)
    return sorted(room, key=lambda n: (at[known.homes[n]], -room[n], n))


def _filled(known: _KnownNetwork, order: Sequence[int], room: dict[int, int], tasks: int) -> list[Piece] | None:
    """The nodes of an order, switch by switch, until all tasks have one; the last tasks on the tightest that fits.

    So single nodes are filled up before empty ones are begun, which later jobs may need whole.
    """
    pieces: list[Piece] = []
    for _, below in groupby(order, key=lambda node: known.homes[node]):
        nodes = list(below)
        for at, node in enumerate(nodes):
            if room[node] >= tasks:
                tightest = min(nodes[at:], key=lambda n: (room[n] < tasks, room[n], n))
                return [*pieces, (tightest, tasks)]
            pieces.append((node, room[node]))
            tasks -= room[node]
    return None


def _judged(
    known: _KnownNetwork, inventory: Inventory, demand: IterationDemand, pieces: list[Piece], job: Job
) -> _Candidate:
    """A candidate with the traffic of the job there; none for a single rank. Jobs beside it matter between nodes."""
    ranks = _ranks(known, inventory, pieces, job)
    key = mixed(*job.id.encode())
    return _Candidate(
        traffic=traffic_of(demand, ranks, known.model, known.router, key) if len(ranks) > 1 else None,
        users=sum(inventory.nodes[node].users for node, _ in pieces) if len(pieces) > 1 else 0,
        left=sum(inventory.nodes[node].free for node, _ in pieces),
        pieces=pieces,
    )


def _ranks(known: _KnownNetwork, inventory: Inventory, pieces: Sequence[Piece], job: Job) -> list[RankPlace]:
    """The ranks of a candidate on the devices that it would get; one on each node for a large job."""
    per_task = job.roles[0].device_milli // WHOLE if len(job.roles) == 1 else 0
    few = sum(tasks for _, tasks in pieces) * max(per_task, 1) <= MOST_RANKS
    found = []
    for node, tasks in pieces:
        count = tasks * max(per_task, 1) if few else 1
        picked = device_indexes(inventory.nodes[node].pick_devices(count)) if per_task else []
        devices = picked if len(picked) == count else range(count)
        found += [RankPlace(node=known.places[node], device=device) for device in devices]
    return found
