"""What a task needs of a node, read once for all jobs of a lane, and which nodes are large enough for it."""

from __future__ import annotations

from rota.core.model.job import WHOLE, Role
from rota.core.model.labels import Terms, Toleration
from rota.core.state.inventory import Inventory
from rota.core.state.node_accounts import Pool


class Need:
    """What a task of a role needs of a node, and which nodes are large enough for it."""

    __slots__ = (
        "_counted",
        "_fitting",
        "_needed_milli",
        "_nodes",
        "_pools",
        "_whole",
        "allowed",
        "cpu_milli",
        "device_milli",
        "disk_bps",
        "is_fraction",
        "memory_bytes",
        "network_bps",
        "role",
    )

    def __init__(self, role: Role) -> None:
        self.role = role
        self._whole = WHOLE  # compiled, a name of a module costs a search each time
        self._needed_milli = role.count * role.device_milli
        self.is_fraction = role.is_fraction
        self.device_milli = role.device_milli
        self.cpu_milli = role.cpu_milli
        self.memory_bytes = role.memory_bytes
        self.network_bps = role.network_bps
        self.disk_bps = role.disk_bps
        self.allowed = 0
        """The nodes that a task may use, large enough or not, as a bit set."""
        self._nodes = 0
        self._pools: list[Pool] = []
        self._counted: dict[tuple[Terms, tuple[Toleration, ...]], int] | None = None
        self._fitting: dict[tuple[Terms, tuple[Toleration, ...]], int] | None = None
        """What the inventory kept when the nodes were looked at; it begins another when a node comes or goes."""

    def nodes(self, inventory: Inventory) -> int:
        """The nodes that would have room for a task if they were empty, as a bit set."""
        if self._fitting is not inventory.fitting:
            self._nodes = self._large_enough(inventory)
            self._fitting = inventory.fitting
        return self._nodes

    def is_short(self, inventory: Inventory) -> bool:
        """Whether no device type has as many devices free as all tasks need, wherever they are."""
        if self._counted is not inventory.fitting:
            self._pools = inventory.eligible(self.role)
            self._counted = inventory.fitting
        needed, whole = self._needed_milli, self._whole
        if not needed:
            return False
        for pool in self._pools:
            free = pool.free * whole
            if self.is_fraction:
                free += pool.partial_milli
            if free >= needed:
                return False
        return True

    def _large_enough(self, inventory: Inventory) -> int:
        allowed = 0
        for pool in inventory.eligible(self.role):
            allowed |= pool.nodes
        self.allowed = nodes = inventory.matching(self.role) & allowed
        found, left = nodes, nodes
        while left:
            low = left & -left
            left ^= low
            node = inventory.nodes[low.bit_length() - 1].node
            if (
                node.devices * WHOLE < self.device_milli
                or (node.cpu_milli is not None and node.cpu_milli < self.cpu_milli)
                or (node.memory_bytes is not None and node.memory_bytes < self.memory_bytes)
            ):
                found ^= low
        return found
