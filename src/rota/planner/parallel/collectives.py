"""How long collective operations take: latency plus bytes over bandwidth, by algorithm and by the links used.

The bus bandwidth and start-up time of NCCL on one node are those of measured tables (see `docs/reference/
planner-parallel.md`). The formulae hold for any links, so that models of the network can share them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class BusRate:
    """What an all-reduce over `ranks` devices reaches: a start-up time and a bus bandwidth for large messages."""

    ranks: int
    latency_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Interconnect:
    """Links inside a node (rates by ranks, ascending) and the network between nodes.

    `node_bytes_per_s` is what all devices of a node together send to other nodes, `device_bytes_per_s` the most that
    one of them does; `hop_latency_s` the time of one message between nodes, whatever its size; `p2p_bytes_per_s` the
    rate of one message inside a node.
    """

    intra: tuple[BusRate, ...]
    p2p_bytes_per_s: float
    node_bytes_per_s: float
    device_bytes_per_s: float = math.inf
    hop_latency_s: float = 1.5e-5

    def bus(self, ranks: int) -> BusRate:
        """The rate inside a node, interpolated over the logarithm of ranks between what was measured."""
        known = self.intra
        if ranks <= known[0].ranks:
            return known[0]
        for low, high in pairwise(known):
            if ranks <= high.ranks:
                part = math.log(ranks / low.ranks) / math.log(high.ranks / low.ranks)
                return BusRate(
                    ranks=ranks,
                    latency_s=low.latency_s + part * (high.latency_s - low.latency_s),
                    bytes_per_s=low.bytes_per_s + part * (high.bytes_per_s - low.bytes_per_s),
                )
        last = known[-1]
        return BusRate(
            ranks=ranks,
            latency_s=last.latency_s * math.log2(ranks) / math.log2(last.ranks),
            bytes_per_s=last.bytes_per_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """A group of devices: how many there are, how many of them share a node, and how many groups share its network."""

    ranks: int
    per_node: int
    groups_per_node: int = 1

    @property
    def nodes(self) -> int:
        """Nodes that the group spans."""
        return -(-self.ranks // self.per_node)


def ring_all_reduce_s(ranks: int, message_bytes: float, latency_s: float, bytes_per_s: float) -> float:
    """Reduce-scatter, then all-gather, around a ring: 2(n-1) messages of S/n bytes."""
    return 2 * (ranks - 1) * (latency_s + message_bytes / ranks / bytes_per_s)


def tree_all_reduce_s(ranks: int, message_bytes: float, latency_s: float, bytes_per_s: float) -> float:
    """Two binary trees with half of the bytes each, pipelined: up and down."""
    return 2 * math.ceil(math.log2(ranks)) * latency_s + 2 * message_bytes / bytes_per_s if ranks > 1 else 0.0


def halving_doubling_s(ranks: int, message_bytes: float, latency_s: float, bytes_per_s: float) -> float:
    """Recursive halving, then doubling; a number of ranks that is no power of two folds first and unfolds last."""
    if ranks < 2:
        return 0.0
    steps = math.floor(math.log2(ranks))
    folds = 0 if ranks == 1 << steps else 2
    core = 1 << steps
    transfer_s = (2 * (core - 1) / core + folds) * message_bytes / bytes_per_s
    return (2 * steps + folds) * latency_s + transfer_s


def all_reduce_s(interconnect: Interconnect, ring: Ring, message_bytes: float) -> float:
    """The time of an all-reduce: inside a node as measured, across nodes the faster of ring and tree.

    Across nodes every group of a node has its part of the node's network bandwidth; a ring is no faster than the links
    inside the node.
    """
    if ring.ranks < 2 or message_bytes <= 0:
        return 0.0
    if ring.nodes == 1:
        bus = interconnect.bus(ring.ranks)
        return bus.latency_s + 2 * (ring.ranks - 1) / ring.ranks * message_bytes / bus.bytes_per_s
    inside = interconnect.bus(max(2, ring.per_node))
    rate = min(
        inside.bytes_per_s,
        interconnect.node_bytes_per_s / ring.groups_per_node,
        interconnect.device_bytes_per_s * ring.per_node,
    )
    start_s = inside.latency_s if ring.per_node > 1 else 0.0
    return start_s + min(
        ring_all_reduce_s(ring.ranks, message_bytes, interconnect.hop_latency_s, rate),
        tree_all_reduce_s(ring.ranks, message_bytes, interconnect.hop_latency_s, rate),
    )


def all_gather_s(interconnect: Interconnect, ring: Ring, message_bytes: float) -> float:
    """The time until every rank has all `message_bytes`; a reduce-scatter takes as long. Half of an all-reduce."""
    return all_reduce_s(interconnect, ring, message_bytes) / 2


def all_to_all_s(interconnect: Interconnect, ring: Ring, message_bytes: float) -> float:
    """The time until every rank has sent each other rank its 1/n of `message_bytes`."""
    return all_gather_s(interconnect, ring, message_bytes / ring.ranks)


def send_s(
    interconnect: Interconnect, message_bytes: float, *, crosses_nodes: bool, senders_per_node: int = 1
) -> float:
    """The time of one message to a neighbour; senders of a node share its network."""
    if not crosses_nodes:
        return interconnect.intra[0].latency_s / 2 + message_bytes / interconnect.p2p_bytes_per_s
    rate = min(interconnect.device_bytes_per_s, interconnect.node_bytes_per_s / senders_per_node)
    return interconnect.hop_latency_s + message_bytes / rate


def fitted_bus_rate(ranks: int, sizes_bytes: Sequence[float], times_s: Sequence[float]) -> BusRate:
    """The start-up time and bus bandwidth that fit a measured table of all-reduce times, by relative error."""
    factor = 2 * (ranks - 1) / ranks
    rows = [(1 / seconds, factor * size / seconds) for size, seconds in zip(sizes_bytes, times_s, strict=True)]
    aa = sum(a * a for a, _ in rows)
    ab = sum(a * b for a, b in rows)
    bb = sum(b * b for _, b in rows)
    sa = sum(a for a, _ in rows)
    sb = sum(b for _, b in rows)
    determinant = aa * bb - ab * ab
    latency_s = (sa * bb - sb * ab) / determinant
    return BusRate(ranks=ranks, latency_s=latency_s, bytes_per_s=determinant / (aa * sb - ab * sa))
