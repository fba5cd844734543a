"""A network as a directed graph: vertices are nodes, their devices and switches; links have a rate and a latency."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import RotaError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLink:
    """One direction of a cable: bytes per second, and seconds for a message of no size."""

    source: str
    target: str
    bytes_per_s: float
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        if self.source == self.target:
            raise RotaError(
                f"link {self.source!r}-{self.target!r}: it connects a vertex with itself; name two vertices"
            )
        if not 0 < self.bytes_per_s < math.inf:
            raise RotaError(f"link {self}: its rate is {self.bytes_per_s:g} bytes/s; it must be a number above 0")
        if not 0 <= self.latency_s < math.inf:
            raise RotaError(f"link {self}: its latency is {self.latency_s:g} s; it must be 0 or more")

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


def duplex(one: str, other: str, bytes_per_s: float, latency_s: float = 0.0) -> tuple[NetworkLink, NetworkLink]:
    """Return both directions of a cable."""
    there = NetworkLink(source=one, target=other, bytes_per_s=bytes_per_s, latency_s=latency_s)
    return there, NetworkLink(source=other, target=one, bytes_per_s=bytes_per_s, latency_s=latency_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTopology:
    """Nodes of the cluster, the vertices of their devices, and all links.

    `endpoints` are the vertices of each node: the first is the node itself; where there are more, device `i` of the
    node sends and receives at the vertex `1 + i`. Only switches and the vertices of the sender's and the receiver's
    node forward, unless `nodes_forward`, as in a torus.
    """

    nodes: tuple[str, ...]
    links: tuple[NetworkLink, ...]
    endpoints: tuple[tuple[str, ...], ...] = ()
    nodes_forward: bool = False
    kind: str = "links"
    vertices: tuple[str, ...] = field(init=False)
    index: dict[str, int] = field(init=False, compare=False)
    owner: tuple[int, ...] = field(init=False, compare=False)
    """The node that a vertex belongs to; -1 for a switch."""
    out_links: tuple[tuple[int, ...], ...] = field(init=False, compare=False)
    in_links: tuple[tuple[int, ...], ...] = field(init=False, compare=False)
    capacity: Floats = field(init=False, compare=False)
    latency_s: Floats = field(init=False, compare=False)
    head: tuple[int, ...] = field(init=False, compare=False)
    tail: tuple[int, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if not self.nodes:
            raise RotaError("the network has no nodes; name at least one")
        endpoints = self.endpoints or tuple((name,) for name in self.nodes)
        if len(endpoints) != len(self.nodes):
            raise RotaError(f"the network has {len(self.nodes)} nodes and the endpoints of {len(endpoints)}")
        names = dict.fromkeys(name for some in endpoints for name in some)
        if len(names) < sum(map(len, endpoints)):
            raise RotaError("two vertices of the network have one name; names must differ")
        for link in self.links:
            names.setdefault(link.source)
            names.setdefault(link.target)
        index = {name: number for number, name in enumerate(names)}
        owner = [-1] * len(index)
        for node, some in enumerate(endpoints):
            for name in some:
                owner[index[name]] = node
        leaving: list[list[int]] = [[] for _ in index]
        entering: list[list[int]] = [[] for _ in index]
        for number, link in enumerate(self.links):
            leaving[index[link.source]].append(number)
            entering[index[link.target]].append(number)
        self._set("endpoints", endpoints)
        self._set("vertices", tuple(names))
        self._set("index", index)
        self._set("owner", tuple(owner))
        self._set("out_links", tuple(map(tuple, leaving)))
        self._set("in_links", tuple(map(tuple, entering)))
        self._set("capacity", np.array([link.bytes_per_s for link in self.links], dtype=np.float64))
        self._set("latency_s", np.array([link.latency_s for link in self.links], dtype=np.float64))
        self._set("tail", tuple(index[link.source] for link in self.links))
        self._set("head", tuple(index[link.target] for link in self.links))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def switches(self) -> tuple[str, ...]:
        """The vertices that belong to no node."""
        return tuple(name for name, node in zip(self.vertices, self.owner, strict=True) if node < 0)

    def vertex(self, node: int, device: int | None = None) -> int:
        """Return the vertex at which a device of a node sends; that of the node where devices have none."""
        some = self.endpoints[node]
        if device is None or len(some) == 1:
            return self.index[some[0]]
        return self.index[some[1 + device % (len(some) - 1)]]

    def access_bytes_per_s(self, node: int) -> float:
        """Return the rate at which a node sends to others over all of its links together."""
        own = {self.index[name] for name in self.endpoints[node]}
        return sum(
            self.links[number].bytes_per_s
            for vertex in own
            for number in self.out_links[vertex]
            if self.head[number] not in own
        )

    def check_nodes(self, names: Iterable[str], source: str) -> None:
        """Raise a `RotaError` that names the first node of a cluster which the network does not connect."""
        known = set(self.nodes)
        missing = [name for name in names if name not in known]
        if missing:
            raise RotaError(
                f"{source}: node {missing[0]!r} of the cluster is not in the network, which has {len(self.nodes)} "
                f"nodes ({self.nodes[0]!r} to {self.nodes[-1]!r}); add it"
            )


def joined(pairs: Iterable[Sequence[NetworkLink]]) -> tuple[NetworkLink, ...]:
    """Return all links of some cables in one tuple."""
    return tuple(link for pair in pairs for link in pair)
