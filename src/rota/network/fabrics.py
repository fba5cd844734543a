"""Well-known networks by a few numbers: fat tree, rail-optimised, BiGraph, torus, and islands of NVLink."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.network.topology import NetworkLink, NetworkTopology, duplex, joined

GBIT = 1e9 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class IslandSpec:
    """The fast links between the devices of one node; a rate of 0 means that the node is one vertex."""

    devices: int = 0
    bytes_per_s: float = 0.0
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        if self.devices < 0 or not 0 <= self.bytes_per_s < math.inf:
            raise RotaError(
                f"island: {self.devices} devices at {self.bytes_per_s:g} bytes/s; both must be 0 or more and finite"
            )

    def endpoints(self, node: str) -> tuple[str, ...]:
        """Return the vertices of a node: itself and, where the island has links, one for each device."""
        return (node, *(f"{node}/gpu{device}" for device in range(self.devices))) if self.bytes_per_s else (node,)

    def links(self, node: str) -> list[tuple[NetworkLink, NetworkLink]]:
        """Return the cables between the devices of a node and its crossbar, which is the node's own vertex."""
        return [duplex(name, node, self.bytes_per_s, self.latency_s) for name in self.endpoints(node)[1:]]


NO_ISLAND = IslandSpec()


def fat_tree(
    nodes: Sequence[str],
    *,
    per_leaf: int = 16,
    spines: int = 4,
    leaves_per_pod: int = 0,
    cores: int = 0,
    link_bytes_per_s: float = 100 * GBIT,
    oversubscription: float = 1.0,
    core_oversubscription: float = 1.0,
    latency_s: float = 0.0,
    island: IslandSpec = NO_ISLAND,
) -> NetworkTopology:
    """Return leaves and spines, and above pods of `leaves_per_pod` leaves a layer of cores.

    A leaf sends to its spines, all together, the rate of its nodes divided by the oversubscription; a spine to the
    cores likewise. Without `leaves_per_pod` all leaves are in one pod and there are no cores.
    """
    _positive(per_leaf=per_leaf, spines=spines, oversubscription=oversubscription)
    _positive(core_oversubscription=core_oversubscription, link_bytes_per_s=link_bytes_per_s)
    leaves = -(-len(nodes) // per_leaf)
    per_pod = leaves_per_pod or leaves
    cables = [cable for node in nodes for cable in island.links(node)]
    up = per_leaf * link_bytes_per_s / oversubscription / spines
    for number, node in enumerate(nodes):
        cables.append(duplex(node, f"leaf{number // per_leaf}", link_bytes_per_s, latency_s))
    for leaf in range(leaves):
        pod = leaf // per_pod
        cables += [duplex(f"leaf{leaf}", f"spine{pod}.{spine}", up, latency_s) for spine in range(spines)]
    pods = -(-leaves // per_pod)
    if pods > 1:
        core = per_pod * up / core_oversubscription / (cores or spines)
        cables += [
            duplex(f"spine{pod}.{spine}", f"core{number}", core, latency_s)
            for pod in range(pods)
            for spine in range(spines)
            for number in range(cores or spines)
        ]
    return NetworkTopology(
        nodes=tuple(nodes), links=joined(cables), endpoints=tuple(map(island.endpoints, nodes)), kind="fat-tree"
    )


def rail_optimised(
    nodes: Sequence[str],
    *,
    rails: int = 8,
    per_leaf: int = 32,
    spines: int = 4,
    link_bytes_per_s: float = 400 * GBIT,
    oversubscription: float = 1.0,
    latency_s: float = 0.0,
    island: IslandSpec | None = None,
) -> NetworkTopology:
    """Return a network in which device `i` of every node has its own port on rail `i`; spines join the rails."""
    _positive(rails=rails, per_leaf=per_leaf, spines=spines, oversubscription=oversubscription)
    inside = island or IslandSpec(devices=rails, bytes_per_s=450e9)
    if inside.devices < rails or not inside.bytes_per_s:
        raise RotaError(f"a rail-optimised network of {rails} rails needs islands of at least {rails} devices")
    cables = [cable for node in nodes for cable in inside.links(node)]
    up = per_leaf * link_bytes_per_s / oversubscription / spines
    leaves: dict[str, None] = {}
    for number, node in enumerate(nodes):
        for rail in range(rails):
            leaf = f"rail{rail}.{number // per_leaf}"
            leaves[leaf] = None
            cables.append(duplex(f"{node}/gpu{rail}", leaf, link_bytes_per_s, latency_s))
    cables += [duplex(leaf, f"spine{spine}", up, latency_s) for leaf in leaves for spine in range(spines)]
    return NetworkTopology(
        nodes=tuple(nodes), links=joined(cables), endpoints=tuple(map(inside.endpoints, nodes)), kind="rail-optimised"
    )


def bigraph(
    nodes: Sequence[str],
    *,
    switches: int = 4,
    link_bytes_per_s: float = 100 * GBIT,
    trunk_bytes_per_s: float | None = None,
    latency_s: float = 0.0,
    island: IslandSpec = NO_ISLAND,
) -> NetworkTopology:
    """Return two sets of switches with a trunk between every two of opposite sets; nodes are attached to both sets.

    The first half of the nodes is below the first set. Without `trunk_bytes_per_s` the trunks of a switch carry what
    its nodes send.
    """
    _positive(switches=switches, link_bytes_per_s=link_bytes_per_s)
    half = -(-len(nodes) // 2)
    per_switch = -(-half // switches)
    trunk = trunk_bytes_per_s or per_switch * link_bytes_per_s / switches
    cables = [cable for node in nodes for cable in island.links(node)]
    for number, node in enumerate(nodes):
        side, place = ("upper", number) if number < half else ("lower", number - half)
        cables.append(duplex(node, f"{side}{place // per_switch}", link_bytes_per_s, latency_s))
    cables += [
        duplex(f"upper{one}", f"lower{other}", trunk, latency_s) for one in range(switches) for other in range(switches)
    ]
    return NetworkTopology(
        nodes=tuple(nodes), links=joined(cables), endpoints=tuple(map(island.endpoints, nodes)), kind="bigraph"
    )


def torus(
    nodes: Sequence[str],
    *,
    shape: Sequence[int],
    link_bytes_per_s: float = 100 * GBIT,
    latency_s: float = 0.0,
    island: IslandSpec = NO_ISLAND,
) -> NetworkTopology:
    """Return a torus of any dimensions whose nodes forward; a dimension of 2 has one cable between two neighbours."""
    if math.prod(shape) != len(nodes) or not shape or min(shape) < 1:
        raise RotaError(
            f"torus: shape {'x'.join(map(str, shape))} has {math.prod(shape)} places for {len(nodes)} nodes; "
            "make them equal"
        )
    cables = [cable for node in nodes for cable in island.links(node)]
    for number, node in enumerate(nodes):
        stride = 1
        for size in reversed(shape):
            place = number // stride % size
            if size > 2 or (size == 2 and place == 0):
                other = number + ((place + 1) % size - place) * stride
                cables.append(duplex(node, nodes[other], link_bytes_per_s, latency_s))
            stride *= size
    return NetworkTopology(
        nodes=tuple(nodes),
        links=joined(cables),
        endpoints=tuple(map(island.endpoints, nodes)),
        nodes_forward=True,
        kind="torus",
    )


def _positive(**amounts: float) -> None:
    for name, amount in amounts.items():
        if not 0 < amount < math.inf:
            raise RotaError(f"network: {name} is {amount:g}; it must be a number above 0")
