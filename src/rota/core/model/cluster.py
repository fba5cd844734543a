"""What there is to schedule on: nodes with their devices, in a tree of racks and domains."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum

from rota.core.errors import RotaError
from rota.core.model.cells import CellPlan
from rota.core.model.job import DeviceType, NodeId
from rota.core.model.labels import Taint
from rota.core.model.tenants import TenantPlan


class NodeTrust(Enum):
    """How far a node can be trusted to keep working. The value is the wire form."""

    PROVEN = "proven"
    UNPROVEN = "unproven"
    """Repaired a short time ago, or known to fail often: jobs larger than a node avoid it where they can."""
    SUSPECT = "suspect"
    """In doubt: only tasks that tolerate that are placed there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine. `None` for a host resource means that it is not counted there.

    `sockets` is how many devices are attached to each socket or switch, in device order; empty means one group.
    """

    id: NodeId
    device_type: DeviceType = DeviceType("gpu")
    devices: int = 0
    sockets: tuple[int, ...] = ()
    device_memory_bytes: int | None = None
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    network_bps: int | None = None
    disk_bps: int | None = None
    rack: str = "rack"
    domain: str = "domain"
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    """What keeps tasks away that do not tolerate it."""

    def __post_init__(self) -> None:
        if not self.id:
            raise RotaError("a node needs a name")
        if self.devices < 0:
            raise RotaError(f"node {self.id}: it has {self.devices} devices; the number must not be negative")
        if self.sockets and sum(self.sockets) != self.devices:
            raise RotaError(f"node {self.id}: sockets hold {sum(self.sockets)} devices, the node has {self.devices}")

    def is_same_hardware(self, other: Node) -> bool:
        """Whether only where the other stands differs, or what is written on it."""
        return (
            replace(
                self,
                rack=other.rack,
                domain=other.domain,
                sockets=other.sockets,
                labels=other.labels,
                taints=other.taints,
            )
            == other
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """All nodes, in a fixed order: a node's place in it is its index everywhere inside."""

    nodes: tuple[Node, ...]
    cells: CellPlan | None = None
    """The guarantees of tenants in cells, if there are any."""
    tenants: TenantPlan | None = None
    """The guarantees of tenants by count, if there are any."""

    def __post_init__(self) -> None:
        if not self.nodes:
            raise RotaError("the cluster has no nodes")
        twice = [name for name, count in Counter(node.id for node in self.nodes).items() if count > 1]
        if twice:
            raise RotaError(f"two nodes are named {twice[0]!r}; names must differ")
        home: dict[str, str] = {}
        for node in self.nodes:
            if home.setdefault(node.rack, node.domain) != node.domain:
                raise RotaError(f"rack {node.rack!r} is in two domains: {home[node.rack]!r} and {node.domain!r}")

    @property
    def devices(self) -> int:
        """Devices of all types."""
        return sum(node.devices for node in self.nodes)

    @property
    def devices_by_type(self) -> dict[DeviceType, int]:
        """Device count of each type, in the order in which the types first occur."""
        count: dict[DeviceType, int] = {}
        for node in self.nodes:
            if node.devices:
                count[node.device_type] = count.get(node.device_type, 0) + node.devices
        return count

    @classmethod
    def uniform(cls, *pools: tuple[str, int, int]) -> Cluster:
        """A cluster from (type, devices, devices per node); a last smaller node takes the remainder."""
        nodes: list[Node] = []
        for device_type, devices, per_node in pools:
            for first in range(0, devices, per_node):
                nodes.append(
                    Node(
                        id=NodeId(f"n{len(nodes) + 1}"),
                        device_type=DeviceType(device_type),
                        devices=min(per_node, devices - first),
                    )
                )
        return cls(nodes=tuple(nodes))
