"""Node failures and repairs, from a file or at random with given rates."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence

from rota.core.errors import RotaError
from rota.core.messages.events import Event, NodeBack, NodeLost
from rota.core.model.cluster import Cluster
from rota.core.model.job import NodeId
from rota.scenario import FaultRates


def faults_at_random(cluster: Cluster, rates: FaultRates, rng: random.Random) -> Iterator[tuple[float, Event]]:
    """Yield failures and repairs of all nodes in order of time, without end."""
    nodes = [node.id for node in cluster.nodes]
    due: list[tuple[float, int, bool]] = []
    for index in range(len(nodes)):
        due.append((rng.expovariate(1 / rates.mean_time_to_failure_s), index, False))
    while True:
        soonest = min(range(len(due)), key=lambda i: due[i])
        at_s, index, repair = due[soonest]
        mean_s = rates.mean_time_to_failure_s if repair else rates.mean_time_to_repair_s
        due[soonest] = (at_s + rng.expovariate(1 / mean_s), index, not repair)
        yield at_s, NodeBack(nodes[index]) if repair else NodeLost(nodes[index])


def faults_from(
    listed: Sequence[tuple[float, NodeId, bool]], known: Collection[NodeId]
) -> Iterator[tuple[float, Event]]:
    """Yield the listed failures and repairs; each names a time, a node, and whether it comes back."""
    for at_s, node_id, up in sorted(listed):
        if node_id not in known:
            raise RotaError(f"the list of faults names node {node_id!r}, which the cluster does not have")
        yield at_s, NodeBack(node_id) if up else NodeLost(node_id)
