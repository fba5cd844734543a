"""Node failures and repairs, from a file, at random with given rates, or drawn from a failure model."""

from __future__ import annotations

import heapq
import random
from collections.abc import Collection, Iterator, Sequence

from rota.core.errors import RotaError
from rota.core.messages.events import Event, NodeBack, NodeDrained, NodeLost, NodeUndrained
from rota.core.model.cluster import Cluster
from rota.core.model.job import NodeId
from rota.health.failure_model import FailureModel
from rota.health.failure_process import Breakdown, breakdowns
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


class SpareNodes:
    """Nodes that take no jobs until others are lost. A repaired node becomes a spare where one stands in for it."""

    def __init__(self, cluster: Cluster, spares: int) -> None:
        if spares >= len(cluster.nodes) and spares:
            raise RotaError(f"failures: spares is {spares}; the cluster has {len(cluster.nodes)} nodes, keep some")
        self._wanted = spares
        self._idle = [node.id for node in cluster.nodes[len(cluster.nodes) - spares :]]
        self._is_down: set[NodeId] = set()

    def at_start(self) -> list[Event]:
        """The events that keep the spares free of jobs."""
        return [NodeDrained(node_id) for node_id in self._idle]

    def lose(self, node_id: NodeId) -> list[Event]:
        """A node is lost; a spare, if there is one, takes jobs instead of it."""
        self._is_down.add(node_id)
        if node_id in self._idle:
            self._idle.remove(node_id)
            return [NodeLost(node_id)]
        if not self._idle:
            return [NodeLost(node_id)]
        return [NodeUndrained(self._idle.pop(0)), NodeLost(node_id)]

    def repair(self, node_id: NodeId) -> list[Event]:
        """A node is back: as a spare if some are missing, or to take jobs."""
        self._is_down.discard(node_id)
        if len(self._idle) + len(self._is_down) < self._wanted:
            self._idle.append(node_id)
            return [NodeDrained(node_id), NodeBack(node_id)]
        return [NodeUndrained(node_id), NodeBack(node_id)] if self._wanted else [NodeBack(node_id)]


def failure_events(
    cluster: Cluster, model: FailureModel, rng: random.Random
) -> Iterator[tuple[float, Event | Breakdown]]:
    """Yield breakdowns, the losses when they are noticed, and repairs, in order of time."""
    spares = SpareNodes(cluster, model.spares)
    for event in spares.at_start():
        yield 0.0, event
    later: list[tuple[float, int, NodeId, bool]] = []
    drawn = breakdowns(cluster.nodes, model, rng)
    following = next(drawn, None)
    count = 0
    while following is not None or later:
        if following is not None and (not later or following.at_s < later[0][0]):
            yield following.at_s, following
            for node_id, repaired_s in zip(following.nodes, following.repaired_s, strict=True):
                heapq.heappush(later, (following.detected_s, count, node_id, False))
                heapq.heappush(later, (repaired_s, count + 1, node_id, True))
                count += 2
            following = next(drawn, None)
            continue
        at_s, _, node_id, is_repair = heapq.heappop(later)
        for event in spares.repair(node_id) if is_repair else spares.lose(node_id):
            yield at_s, event
