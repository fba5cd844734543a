"""Network cost of a placement: the traffic of its tasks times the distance.

With parameter servers every server exchanges with every worker; other jobs of several tasks send gradients around a
ring that enters each domain, rack and node once. Both count in the same unit: a task's traffic over one unit of
distance.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.core.model.cluster import Node
from rota.core.model.job import Job
from rota.core.model.placement import Placement

SERVERS = frozenset({"ps", "server", "parameter-server"})
"""Names of roles whose tasks are parameter servers."""
UNIT_BPS = 1_000_000_000
"""Traffic of 1; also that of tasks that request no network."""

Counts = Mapping[int, int]
"""Tasks by node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighting:
    """Distances between nodes of one rack, of one domain, of different domains; 0 within a node.

    With `by_count` the first two are multiplied by the number of nodes in the rack and in the domain.
    """

    rack: float
    domain: float
    cluster: float
    by_count: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.rack <= self.domain <= self.cluster:
            raise RotaError(
                f"h is {self.rack:g}/{self.domain:g}/{self.cluster:g}; it must be three distances in ascending order"
            )


LEVELS = Weighting(rack=1.0, domain=4.0, cluster=40.0)
NODE_COUNTS = Weighting(rack=1.0, domain=1.0, cluster=math.inf, by_count=True)
"""No job spans domains."""


def weighting(text: str) -> Weighting:
    """Parse `levels`, `nodes` or `RACK/DOMAIN/CLUSTER`."""
    if text == "levels":
        return LEVELS
    if text == "nodes":
        return NODE_COUNTS
    try:
        rack, domain, cluster = map(float, text.split("/"))
    except ValueError:
        raise RotaError(f"h is {text!r}; it must be levels, nodes, or three distances as 1/4/40") from None
    return Weighting(rack=rack, domain=domain, cluster=cluster)


class Distances:
    """Distances between nodes."""

    __slots__ = ("_across", "_domain", "_rack", "_within_domain", "_within_rack")

    def __init__(self, nodes: Sequence[Node], by: Weighting) -> None:
        racks: dict[str, int] = {}
        domains: dict[str, int] = {}
        self._rack = [racks.setdefault(node.rack, len(racks)) for node in nodes]
        self._domain = [domains.setdefault(node.domain, len(domains)) for node in nodes]
        self._within_rack = _weights(self._rack, len(racks), by.rack, by.by_count)
        self._within_domain = _weights(self._domain, len(domains), by.domain, by.by_count)
        self._across = by.cluster

    def between(self, one: int, other: int) -> float:
        """Return the distance of two nodes."""
        if one == other:
            return 0.0
        if self._rack[one] == self._rack[other]:
            return self._within_rack[self._rack[one]]
        if self._domain[one] == self._domain[other]:
            return self._within_domain[self._domain[one]]
        return self._across

    def rack(self, node: int) -> int:
        """Return the number of a node's rack."""
        return self._rack[node]

    def domain(self, node: int) -> int:
        """Return the number of a node's domain."""
        return self._domain[node]

    def around(self, nodes: Collection[int]) -> float:
        """Return the length of a ring through these nodes that enters each domain and each rack once."""
        if len(nodes) < 2:
            return 0.0
        ring = sorted(nodes, key=lambda node: (self._domain[node], self._rack[node], node))
        return sum(map(self.between, ring, [*ring[1:], ring[0]]))

    def to(self, node: int, others: Counts) -> float:
        """Return the sum of the distances from a node to tasks on other nodes."""
        return sum([count * self.between(node, other) for other, count in others.items() if other != node])


def _weights(member_of: Sequence[int], groups: int, weight: float, by_count: bool) -> list[float]:
    return [weight * member_of.count(group) if by_count else weight for group in range(groups)]


def is_server(job: Job, role: int) -> bool:
    """Return whether the tasks of a role are parameter servers: by its name, if there are other roles to serve."""
    return job.roles[role].name in SERVERS and any(other.name not in SERVERS for other in job.roles)


def traffic(job: Job) -> float:
    """Return the traffic of a task: the largest request of any role that is not a parameter server."""
    asked = [role.network_bps for role in job.roles if role.name not in SERVERS or len(job.roles) == 1]
    most = max(asked, default=0)
    return most / UNIT_BPS if most else 1.0


def cost_of(job: Job, servers: Counts, others: Counts, distances: Distances) -> float:
    """Return the network cost of a job's tasks by node."""
    if servers:
        return traffic(job) * sum([count * distances.to(node, others) for node, count in servers.items()])
    return traffic(job) * distances.around(others)


def network_cost(job: Job, placement: Placement, distances: Distances) -> float:
    """Return the network cost of a placement."""
    servers: dict[int, int] = {}
    others: dict[int, int] = {}
    for slot in placement:
        counts = servers if is_server(job, slot.role) else others
        counts[slot.node] = counts.get(slot.node, 0) + slot.tasks
    return cost_of(job, servers, others, distances)
