"""What is free where: devices, shares of devices and host resources, indexed for planning.

Sets of nodes are integers used as bit sets. They make "nodes of this type with exactly three free
devices, in this rack" one AND, cost a fork nothing to copy, and find the lowest member at C speed.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from rota.core.errors import InvariantBroken
from rota.core.model.cluster import Cluster, Node, NodeTrust
from rota.core.model.job import WHOLE, DeviceType, NodeId, Role
from rota.core.model.labels import NODE_NAME, Terms, Toleration, is_met, is_tolerated
from rota.core.model.placement import Placement, Slot, device_indexes, device_memory, lowest
from rota.core.state.node_accounts import UNCOUNTED, NodeAccount, Pool, all_free


class Inventory:
    """Claims on the cluster. Only `take`, `give` and the node transitions change it."""

    __slots__ = (
        "avoided",
        "by_name",
        "cpu_total",
        "domains",
        "fitting",
        "free",
        "grown",
        "idle_free",
        "locked",
        "memory_total",
        "nodes",
        "pool_by_type",
        "pools",
        "racks",
        "stamp",
        "unproven",
    )

    def __init__(self, cluster: Cluster | None = None) -> None:
        """The inventory of a cluster, all free; empty without one."""
        self.nodes: list[NodeAccount] = []
        self.pools: list[Pool] = []
        self.pool_by_type: dict[DeviceType, int] = {}
        self.by_name: dict[NodeId, int] = {}
        self.racks: dict[str, int] = {}
        self.domains: dict[str, int] = {}
        self.free = 0
        """Wholly free devices on usable nodes."""
        self.idle_free = 0
        """Free devices on idle nodes; the other free ones are fragmented."""
        self.grown = 0
        """Nodes on which something became available since a policy set this to 0, as a bit set."""
        self.cpu_total = self.memory_total = 0
        """CPU thousandths and memory bytes of all nodes that count theirs."""
        self.fitting: dict[tuple[Terms, tuple[Toleration, ...]], int] = {}
        """What `matching` found, until a node comes or goes."""
        self.unproven = self.avoided = self.locked = self.stamp = 0
        """The nodes that are not proven, that a search leaves out at present, and of exclusive jobs, as bit sets; and
        the stamp of the node that changed last."""
        for node in () if cluster is None else cluster.nodes:
            self.add(node)

    def add(self, node: Node) -> None:
        """A node joins, empty; one that comes back after it was removed, in its old place."""
        index = self.by_name.setdefault(node.id, len(self.nodes))
        pool_index = self.pool_by_type.setdefault(node.device_type, len(self.pools))
        if pool_index == len(self.pools):
            self.pools.append(Pool(node.device_type))
        if index == len(self.nodes):
            self.nodes.append(all_free(node, pool_index))
        elif not self.nodes[index].users:
            self.nodes[index] = all_free(node, pool_index, self.nodes[index])
        self.nodes[index].node = node
        self.nodes[index].removed = False
        self._count_node(index, 1)
        pool = self.pools[pool_index]
        while len(pool.by_free) <= node.devices:
            pool.by_free.append(0)
        self._enlist(index)

    def remove(self, index: int) -> None:
        """A node leaves. What is held there stays held."""
        self._delist(index)
        self._count_node(index, -1)
        self.nodes[index].removed = True

    def _count_node(self, index: int, sign: int) -> None:
        """Enter a node into the indexes that do not depend on what is free, or strike it out."""
        account = self.nodes[index]
        self.fitting = {}
        node, pool, bit = account.node, self.pools[account.pool], 1 << index
        self.cpu_total += sign * (node.cpu_milli or 0)
        self.memory_total += sign * (node.memory_bytes or 0)
        pool.nodes ^= bit
        pool.devices += sign * node.devices
        for places, name in ((self.racks, node.rack), (self.domains, node.domain)):
            places[name] = places.get(name, 0) ^ bit
            if not places[name]:
                del places[name]

    @property
    def devices(self) -> int:
        """Devices of all nodes, whatever their state."""
        return sum(pool.devices for pool in self.pools)

    def eligible(self, role: Role) -> list[Pool]:
        """The pools a role may use, best first. A role without devices may use any node."""
        if not role.device_types:
            return self.pools
        return [self.pools[self.pool_by_type[t]] for t in role.device_types if t in self.pool_by_type]

    def matching(self, role: Role) -> int:
        """The nodes that a role may use by their labels and taints, as a bit set; -1 if that is every node."""
        key = (role.requires, role.tolerates)
        found = self.fitting.get(key)
        if found is None:
            found = -1
            for index, account in enumerate(self.nodes):
                node = account.node
                if not (
                    is_tolerated(account.taints, role.tolerates)
                    and is_met(role.requires, {NODE_NAME: str(node.id), **dict(node.labels)})
                ):
                    found &= ~(1 << index)
            self.fitting[key] = found
        return found & ~self.avoided

    def take(self, placement: Placement, roles: tuple[Role, ...], exclusive: bool = False) -> None:
        """Claim all slots of a placement."""
        for slot in placement:
            self._take_slot(slot, roles[slot.role])
        if exclusive:
            for index in {slot.node for slot in placement}:
                self._set_locked(index, True)

    def give(self, placement: Placement, roles: tuple[Role, ...], exclusive: bool = False) -> None:
        """Give back what `take` claimed."""
        if exclusive:
            for index in {slot.node for slot in placement}:
                self._set_locked(index, False)
        for slot in placement:
            self._give_slot(slot, roles[slot.role])

    def is_free(
        self, placement: Placement, roles: tuple[Role, ...], exclusive: bool = False, *, back: bool = False
    ) -> bool:
        """Whether a placement could be taken now; `back`: by a job that never left it, drained or not."""
        if exclusive and any(self.nodes[slot.node].users for slot in placement):
            return False
        if len(placement) == 1:
            return self._is_slot_free(placement[0], roles, back=back)
        taken: list[Slot] = []
        grown = self.grown
        for slot in placement:
            if not self._is_slot_free(slot, roles, back=back):
                break
            self._take_slot(slot, roles[slot.role])
            taken.append(slot)
        for slot in reversed(taken):
            self._give_slot(slot, roles[slot.role])
        self.grown = grown
        return len(taken) == len(placement)

    def _is_slot_free(self, slot: Slot, roles: tuple[Role, ...], *, back: bool) -> bool:
        account, role = self.nodes[slot.node], roles[slot.role]
        is_open = not account.locked if back else account.usable and self.matching(role) >> slot.node & 1
        return bool(is_open) and self._slot_fits(slot, role)

    def set_up(self, index: int, up: bool) -> None:
        """A node failed or came back."""
        account = self.nodes[index]
        self._delist(index)
        account.up = up
        self._enlist(index)

    def set_drained(self, index: int, drained: bool) -> None:
        """A node was drained or undrained."""
        account = self.nodes[index]
        self._delist(index)
        account.drained = drained
        self._enlist(index)

    def rate(self, index: int, trust: NodeTrust) -> None:
        """A node is trusted more, or less."""
        self.nodes[index].trust = trust
        self.fitting = {}
        bit = 1 << index
        self.grown |= bit
        self.unproven = self.unproven & ~bit if trust is NodeTrust.PROVEN else self.unproven | bit

    def occupy(self, index: int, devices: int, cpu_milli: int, memory_bytes: int) -> None:
        """Record what is held of a node outside of the scheduler. Which devices is not known: the last free ones."""
        account = self.nodes[index]
        self._delist(index)
        mask = account.free_mask | account.others_mask
        account.others_mask = mask & ~lowest(mask, max(mask.bit_count() - devices, 0))
        account.free_mask = mask & ~account.others_mask
        account.free = account.free_mask.bit_count()
        account.cpu_milli += account.others_cpu_milli - cpu_milli
        account.memory_bytes += account.others_memory_bytes - memory_bytes
        account.others_cpu_milli, account.others_memory_bytes = cpu_milli, memory_bytes
        self._enlist(index)

    def pick_devices(self, index: int, count: int) -> int:
        """Which free devices of a node to take: within one socket if one has enough, else the fullest first."""
        return self.nodes[index].pick_devices(count)

    def fork(self) -> Inventory:
        """An independent copy."""
        copy = Inventory()
        copy.nodes = [account.copy() for account in self.nodes]
        copy.pools = [pool.copy() for pool in self.pools]
        copy.pool_by_type, copy.by_name = dict(self.pool_by_type), dict(self.by_name)
        copy.racks, copy.domains = dict(self.racks), dict(self.domains)
        copy.free, copy.idle_free = self.free, self.idle_free
        copy.cpu_total, copy.memory_total = self.cpu_total, self.memory_total
        copy.unproven, copy.locked = self.unproven, self.locked
        copy.stamp = self.stamp
        return copy

    # -- slots -----------------------------------------------------------------------------------

    def _take_slot(self, slot: Slot, role: Role) -> None:
        account = self.nodes[slot.node]
        self.stamp = account.stamp = self.stamp + 1
        if slot.milli == WHOLE:
            if account.free_mask & slot.devices != slot.devices:
                raise InvariantBroken(f"node {account.node.id}: devices {slot.devices:b} are not all free")
            if account.usable:
                self._shift(slot.node, account, account.free_mask ^ slot.devices, account.users + 1)
            else:
                account.free_mask ^= slot.devices
                account.free = account.free_mask.bit_count()
                account.users += 1
        else:
            self._take_share(slot, account, role)
        if role.needs_host:
            account.cpu_milli -= role.cpu_milli * slot.tasks
            account.memory_bytes -= role.memory_bytes * slot.tasks
            account.network_bps -= role.network_bps * slot.tasks
            account.disk_bps -= role.disk_bps * slot.tasks
            if min(account.cpu_milli, account.memory_bytes, account.network_bps, account.disk_bps) < 0:
                raise InvariantBroken(f"node {account.node.id}: host resources are oversubscribed")

    def _give_slot(self, slot: Slot, role: Role) -> None:
        account = self.nodes[slot.node]
        self.stamp = account.stamp = self.stamp + 1
        self.grown |= 1 << slot.node
        if role.needs_host:
            account.cpu_milli += role.cpu_milli * slot.tasks
            account.memory_bytes += role.memory_bytes * slot.tasks
            account.network_bps += role.network_bps * slot.tasks
            account.disk_bps += role.disk_bps * slot.tasks
        if slot.milli != WHOLE:
            self._give_share(slot, account, role)
            return
        if account.free_mask & slot.devices:
            raise InvariantBroken(f"node {account.node.id}: devices {slot.devices:b} were free already")
        if account.usable:
            self._shift(slot.node, account, account.free_mask | slot.devices, account.users - 1)
        else:
            account.free_mask |= slot.devices
            account.free = account.free_mask.bit_count()
            account.users -= 1

    def _shift(self, index: int, account: NodeAccount, mask: int, users: int) -> None:
        """Change the free devices of a usable node and keep the pool's index true."""
        pool = self.pools[account.pool]
        before, after = account.free, mask.bit_count()
        if not account.users:
            self.idle_free -= before
        if not users:
            self.idle_free += after
        account.free_mask = mask
        account.users = users
        if before != after:
            bit = 1 << index
            by_free = pool.by_free
            by_free[before] ^= bit
            by_free[after] ^= bit
            account.free = after
            pool.free += after - before
            self.free += after - before

    def _slot_fits(self, slot: Slot, role: Role) -> bool:
        account = self.nodes[slot.node]
        if slot.milli == WHOLE:
            devices_fit = account.free_mask & slot.devices == slot.devices
        elif role.is_fraction and slot.devices.bit_count() != 1:
            devices_fit = False
        else:
            devices_fit = True
            for device in device_indexes(slot.devices):
                milli, memory = self._share_left(account, device)
                if milli < slot.milli or memory < device_memory(slot, role):
                    devices_fit = False
                    break
        return devices_fit and (
            not role.needs_host
            or (
                account.cpu_milli >= role.cpu_milli * slot.tasks
                and account.memory_bytes >= role.memory_bytes * slot.tasks
                and account.network_bps >= role.network_bps * slot.tasks
                and account.disk_bps >= role.disk_bps * slot.tasks
            )
        )

    # -- shares of devices -----------------------------------------------------------------------

    def _share_left(self, account: NodeAccount, device: int) -> tuple[int, int]:
        left = account.shares.get(device)
        if left is not None:
            return left
        if account.free_mask >> device & 1:
            memory = account.node.device_memory_bytes
            return WHOLE, UNCOUNTED if memory is None else memory
        return 0, 0

    def _take_share(self, slot: Slot, account: NodeAccount, role: Role) -> None:
        users = 1
        keeps = device_memory(slot, role)
        for device in device_indexes(slot.devices):
            milli, memory = self._share_left(account, device)
            if slot.milli > milli or keeps > memory:
                raise InvariantBroken(f"node {account.node.id}: device {device} has no {slot.milli} thousandths free")
            self._set_share(slot.node, account, device, milli - slot.milli, memory - keeps, users)
            users = 0

    def _give_share(self, slot: Slot, account: NodeAccount, role: Role) -> None:
        users = -1
        keeps = device_memory(slot, role)
        for device in device_indexes(slot.devices):
            milli, memory = account.shares[device]
            self._set_share(slot.node, account, device, milli + slot.milli, memory + keeps, users)
            users = 0

    def _set_share(self, index: int, account: NodeAccount, device: int, milli: int, memory: int, users: int) -> None:
        pool = self.pools[account.pool]
        usable = account.usable
        if usable and device in account.shares:
            entry = (account.shares[device][0], index, device)
            del pool.partial[bisect_left(pool.partial, entry)]
            pool.partial_milli -= entry[0]
        mask = account.free_mask
        if milli == WHOLE:
            del account.shares[device]
            mask |= 1 << device
        else:
            account.shares[device] = (milli, memory)
            mask &= ~(1 << device)
            if usable:
                insort(pool.partial, (milli, index, device))
                pool.partial_milli += milli
        if usable:
            self._shift(index, account, mask, account.users + users)
        else:
            account.free_mask = mask
            account.free = mask.bit_count()
            account.users += users

    # -- nodes coming and going ------------------------------------------------------------------

    def _set_locked(self, index: int, locked: bool) -> None:
        self._delist(index)
        self.nodes[index].locked = locked
        self.locked = self.locked | 1 << index if locked else self.locked & ~(1 << index)
        self._enlist(index)

    def _delist(self, index: int) -> None:
        account = self.nodes[index]
        if not account.usable:
            return
        pool = self.pools[account.pool]
        pool.by_free[account.free] ^= 1 << index
        pool.free -= account.free
        self.free -= account.free
        pool.usable -= account.node.devices
        if not account.users:
            self.idle_free -= account.free
        pool.partial = [entry for entry in pool.partial if entry[1] != index]
        pool.partial_milli = sum([entry[0] for entry in pool.partial])

    def _enlist(self, index: int) -> None:
        account = self.nodes[index]
        self.stamp = account.stamp = self.stamp + 1
        if not account.usable:
            return
        pool = self.pools[account.pool]
        self.grown |= 1 << index
        pool.by_free[account.free] ^= 1 << index
        pool.free += account.free
        self.free += account.free
        pool.usable += account.node.devices
        if not account.users:
            self.idle_free += account.free
        for device, (milli, _) in sorted(account.shares.items()):
            insort(pool.partial, (milli, index, device))
            pool.partial_milli += milli
