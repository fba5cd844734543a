"""Links between devices of a planning problem from the links of a network."""

from __future__ import annotations

from dataclasses import replace

from rota.core.errors import RotaError
from rota.network.model import NetworkModel
from rota.network.routing import Router, mixed
from rota.planner.description.devices import DeviceGraph, DeviceLink


def linked_by(model: NetworkModel, devices: DeviceGraph, per_node: int) -> DeviceGraph:
    """Return devices on the first nodes of a network, linked by its routes; in a node as they were, unless it says.

    A route is as fast as its slowest link, which transfers of other pairs over it share.
    """
    topology = model.topology
    nodes = -(-len(devices) // per_node)
    if nodes > len(topology.nodes):
        raise RotaError(f"{model.source}: it has {len(topology.nodes)} nodes, and the devices need {nodes}; add some")
    router = Router(topology, ecmp=model.ecmp, seed=model.seed)

    def linked(link: DeviceLink) -> DeviceLink:
        numbers = devices.numbers[link.source], devices.numbers[link.target]
        source, target = (topology.vertex(*divmod(number, per_node)) for number in numbers)
        path = router.route(source, target, mixed(*numbers))
        if not path:
            return link
        slowest = min(path, key=lambda number: topology.links[number].bytes_per_s)
        latency_s = model.message_s + sum(float(topology.latency_s[number]) for number in path)
        return replace(
            link,
            bytes_per_ms=float(topology.capacity[slowest]) * model.efficiency / 1000,
            latency_ms=1000 * latency_s,
            medium=str(topology.links[slowest]),
        )

    return DeviceGraph(devices=devices.devices, links=tuple(map(linked, devices.links)))
