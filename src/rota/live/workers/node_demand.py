"""How many more nodes would let a waiting job start: simulated on copies of the engine, one plan each.

Nodes like those that the cluster has are added until the job holds devices, so that its place in the order, the
guarantees of its tenant and the jobs before it count as they would if the nodes came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rota.core.engine.engine import Engine
from rota.core.messages.events import NodeAdded
from rota.core.model.cluster import Node
from rota.core.model.job import JobId, JobState, NodeId
from rota.live.loop.boot import Restored

MOST_NODES = 256
"""More nodes of a type than these are not tried."""
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDemand:
    """Nodes of one type that would start a job."""

    type: str
    nodes: int
    devices: int
    """Devices of one such node."""

    def sentence(self) -> str:
        """Return it in words."""
        count = _NUMBERS[self.nodes] if self.nodes < len(_NUMBERS) else str(self.nodes)
        more = "one more node" if self.nodes == 1 else f"{count} more nodes"
        return f"{more} of type {self.type} would start it"


def node_demand(was: Restored, job_id: JobId) -> list[NodeDemand]:
    """Return what would start a waiting job, for each type of node that the cluster has; the fewest nodes first."""
    engine = was.engine()
    live = engine.state.jobs.get(job_id)
    if live is None or live.state is not JobState.WAITING or live.held:
        return []
    found = []
    for like in _kinds(engine):
        nodes = _fewest(was, engine, job_id, like)
        if nodes is not None:
            found.append(NodeDemand(type=str(like.device_type), nodes=nodes, devices=like.devices))
    return sorted(found, key=lambda each: (each.nodes * each.devices, each.type))


def _kinds(engine: Engine) -> Sequence[Node]:
    """Return the largest node of each type, without what is its own."""
    kinds: dict[str, Node] = {}
    for account in engine.state.inventory.nodes:
        node = account.node
        known = kinds.get(node.device_type)
        if node.devices and (known is None or node.devices > known.devices):
            kinds[node.device_type] = node
    return [replace(node, taints=()) for node in kinds.values()]


def _fewest(was: Restored, engine: Engine, job_id: JobId, like: Node) -> int | None:
    """Return the least number of nodes that start the job; None if not even the most would."""
    high = 1
    while not _starts(was, engine, job_id, like, high):
        if high >= MOST_NODES:
            return None
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if _starts(was, engine, job_id, like, middle):
            high = middle
        else:
            low = middle
    return high


def _starts(was: Restored, engine: Engine, job_id: JobId, like: Node, nodes: int) -> bool:
    policy, alloc = was.build()
    copy = engine.fork(policy, allocator=alloc)
    added = [NodeAdded(replace(like, id=NodeId(f"more nodes {number}"))) for number in range(nodes)]
    copy.step(copy.state.now_s, added)
    return bool(copy.state.jobs[job_id].held)
