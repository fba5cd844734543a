"""Routes over shortest paths: one path for each pair, or ECMP, which spreads flows over equal paths by a hash.

A flow keeps its path; the hash mixes the seed, the flow's key and the vertex, as switches do with a packet's header.
"""

from __future__ import annotations

from collections import deque

from rota.core.errors import RotaError
from rota.network.topology import NetworkTopology

_MASK = (1 << 64) - 1

Path = tuple[int, ...]
"""The links of a route, in order."""


def mixed(*numbers: int) -> int:
    """Return a well-mixed 64-bit hash of some integers (the finaliser of splitmix64)."""
    value = 0x9E3779B97F4A7C15
    for number in numbers:
        value = (value ^ (number & _MASK)) * 0xBF58476D1CE4E5B9 & _MASK
        value ^= value >> 27
        value = value * 0x94D049BB133111EB & _MASK
        value ^= value >> 31
    return value


class Router:
    """Finds routes; what it found about a destination is kept."""

    def __init__(self, topology: NetworkTopology, *, ecmp: bool = True, seed: int = 0) -> None:
        self.topology = topology
        self.ecmp = ecmp
        self.seed = seed
        self._next: dict[tuple[int, int], dict[int, tuple[int, ...]]] = {}
        self._single = all(len(some) == 1 for some in topology.endpoints)
        # A vertex with one cable has one way out and in: only what lies behind it is searched.
        self._has_one_way = [
            len(out) == 1 and len(topology.in_links[v]) == 1 for v, out in enumerate(topology.out_links)
        ]

    def route(self, source: int, target: int, key: int = 0) -> Path:
        """Return the links from one vertex to another, for the flow with that key; empty where they are the same."""
        if source == target:
            return ()
        topology = self.topology
        here, end = source, target
        path: list[int] = []
        last: Path = ()
        if self._has_one_way[source]:
            path.append(topology.out_links[source][0])
            here = topology.head[path[0]]
        if here != target and self._has_one_way[target]:
            last = (topology.in_links[target][0],)
            end = topology.tail[last[0]]
        choices = self._choices(source, end) if here != end else {}
        while here != end:
            links = choices.get(here)
            if not links:
                names = topology.vertices
                raise RotaError(f"the network has no route from {names[source]!r} to {names[target]!r}; add a link")
            number = links[mixed(self.seed, key, here, target) % len(links)] if self.ecmp else links[0]
            path.append(number)
            here = topology.head[number]
        return (*path, *last)

    def paths(self, source: int, target: int, most: int = 64) -> list[Path]:
        """Return the shortest paths between two vertices, at most so many, in a fixed order."""
        if source == target:
            return [()]
        choices = self._choices(source, target)
        found: list[Path] = []
        stack: list[tuple[int, Path]] = [(source, ())]
        while stack and len(found) < most:
            here, path = stack.pop()
            if here == target:
                found.append(path)
                continue
            links = self.topology.out_links[here] if self._has_one_way[here] else choices.get(here, ())
            stack += [(self.topology.head[link], (*path, link)) for link in reversed(links)]
        return found

    def _choices(self, source: int, target: int) -> dict[int, tuple[int, ...]]:
        """Return for each vertex the links of shortest paths to a target; the source's own node may forward."""
        topology = self.topology
        owner = topology.owner
        home = -1 if self._single else owner[source]
        found = self._next.get((home, target))
        if found is not None:
            return found
        forwards = {-1, home, owner[target]}
        distance = {target: 0}
        found = {}
        queue = deque([target])
        while queue:
            here = queue.popleft()
            if here != target and owner[here] not in forwards and not topology.nodes_forward:
                continue  # it can be a source, but nothing passes through it
            for link in topology.in_links[here]:
                before = topology.tail[link]
                if self._has_one_way[before]:
                    continue
                if before not in distance:
                    distance[before] = distance[here] + 1
                    found[before] = (link,)
                    queue.append(before)
                elif distance[before] == distance[here] + 1:
                    found[before] = (*found[before], link)
        self._next[home, target] = found
        return found
