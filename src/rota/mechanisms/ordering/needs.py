"""What a task needs of a node, read once for all jobs of a lane, and whether an amount of everything suffices."""

from __future__ import annotations

from rota.core.model.job import WHOLE, Role
from rota.core.model.labels import Terms, Toleration
from rota.core.state.inventory import Inventory
from rota.core.state.node_accounts import NodeAccount


class Need:
    """What a task of a role needs of a node, and which nodes are large enough for it."""

    __slots__ = (
        "_fitting",
        "_nodes",
        "allowed",
        "cpu_milli",
        "device_milli",
        "disk_bps",
        "memory_bytes",
        "network_bps",
        "role",
    )

    def __init__(self, role: Role) -> None:
        self.role = role
        self.device_milli = role.device_milli
        self.cpu_milli = role.cpu_milli
        self.memory_bytes = role.memory_bytes
        self.network_bps = role.network_bps
        self.disk_bps = role.disk_bps
        self.allowed = 0
        """The nodes that a task may use, large enough or not, as a bit set."""
        self._nodes = 0
        self._fitting: dict[tuple[Terms, tuple[Toleration, ...]], int] | None = None
        """What the inventory kept when the nodes were looked at; it begins another when a node comes or goes."""

    def nodes(self, inventory: Inventory) -> int:
        """The nodes that would have room for a task if they were empty, as a bit set."""
        if self._fitting is not inventory.fitting:
            self._nodes = self._large_enough(inventory)
            self._fitting = inventory.fitting
        return self._nodes

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

    def is_met(
        self,
        account: NodeAccount,
        cpu_milli: int,
        memory_bytes: int,
        network_bps: int,
        disk_bps: int,
        devices: int,
        shares: dict[int, int] | None,
    ) -> bool:
        """Whether a task fits on a node where so much more than now is given back."""
        need = self.device_milli
        if need:
            whole = (account.free_mask | devices).bit_count()
            if need > whole * WHOLE and not self._has_shares(account, shares, whole):
                return False
        return (
            (account.cpu_milli + cpu_milli >= self.cpu_milli or not self.cpu_milli)
            and (account.memory_bytes + memory_bytes >= self.memory_bytes or not self.memory_bytes)
            and (account.network_bps + network_bps >= self.network_bps or not self.network_bps)
            and (account.disk_bps + disk_bps >= self.disk_bps or not self.disk_bps)
        )

    def _has_shares(self, account: NodeAccount, shares: dict[int, int] | None, whole: int) -> bool:
        """Whether fractionally held devices suffice, with `whole` others; `shares` is given back of them, by device."""
        need = self.device_milli
        for device, left in account.shares.items():
            milli = left[0]
            if shares is not None:
                milli += shares.get(device, 0)
            if milli >= WHOLE:
                whole += 1
            elif milli >= need:
                return True
        return need <= whole * WHOLE
