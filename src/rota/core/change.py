"""From one cluster to another while jobs run: the events that lead there, nodes that leave first."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.cluster import Cluster, Node
from rota.core.events import Event, NodeAdded, NodeRemoved, PromisesChanged


def way_to(after: Cluster, nodes: Sequence[Node], before: Cluster) -> list[Event]:
    """What has to happen so that these nodes, with what `before` promises, become another cluster."""
    old, new = {node.id: node for node in nodes}, {node.id: node for node in after.nodes}
    events: list[Event] = [NodeRemoved(name) for name, node in old.items() if new.get(name) != node]
    events += [NodeAdded(node) for name, node in new.items() if old.get(name) != node]
    if (after.cells, after.tenants) != (before.cells, before.tenants):
        events.append(PromisesChanged(after.cells, after.tenants))
    return events
