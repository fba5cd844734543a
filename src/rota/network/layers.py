"""The links of a topology by layer, for people."""

from __future__ import annotations

from dataclasses import dataclass

from rota.network.topology import NetworkTopology


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLayer:
    """Links of one rate between two kinds of vertices, each counted for both directions."""

    between: str
    count: int
    bytes_per_s: float


def layers_of(topology: NetworkTopology) -> list[LinkLayer]:
    """Return the links of a topology by the kinds of their ends, and by rate."""
    nodes = frozenset(topology.nodes)
    groups: dict[tuple[str, str, float], int] = {}
    for link in topology.links:
        one, other = sorted((_kind(link.source, nodes), _kind(link.target, nodes)))
        key = (one, other, link.bytes_per_s)
        groups[key] = groups.get(key, 0) + 1
    return [
        LinkLayer(between=f"{one} and {other}", count=count // 2, bytes_per_s=rate)
        for (one, other, rate), count in sorted(groups.items())
    ]


def _kind(name: str, nodes: frozenset[str]) -> str:
    """The kind of a vertex: node, device, or the letters of a switch's name."""
    if "/" in name:
        return "device"
    return "node" if name in nodes else name.rstrip("0123456789.")
