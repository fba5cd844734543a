"""Cells and the engine's nodes: which machine is which node, which cell which device.

A machine with devices of several types is several nodes. Nodes that no cell is made of (they have left the cluster,
or belong to no cell) have no machine here.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.errors import RotaError
from rota.core.model.cluster import Node
from rota.core.model.placement import Placement, device_indexes
from rota.core.state.node_accounts import NodeAccount
from rota.tenancy.cells.build import Forest
from rota.tenancy.cells.tree import Physical


class Sites:
    """The way from cells to nodes and back."""

    def __init__(self, forest: Forest, nodes: Sequence[Node]) -> None:
        index_by_name = {str(node.id): index for index, node in enumerate(nodes)}
        self._cells: list[list[Physical]] = [[] for _ in nodes]
        self._machines: list[str | None] = [None] * len(nodes)
        self._nodes: dict[str, list[int]] = {}
        self._home: dict[Physical, tuple[int, int]] = {}
        node_by_cell: dict[tuple[str, str], int] = {}
        for machine, cells in forest.cells_by_node.items():
            for at, cell in enumerate(cells):
                name = machine if not at else f"{machine}+{forest.chains[cell.chain].leaf_type}"
                if name not in index_by_name:
                    raise RotaError(f"physicalCluster.physicalCells names node {name!r}, which the cluster lacks")
                index = node_by_cell[machine, cell.chain] = index_by_name[name]
                self._machines[index] = machine
                self._nodes.setdefault(machine, []).append(index)
        for device in forest.devices.values():
            self._cells[node_by_cell[device.nodes[0], device.chain]].append(device)
        for index, devices in enumerate(self._cells):
            if devices and len(devices) != nodes[index].devices:
                raise RotaError(
                    f"node {nodes[index].id!r} has {nodes[index].devices} devices, its cells have {len(devices)}"
                )
            devices.sort(key=lambda device: device.index)
            for bit, device in enumerate(devices):
                self._home[device] = (index, bit)

    def machine(self, index: int) -> str | None:
        """The machine that a node is, or is part of."""
        return self._machines[index] if index < len(self._machines) else None

    def nodes_of(self, machine: str) -> Sequence[int]:
        """The nodes that a machine is."""
        return self._nodes[machine]

    def home(self, device: Physical) -> tuple[int, int]:
        """A device's node, and its number there."""
        return self._home[device]

    def devices(self, placement: Placement) -> list[Physical]:
        """The devices of a placement, as far as cells are made of them."""
        return [
            self._cells[slot.node][bit]
            for slot in placement
            if slot.node < len(self._cells) and self._cells[slot.node]
            for bit in device_indexes(slot.devices)
        ]


def is_sound(account: NodeAccount) -> bool:
    """Whether a node counts as healthy."""
    return account.up and not account.drained and not account.removed
