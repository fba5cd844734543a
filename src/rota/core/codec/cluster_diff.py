"""From one cluster to another while jobs run: the events that lead there, removals first, and the tenants concerned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.core.messages.events import Event, NodeAdded, NodeRemoved, PromisesChanged
from rota.core.model.cells import TenantCells
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import TenantId
from rota.core.model.tenants import Share


def way_to(after: Cluster, nodes: Sequence[Node], before: Cluster) -> list[Event]:
    """The events that turn these nodes, with the guarantees of `before`, into another cluster."""
    old, new = {node.id: node for node in nodes}, {node.id: node for node in after.nodes}
    events: list[Event] = [NodeRemoved(name) for name, node in old.items() if new.get(name) != node]
    events += [NodeAdded(node) for name, node in new.items() if old.get(name) != node]
    if (after.cells, after.tenants) != (before.cells, before.tenants):
        events.append(PromisesChanged(after.cells, after.tenants))
    return events


def tenants_affected(before: Cluster, after: Cluster) -> list[TenantId]:
    """The tenants whose guarantee changes, including those that are new or gone."""
    old, new = _promises(before), _promises(after)
    return [name for name in {**old, **new} if old.get(name) != new.get(name)]


def _promises(cluster: Cluster) -> Mapping[TenantId, TenantCells | Share]:
    if cluster.cells is not None:
        return cluster.cells.tenants
    return {} if cluster.tenants is None else cluster.tenants.shares
