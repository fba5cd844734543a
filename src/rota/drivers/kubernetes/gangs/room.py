"""What is left on nodes of devices, CPUs, memory and pods, as the engine counts it, while a gang gets its nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rota.core.model.job import WHOLE, Job, Level, Role
from rota.core.state.inventory import Inventory
from rota.core.state.node_accounts import NodeAccount
from rota.drivers.kubernetes.gangs.headroom import Headroom
from rota.drivers.kubernetes.objects.topology_request import TopologyRequest

EVERYWHERE = -1
"""All nodes, as a bit set."""


@dataclass(slots=True)
class _Left:
    devices: int
    cpu_milli: int
    memory_bytes: int
    pods: int
    taken: int = 0


class InventoryRoom:
    """The room of the present inventory; `emptied` counts what running jobs hold as free, as if they were stopped."""

    def __init__(self, inventory: Inventory, roles: Sequence[Role], headroom: Headroom, *, emptied: bool) -> None:
        self._inventory = inventory
        self._roles = roles
        self._headroom = headroom
        self._emptied = emptied
        self._left: dict[int, _Left] = {}
        self._within = -1
        self._suited = [self._suits(role) for role in roles]

    def within(self, nodes: int) -> None:
        """Use only these nodes, a bit set, from now on; everything is free again."""
        self._within = nodes
        self._left = {}

    def _suits(self, role: Role) -> list[int]:
        """Nodes that a role may use by type, labels and taints, and that take new work."""
        match = self._inventory.matching(role)
        pools = {pool.device_type for pool in self._inventory.eligible(role)}
        return [
            index
            for index, account in enumerate(self._inventory.nodes)
            if account.usable and match >> index & 1 and account.node.device_type in pools
        ]

    def nodes(self, index: int) -> Sequence[str]:
        """Return nodes with room for the pod of this index: those in use by the gang first, then the fullest."""
        role = self._roles[index]
        found = []
        for number in self._suited[index]:
            if self._within >> number & 1:
                left = self._of(number)
                if _fits(role, left):
                    found.append((not left.taken, left.devices, number))
        return [str(self._inventory.nodes[number].node.id) for _, _, number in sorted(found)]

    def holds_all(self) -> bool:
        """Whether all tasks of all roles fit; they count as taken then."""
        for index, role in enumerate(self._roles):
            for _ in range(role.count):
                names = self.nodes(index)
                if not names:
                    return False
                self.take(index, names[0])
        return True

    def take(self, index: int, node: str) -> None:
        """Count the pod on a node."""
        self._shift(index, node, -1)

    def give(self, index: int, node: str) -> None:
        """Undo `take`."""
        self._shift(index, node, 1)

    def _shift(self, index: int, node: str, sign: int) -> None:
        role = self._roles[index]
        left = self._of(self._inventory.by_name[node])  # type: ignore[index]  # a node name is a NodeId
        left.devices += sign * _devices(role)
        left.cpu_milli += sign * role.cpu_milli
        left.memory_bytes += sign * role.memory_bytes
        left.pods += sign
        left.taken -= sign

    def _of(self, number: int) -> _Left:
        left = self._left.get(number)
        if left is None:
            left = self._left[number] = self._fresh(self._inventory.nodes[number])
        return left

    def _fresh(self, account: NodeAccount) -> _Left:
        node = account.node
        name = str(node.id)
        pods = 1 << 30 if (room := self._headroom.room(name)) is None else room
        if not self._emptied:
            return _Left(account.free, account.cpu_milli, account.memory_bytes, pods)
        cpu = account.cpu_milli if node.cpu_milli is None else node.cpu_milli - account.others_cpu_milli
        memory = account.memory_bytes if node.memory_bytes is None else node.memory_bytes - account.others_memory_bytes
        return _Left(node.devices - account.others_mask.bit_count(), cpu, memory, max(pods, 1))


def _devices(role: Role) -> int:
    """Whole devices that a task takes; a fraction is left to the engine."""
    return role.device_milli // WHOLE


def _fits(role: Role, left: _Left) -> bool:
    return (
        _devices(role) <= left.devices
        and left.pods > 0
        and (not role.needs_host or (role.cpu_milli <= left.cpu_milli and role.memory_bytes <= left.memory_bytes))
    )


def cells_of(job: Job, topology: TopologyRequest, inventory: Inventory, *, emptied: bool) -> list[int]:
    """Return sets of nodes, as bit sets, in the order in which they should be tried for the whole job.

    The preferred places come first, but only while nothing has to be stopped for them; then those that are required,
    or all nodes.
    """
    required = _places(topology.required, inventory) if topology.required else _of_locality(job, inventory)
    if emptied:
        return required
    preferred = [
        nearer & wider
        for label in topology.preferred
        for nearer in _places(label, inventory)
        for wider in required
        if nearer & wider
    ]
    return [*preferred, *required]


def _of_locality(job: Job, inventory: Inventory) -> list[int]:
    locality = job.locality
    if locality is None or not locality.hard or not Level.RACK <= locality.level <= Level.DOMAIN:
        return [EVERYWHERE]
    return list((inventory.racks if locality.level is Level.RACK else inventory.domains).values())


def _places(label: str, inventory: Inventory) -> list[int]:
    """The nodes by the value of a label, the place with the fewest free devices first."""
    nodes: dict[str, int] = {}
    free: dict[str, int] = {}
    for index, account in enumerate(inventory.nodes):
        value = dict(account.node.labels).get(label)
        if value is not None and not account.removed:
            nodes[value] = nodes.get(value, 0) | 1 << index
            free[value] = free.get(value, 0) + account.free
    return [nodes[value] for value in sorted(nodes, key=lambda value: (free[value], value))]


def members(cell: int) -> Iterator[int]:
    """Yield the indexes in a bit set."""
    while cell:
        yield (cell & -cell).bit_length() - 1
        cell &= cell - 1
