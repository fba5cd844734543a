"""Node failures and repairs, from a file, at random with given rates, or drawn from a failure model."""

from __future__ import annotations

import heapq
import random
from collections.abc import Collection, Iterator, Sequence
from enum import Enum

from rota.core.errors import RotaError
from rota.core.messages.events import Event, NodeBack, NodeDrained, NodeLost, NodeRated, NodeUndrained
from rota.core.model.cluster import Cluster, NodeTrust
from rota.core.model.job import NodeId
from rota.health.failure_model import FailureModel
from rota.health.failure_process import Breakdown, breakdowns
from rota.health.spares import SpareNodes
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


class _SpareEvents:
    """What the losses and repairs of nodes amount to where some nodes are spares."""

    def __init__(self, cluster: Cluster, spares: int) -> None:
        self._spares = SpareNodes([node.id for node in cluster.nodes], spares)

    def at_start(self) -> list[Event]:
        """The events that keep the spares free of jobs."""
        return [NodeDrained(node_id) for node_id in self._spares.idle]

    def lose(self, node_id: NodeId) -> list[Event]:
        """A node is lost; a spare, if there is one, takes jobs instead of it."""
        spare = self._spares.lose(node_id)
        return [NodeLost(node_id)] if spare is None else [NodeUndrained(spare), NodeLost(node_id)]

    def repair(self, node_id: NodeId) -> list[Event]:
        """A node is back: as a spare if some are missing, or to take jobs."""
        if self._spares.repair(node_id):
            return [NodeDrained(node_id), NodeBack(node_id)]
        return [NodeUndrained(node_id), NodeBack(node_id)] if self._spares.wanted else [NodeBack(node_id)]


class _Then(Enum):
    """What follows a breakdown."""

    LOST = 0
    REPAIRED = 1
    PROVEN = 2


class _TrustAfterRepair:
    """A repaired node proves itself by working for a time, which grows with the failures that it has had."""

    def __init__(self, proven_s: float) -> None:
        self._proven_s = proven_s
        self._failures: dict[NodeId, int] = {}
        self._until_s: dict[NodeId, float] = {}

    def repaired(self, node_id: NodeId, at_s: float) -> float | None:
        """Return when a node that is repaired now is proven; None where nodes need not prove themselves."""
        if not self._proven_s:
            return None
        self._failures[node_id] = self._failures.get(node_id, 0) + 1
        self._until_s[node_id] = at_s + self._proven_s * self._failures[node_id]
        return self._until_s[node_id]

    def is_proven(self, node_id: NodeId, at_s: float) -> bool:
        """Return whether a node has worked long enough since its last repair."""
        return at_s >= self._until_s[node_id]


def failure_events(
    cluster: Cluster, model: FailureModel, rng: random.Random
) -> Iterator[tuple[float, Event | Breakdown]]:
    """Yield breakdowns, the losses when they are noticed, repairs, and trust in repaired nodes, in order of time."""
    spares, trust = _SpareEvents(cluster, model.spares), _TrustAfterRepair(model.proven_s)
    for event in spares.at_start():
        yield 0.0, event
    later: list[tuple[float, int, NodeId, _Then]] = []
    drawn = breakdowns(cluster.nodes, model, rng)
    following = next(drawn, None)
    count = 0
    while following is not None or later:
        if following is not None and (not later or following.at_s < later[0][0]):
            yield following.at_s, following
            for node_id, repaired_s in zip(following.nodes, following.repaired_s, strict=True):
                heapq.heappush(later, (following.detected_s, count, node_id, _Then.LOST))
                heapq.heappush(later, (repaired_s, count + 1, node_id, _Then.REPAIRED))
                count += 2
            following = next(drawn, None)
            continue
        at_s, _, node_id, then = heapq.heappop(later)
        match then:
            case _Then.LOST:
                events = spares.lose(node_id)
            case _Then.REPAIRED:
                proven_s = trust.repaired(node_id, at_s)
                if proven_s is not None:
                    heapq.heappush(later, (proven_s, count, node_id, _Then.PROVEN))
                    count += 1
                events = [
                    *([] if proven_s is None else [NodeRated(node_id, NodeTrust.UNPROVEN)]),
                    *spares.repair(node_id),
                ]
            case _Then.PROVEN:
                events = [NodeRated(node_id, NodeTrust.PROVEN)] if trust.is_proven(node_id, at_s) else []
        for event in events:
            yield at_s, event
