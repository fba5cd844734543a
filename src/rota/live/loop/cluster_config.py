"""The current cluster, which may change while the manager runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rota.core.codec.cluster_diff import tenants_affected, way_to
from rota.core.codec.values import decode_cluster, encode_cluster
from rota.core.errors import RotaError
from rota.core.messages.events import Event, NodeAdded, NodeRemoved, PromisesChanged
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import NodeId
from rota.core.state.state import State
from rota.placement import style
from rota.tenancy import allocator
from rota.tenancy.audit import refuse_broken_shares

KEY = "cluster"
"""Under which name the records keep it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The stored cluster: as given at the last start, and as it was last."""

    given: Any
    current: Cluster
    removed: tuple[NodeId, ...]


def kept_from(value: Any) -> Kept | None:
    """Return what `ClusterConfig.encode` wrote; None if nothing was."""
    if value is None:
        return None
    return Kept(given=value["given"], current=decode_cluster(value["current"]), removed=tuple(value["removed"]))


def as_json(cluster: Cluster) -> Any:
    """Return a cluster in the form in which it is read back from the records."""
    return json.loads(json.dumps(encode_cluster(cluster)))


class ClusterConfig:
    """Nodes by index, and the guarantees of tenants. `nodes` stays the same list, so that a driver can keep it."""

    def __init__(self, given: Cluster, current: Cluster, tenancy: str, *, has_fixed_nodes: bool) -> None:
        self.cluster = current
        self.nodes: list[Node] = list(current.nodes)
        self._given = as_json(given)
        self._tenancy = tenancy
        self._has_fixed_nodes = has_fixed_nodes

    @property
    def tag(self) -> str:
        """A tag that changes with the cluster."""
        return hashlib.sha256(json.dumps(encode_cluster(self.cluster)).encode()).hexdigest()[:16]

    def refuse_broken_promises(self, after: Cluster) -> None:
        """Raise a `RotaError` for a cluster that guarantees more than it has."""
        refuse_broken_shares(after, self._tenancy)

    def way_to(self, after: Cluster, state: State) -> list[Event]:
        """Return the events that lead to another cluster; raise a `RotaError` if it can't be reached."""
        allocator(self._tenancy, style("any"), after)
        present = [books.node for books in state.inventory.nodes if not books.removed]
        events = way_to(after, present, self.cluster)
        if self._has_fixed_nodes and {node.id: node for node in present} != {node.id: node for node in after.nodes}:
            raise RotaError(
                "nodes: this manager runs on this machine, whose devices can't be changed; "
                "name just its node as `rota nodes` shows it, or start it with --emulate"
            )
        for node in after.nodes:
            index = state.inventory.by_name.get(node.id)
            if index is None or state.inventory.nodes[index].node.is_same_hardware(node):
                continue
            if state.is_in_use(index):
                raise RotaError(
                    f"nodes: {node.id!r} becomes another machine while jobs run there; drain it and wait, "
                    "or give it another name"
                )
        return events

    def became(self, after: Cluster, state: State) -> None:
        """Take over a cluster after its events."""
        self.cluster = after
        self.nodes[:] = [books.node for books in state.inventory.nodes]

    def whole(self, state: State) -> Cluster:
        """Return the cluster with nodes in the engine's order, including removed nodes that jobs still hold."""
        books = state.inventory.nodes
        nodes = tuple(each.node for index, each in enumerate(books) if not each.removed or state.is_in_use(index))
        return Cluster(nodes=nodes, cells=self.cluster.cells, tenants=self.cluster.tenants)

    def encode(self, state: State) -> Any:
        """Return the configuration as JSON values."""
        gone = [
            str(each.node.id) for at, each in enumerate(state.inventory.nodes) if each.removed and state.is_in_use(at)
        ]
        return {"given": self._given, "current": encode_cluster(self.whole(state)), "removed": gone}


def changes_by_kind(events: Sequence[Event], before: Cluster, after: Cluster) -> dict[str, list[str]]:
    """Return a change of the cluster in words, for users and the audit log."""
    found: dict[str, list[str]] = {}
    for event in events:
        match event:
            case NodeAdded(node):
                found.setdefault("nodes added", []).append(node.id)
            case NodeRemoved(node_id):
                found.setdefault("nodes removed", []).append(node_id)
            case PromisesChanged(cells, _):
                names = [str(name) for name in tenants_affected(before, after)]
                rules = ["fairness" if cells is None else "physicalCluster"]
                found |= {"promises to tenants": names} if names else {"rules": rules}
    return found
