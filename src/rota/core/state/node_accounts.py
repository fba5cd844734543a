"""Accounts of single nodes and of device types: capacity, and what of it is free."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.core.model.cluster import Node, NodeTrust
from rota.core.model.job import DeviceType
from rota.core.model.labels import SUSPECT, Taint
from rota.core.model.placement import lowest

UNCOUNTED = 1 << 62
"""Free amount of a host resource that a node does not count."""


@dataclass(slots=True)
class Pool:
    """The nodes of one device type. `by_free[n]` is the set of usable nodes with n wholly free devices."""

    device_type: DeviceType
    nodes: int = 0
    devices: int = 0
    usable: int = 0
    """Devices of usable nodes, free or not."""
    free: int = 0
    by_free: list[int] = field(default_factory=lambda: [0])
    partial: list[tuple[int, int, int]] = field(default_factory=list)
    """Fractionally held devices, as (thousandths left, node, device), sorted."""
    partial_milli: int = 0
    """Thousandths left of all fractionally held devices."""

    def copy(self) -> Pool:
        """An independent pool with the same counts."""
        by_free, partial = list(self.by_free), list(self.partial)
        counts = (self.device_type, self.nodes, self.devices, self.usable, self.free)
        return Pool(*counts, by_free, partial, self.partial_milli)


@dataclass(slots=True)
class NodeAccount:
    """One node's account: its capacity and what of it is not claimed."""

    node: Node
    pool: int
    all_mask: int
    free_mask: int
    cpu_milli: int
    memory_bytes: int
    network_bps: int
    disk_bps: int
    free: int
    users: int = 0
    up: bool = True
    drained: bool = False
    locked: bool = False
    removed: bool = False
    """Whether it has left the cluster; its index stays valid for jobs that still run there and for its return."""
    trust: NodeTrust = NodeTrust.PROVEN
    reserved: tuple[Taint, ...] = ()
    """The taints of reservations, which come and go with time."""
    shares: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Thousandths and memory bytes left of each fractionally held device."""
    others_mask: int = 0
    """Devices that are held by pods and processes not scheduled here."""
    others_cpu_milli: int = 0
    others_memory_bytes: int = 0
    stamp: int = 0
    """Changes with everything that is taken or given back; no two states of a node have the same."""

    @property
    def usable(self) -> bool:
        """Whether new work may be placed here."""
        return self.up and not self.drained and not self.locked and not self.removed

    @property
    def taints(self) -> tuple[Taint, ...]:
        """What keeps tasks away that do not tolerate it: what is written on it, reservations, doubts about it."""
        taints = self.node.taints + self.reserved
        return (*taints, SUSPECT) if self.trust is NodeTrust.SUSPECT else taints

    def pick_devices(self, count: int) -> int:
        """Which free devices to take: within one socket if one has enough, else the fullest first."""
        if not self.node.sockets:
            return lowest(self.free_mask, count)
        groups = []
        first = 0
        for size in self.node.sockets:
            mask = self.free_mask & (((1 << size) - 1) << first)
            groups.append((mask.bit_count(), first, mask))
            first += size
        groups.sort()
        for free, _, mask in groups:
            if free >= count:
                return lowest(mask, count)
        taken = 0
        for _, _, mask in reversed(groups):
            taken |= lowest(mask, count - taken.bit_count())
        return taken

    def copy(self) -> NodeAccount:
        """An independent copy."""
        return NodeAccount(
            node=self.node,
            pool=self.pool,
            all_mask=self.all_mask,
            free_mask=self.free_mask,
            cpu_milli=self.cpu_milli,
            memory_bytes=self.memory_bytes,
            network_bps=self.network_bps,
            disk_bps=self.disk_bps,
            free=self.free,
            users=self.users,
            up=self.up,
            drained=self.drained,
            locked=self.locked,
            removed=self.removed,
            trust=self.trust,
            reserved=self.reserved,
            shares=dict(self.shares),
            others_mask=self.others_mask,
            others_cpu_milli=self.others_cpu_milli,
            others_memory_bytes=self.others_memory_bytes,
            stamp=self.stamp,
        )


def all_free(node: Node, pool: int, former: NodeAccount | None = None) -> NodeAccount:
    """The account of an idle node; doubts about it and reservations stay from a former account."""
    mask = (1 << node.devices) - 1
    return NodeAccount(
        node=node,
        pool=pool,
        all_mask=mask,
        free_mask=mask,
        cpu_milli=UNCOUNTED if node.cpu_milli is None else node.cpu_milli,
        memory_bytes=UNCOUNTED if node.memory_bytes is None else node.memory_bytes,
        network_bps=UNCOUNTED if node.network_bps is None else node.network_bps,
        disk_bps=UNCOUNTED if node.disk_bps is None else node.disk_bps,
        free=node.devices,
        trust=NodeTrust.PROVEN if former is None else former.trust,
        reserved=() if former is None else former.reserved,
    )
