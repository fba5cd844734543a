"""The rates of an interconnect from the links of a network: what planners of parallel training reckon with.

All devices of a node exchange with their peers of other nodes at the same time, each in a ring of its own, as replicas
do; what the busiest link lets through is the rate of a node. One such ring alone gives the rate of a device.
"""

from __future__ import annotations

from dataclasses import replace

from rota.core.errors import RotaError
from rota.network.collectives import CollectiveKind
from rota.network.demand import IterationDemand
from rota.network.model import NetworkModel
from rota.network.routing import Router
from rota.network.traffic import JobTraffic, RankPlace, traffic_on
from rota.planner.parallel.collectives import BusRate, Interconnect, fitted_bus_rate

SIZE = 1e9
"""Bytes of the exchanges by which rates are found."""
SIZES = tuple(1e6 * 2.0**step for step in range(11))
"""Sizes at which measured tables are read: 1 MB to 1 GB."""


def interconnect_on(usual: Interconnect, model: NetworkModel, nodes: int, per_node: int) -> Interconnect:
    """Return what the first nodes of a network give devices; what it does not say is as usual."""
    if nodes > len(model.topology.nodes):
        raise RotaError(
            f"{model.source}: it has {len(model.topology.nodes)} nodes, and the plan needs {nodes}; add some"
        )
    found = usual if nodes < 2 else _between(usual, model, nodes, per_node)
    inside = _inside(model, per_node)
    if not inside:
        return found
    return replace(found, intra=inside, p2p_bytes_per_s=inside[0].bytes_per_s)


def _between(usual: Interconnect, model: NetworkModel, nodes: int, per_node: int) -> Interconnect:
    rings = [
        _ring(model, [RankPlace(node=node, device=device) for node in range(nodes)], device)
        for device in range(per_node)
    ]
    loads: dict[int, float] = {}
    for ring in rings:
        for link, load in ring.loads.items():
            loads[link] = loads.get(link, 0.0) + load * ring.unit_bytes
    capacity = model.topology.capacity
    sent = 2 * (nodes - 1) / nodes * SIZE
    busiest_s = max(load / float(capacity[link]) for link, load in loads.items()) / model.efficiency
    alone_s = max(ring.moving_s for ring in rings)
    steps = 2 * (nodes - 1)
    return replace(
        usual,
        node_bytes_per_s=per_node * sent / busiest_s,
        device_bytes_per_s=sent / alone_s,
        hop_latency_s=max(ring.fixed_s for ring in rings) / steps,
    )


def _ring(model: NetworkModel, ranks: list[RankPlace], key: int) -> JobTraffic:
    router = Router(model.topology, ecmp=model.ecmp, seed=model.seed)
    demand = IterationDemand(compute_s=0.0, bytes=SIZE, collective=CollectiveKind.RING)
    bare = replace(model, inside=None)
    return traffic_on(demand, ranks, bare, lambda one, other: router.route(one, other, key))


def _inside(model: NetworkModel, per_node: int) -> tuple[BusRate, ...]:
    """Return rates inside a node: of measured tables, of the links between its devices, or none."""
    counts = sorted({ranks for ranks in (2, 4, 8) if ranks <= per_node} | ({per_node} if per_node > 1 else set()))
    if model.inside is not None:
        table = model.inside
        return tuple(fitted_bus_rate(ranks, SIZES, [table.time_s(ranks, size) for size in SIZES]) for ranks in counts)
    if len(model.topology.endpoints[0]) < 2:
        return ()
    rates = []
    for ranks in counts:
        ring = _ring(model, [RankPlace(node=0, device=device) for device in range(ranks)], 0)
        if ring.moving_s <= 0:
            return ()
        rate = 2 * (ranks - 1) / ranks * SIZE / ring.moving_s
        rates.append(BusRate(ranks=ranks, latency_s=ring.fixed_s, bytes_per_s=rate))
    return tuple(rates)
