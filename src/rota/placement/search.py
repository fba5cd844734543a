"""Find devices for a job in what is free: the pattern's choice, within the locality that the job requires."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from rota.core.model.job import WHOLE, Job, Level, Locality, Role
from rota.core.model.placement import Placement, Slot, lowest
from rota.core.state.inventory import Inventory
from rota.core.state.node_accounts import NodeAccount, Pool
from rota.placement.patterns import LAY, Layout, Pattern, Piece, consecutive, fewest_nodes, total_room

_EVERY_NODE = -1
"""The set of all nodes, as a bit set."""
_ON_ONE_NODE = frozenset(Pattern) - {Pattern.SPREAD, Pattern.CONSECUTIVE}
"""Patterns that put a gang on one node where it fits there."""


def find(inventory: Inventory, job: Job, pattern: Pattern | Layout, insist: Locality | None) -> Placement | None:
    """Devices for all tasks of a job, or None. `insist` is the locality that must hold, if any."""
    role = job.roles[0]
    if len(job.roles) > 1:
        return _find_roles(inventory, job, pattern, insist)
    is_anywhere = inventory.matching(role) == _EVERY_NODE
    if insist is None and pattern in _ON_ONE_NODE and is_anywhere and _is_plain(role, job):
        placement = _one_node(inventory, role, pattern)
        if placement is not None:
            return placement
    sizes: Sequence[int] = (role.count,)
    if job.elastic is not None:
        sizes = range(role.count, job.elastic.min_tasks - 1, -1)
    among = (_idle_nodes(inventory) if job.exclusive else _EVERY_NODE) & inventory.matching(role)
    for tasks in sizes:
        placement = _find_role(inventory, role, 0, tasks, pattern, insist, among)
        if placement is not None:
            return placement
    return None


def _is_plain(role: Role, job: Job) -> bool:
    """Whether only the number of free devices matters."""
    return role.device_milli >= WHOLE and not role.needs_host and not role.device_memory_bytes and not job.exclusive


def _one_node(inventory: Inventory, role: Role, pattern: Pattern | Layout) -> Placement | None:
    """The common case, quickly: all tasks on the tightest node, or for one task of `any` on the first."""
    count = role.count * role.device_milli // WHOLE
    if pattern is Pattern.FIRST and role.count > 1:
        return None
    for pool in inventory.eligible(role):
        nodes = 0
        for free in range(count, len(pool.by_free)):
            nodes |= pool.by_free[free]
            if nodes and pattern is not Pattern.FIRST:
                break
        if nodes:
            node = (nodes & -nodes).bit_length() - 1
            return _slots(inventory, [(node, role.count)], 0, role.device_milli // WHOLE)
        if pool.free >= count:
            return None
    return None


def _idle_nodes(inventory: Inventory) -> int:
    """Idle nodes: all that an exclusive job may use."""
    return sum(1 << node for node, account in enumerate(inventory.nodes) if not account.users)


def _find_roles(inventory: Inventory, job: Job, pattern: Pattern | Layout, insist: Locality | None) -> Placement | None:
    """All roles together within one cell of the required locality, if any."""
    among = _idle_nodes(inventory) if job.exclusive else _EVERY_NODE
    if insist is not None and insist.level >= Level.RACK:
        cells: Sequence[int] = _cells_of(inventory, insist.level)
    elif insist is not None and _may_share_a_node(inventory, job):
        cells = [1 << node for node, account in enumerate(inventory.nodes) if account.usable]
    else:
        return _find_roles_among(inventory, job, pattern, insist, among)
    for cell in cells:
        placement = _find_roles_among(inventory, job, pattern, None, among & cell)
        if placement is not None:
            return placement
    return None


def _may_share_a_node(inventory: Inventory, job: Job) -> bool:
    """Whether there is a node that could take all roles if it were empty."""
    return any(
        account.node.devices * WHOLE >= job.gpu_milli
        and all(not role.device_types or account.node.device_type in role.device_types for role in job.roles)
        for account in inventory.nodes
    )


def _find_roles_among(
    inventory: Inventory, job: Job, pattern: Pattern | Layout, insist: Locality | None, among: int
) -> Placement | None:
    """All roles or none, in the order of the job; where that fails, those that need most on one node come first."""
    order = list(range(len(job.roles)))
    placement = _find_in_order(inventory, job, order, pattern, insist, among)
    if placement is not None:
        return placement
    largest = sorted(order, key=lambda index: _needs(job.roles[index]), reverse=True)
    return None if largest == order else _find_in_order(inventory, job, largest, pattern, insist, among)


def _needs(role: Role) -> tuple[int, ...]:
    """What a task of a role takes of a node."""
    return (role.device_milli, role.cpu_milli, role.memory_bytes, role.network_bps, role.disk_bps)


def _find_in_order(
    inventory: Inventory,
    job: Job,
    order: Sequence[int],
    pattern: Pattern | Layout,
    insist: Locality | None,
    among: int,
) -> Placement | None:
    """Roles one after the other, each seeing what the ones before took; all or nothing."""
    taken: dict[int, Placement] = {}
    grown = inventory.grown
    for index in order:
        role = job.roles[index]
        fit = among & inventory.matching(role)
        part = _find_role(inventory, role, index, role.count, pattern, insist, fit)
        if part is None:
            break
        inventory.take(part, job.roles)
        taken[index] = part
    for part in reversed(list(taken.values())):
        inventory.give(part, job.roles)
    inventory.grown = grown
    if len(taken) < len(job.roles):
        return None
    return tuple(slot for index in sorted(taken) for slot in taken[index])


def _find_role(
    inventory: Inventory,
    role: Role,
    index: int,
    tasks: int,
    pattern: Pattern | Layout,
    insist: Locality | None,
    among: int,
) -> Placement | None:
    if role.is_fraction:
        return _find_shares(inventory, role, index, tasks, insist, among)
    per_task = role.device_milli // WHOLE
    plain = not role.needs_host and not role.device_memory_bytes and per_task
    for pool in inventory.eligible(role):
        if pool.free < tasks * per_task:
            continue
        by_room = room_of_devices(pool, per_task) if plain else room_of_hosts(inventory, pool, role)
        if among != _EVERY_NODE:
            by_room = [nodes & among for nodes in by_room]
        if pattern is Pattern.CONSECUTIVE and insist is None:
            pieces = consecutive(by_room, tasks, lambda node: _room_by_cpus(inventory.nodes[node], role, per_task))
        else:
            pieces = _lay(inventory, by_room, tasks, pattern, insist, pool, per_task)
        if pieces is not None:
            return _slots(inventory, pieces, index, per_task)
    return None


def room_of_devices(pool: Pool, per_task: int) -> Sequence[int]:
    """Room by free devices alone."""
    if per_task == 1:
        return pool.by_free
    by_room = [0] * ((len(pool.by_free) - 1) // per_task + 1)
    for free, nodes in enumerate(pool.by_free):
        by_room[free // per_task] |= nodes
    return by_room


def room_of_hosts(inventory: Inventory, pool: Pool, role: Role) -> Sequence[int]:
    """Room where CPUs, memory, network or disk matter too. Nodes with too few free devices are not looked at."""
    per_task = role.device_milli // WHOLE
    most = (len(pool.by_free) - 1) // per_task if per_task else role.count
    by_room = [0] * (most + 1)
    device_memory_bytes = role.device_memory_bytes
    cpu_milli, memory_bytes = role.cpu_milli, role.memory_bytes
    network_bps, disk_bps = role.network_bps, role.disk_bps
    nodes = 0
    for free in range(per_task, len(pool.by_free)):
        nodes |= pool.by_free[free]
    while nodes:
        low = nodes & -nodes
        nodes ^= low
        account = inventory.nodes[low.bit_length() - 1]
        if device_memory_bytes and device_memory_bytes > (account.node.device_memory_bytes or device_memory_bytes):
            continue
        room = account.free // per_task if per_task else most
        if cpu_milli:
            room = min(room, account.cpu_milli // cpu_milli)
        if memory_bytes:
            room = min(room, account.memory_bytes // memory_bytes)
        if network_bps:
            room = min(room, account.network_bps // network_bps)
        if disk_bps:
            room = min(room, account.disk_bps // disk_bps)
        if room > 0:
            by_room[room] |= low
    return by_room


def _usable_nodes(inventory: Inventory, pool: Pool) -> Iterator[tuple[int, NodeAccount]]:
    nodes = pool.nodes
    while nodes:
        low = nodes & -nodes
        nodes ^= low
        account = inventory.nodes[low.bit_length() - 1]
        if account.usable:
            yield low.bit_length() - 1, account


def _lay(
    inventory: Inventory,
    by_room: Sequence[int],
    tasks: int,
    pattern: Pattern | Layout,
    insist: Locality | None,
    pool: Pool,
    per_task: int,
) -> list[Piece] | None:
    lay = LAY[pattern] if isinstance(pattern, Pattern) else pattern
    if insist is not None and insist.level >= Level.RACK:
        for nodes in _cells(inventory, by_room, insist.level, tasks):
            return lay([room & nodes for room in by_room], tasks)
        return None
    if insist is not None:
        pieces = _near(inventory, by_room, tasks)
        widest = max(len(pool.by_free) - 1, 1) // per_task if per_task else tasks
        fewest = -(-tasks // max(widest, 1))
        return pieces if pieces is not None and len(pieces) <= fewest else None
    return _near(inventory, by_room, tasks) if pattern is Pattern.FEWEST_NODES else lay(by_room, tasks)


def _room_by_cpus(account: NodeAccount, role: Role, per_task: int) -> int:
    """For how many tasks a node has CPUs, whatever its devices; by devices where CPUs are not counted."""
    if role.cpu_milli and account.node.cpu_milli is not None:
        return account.cpu_milli // role.cpu_milli
    return account.free // per_task if per_task else 1


def _near(inventory: Inventory, by_room: Sequence[int], tasks: int) -> list[Piece] | None:
    """Fewest nodes, and among equals within one rack or domain if one has the room."""
    pieces = fewest_nodes(by_room, tasks)
    if pieces is None or len(pieces) == 1 or len(inventory.racks) == 1:
        return pieces
    for level in (Level.RACK, Level.DOMAIN):
        for nodes in _cells(inventory, by_room, level, tasks):
            nearer = fewest_nodes([room & nodes for room in by_room], tasks)
            if nearer is not None and len(nearer) <= len(pieces):
                return nearer
    return pieces


def _cells(inventory: Inventory, by_room: Sequence[int], level: Level, tasks: int) -> Iterator[int]:
    """The cells of a level with room for all tasks, the tightest first."""
    ranked = []
    for order, nodes in enumerate(_cells_of(inventory, level)):
        room = total_room([r & nodes for r in by_room])
        if room >= tasks:
            ranked.append((room, order, nodes))
    for _, _, nodes in sorted(ranked):
        yield nodes


def _cells_of(inventory: Inventory, level: Level) -> list[int]:
    """The sets of nodes that make up a level."""
    if level is Level.CLUSTER:
        return [_EVERY_NODE]
    return list((inventory.racks if level is Level.RACK else inventory.domains).values())


def _slots(inventory: Inventory, pieces: list[Piece], role: int, per_task: int) -> Placement:
    if not per_task:
        return tuple(Slot(node, 0, tasks, role) for node, tasks in pieces)
    slots = []
    for node, tasks in pieces:
        account = inventory.nodes[node]
        count = tasks * per_task
        if account.free == count:
            mask = account.free_mask
        elif account.node.sockets:
            mask = inventory.pick_devices(node, count)
        else:
            mask = lowest(account.free_mask, count)
        slots.append(Slot(node, mask, tasks, role))
    return tuple(slots)


def _find_shares(
    inventory: Inventory, role: Role, index: int, tasks: int, insist: Locality | None, among: int
) -> Placement | None:
    """A fraction of a device for each task, all on one type and within the required locality."""
    for pool in inventory.eligible(role):
        for cell in _share_cells(inventory, pool, role, tasks, insist):
            slots = _find_shares_among(inventory, pool, role, index, tasks, among & cell)
            if slots is not None:
                return slots
    return None


def _share_cells(inventory: Inventory, pool: Pool, role: Role, tasks: int, insist: Locality | None) -> Sequence[int]:
    """The sets of nodes to try: one node after the other, fullest first, if one can take all tasks."""
    if insist is None:
        return [_EVERY_NODE]
    if insist.level >= Level.RACK:
        return _cells_of(inventory, insist.level)
    if tasks > (len(pool.by_free) - 1) * (WHOLE // role.device_milli):
        return [_EVERY_NODE]
    nodes = sorted(_usable_nodes(inventory, pool), key=lambda entry: (entry[1].free, entry[0]))
    return [1 << node for node, _ in nodes]


def _find_shares_among(
    inventory: Inventory, pool: Pool, role: Role, index: int, tasks: int, among: int
) -> Placement | None:
    slots: list[Slot] = []
    if tasks == 1:
        slot = _share(inventory, pool, role, index, among)
        return None if slot is None else (slot,)
    grown = inventory.grown
    roles = (role,) * (index + 1)
    for _ in range(tasks):
        slot = _share(inventory, pool, role, index, among)
        if slot is None:
            break
        inventory.take((slot,), roles)
        slots.append(slot)
    for slot in reversed(slots):
        inventory.give((slot,), roles)
    inventory.grown = grown
    return tuple(slots) if len(slots) == tasks else None


def _share(inventory: Inventory, pool: Pool, role: Role, index: int, among: int) -> Slot | None:
    """The fullest device with room for the fraction, or a free one of the fullest node."""
    need_milli, need_bytes, partial = role.device_milli, role.device_memory_bytes, pool.partial
    for at in range(bisect_left(partial, (need_milli,)), len(partial)):
        _, node, device = partial[at]
        if among >> node & 1:
            account = inventory.nodes[node]
            if account.shares[device][1] >= need_bytes and _has_host(account, role):
                return Slot(node, 1 << device, 1, index, need_milli)
    for free in range(1, len(pool.by_free)):
        nodes = pool.by_free[free] & among
        while nodes:
            low = nodes & -nodes
            nodes ^= low
            node = low.bit_length() - 1
            account = inventory.nodes[node]
            if need_bytes:
                memory = account.node.device_memory_bytes
                if memory is not None and memory < need_bytes:
                    continue
            if _has_host(account, role):
                return Slot(node, lowest(account.free_mask, 1), 1, index, need_milli)
    return None


def _has_host(account: NodeAccount, role: Role) -> bool:
    """Whether a node has the CPUs, memory, network and disk for a task."""
    if not role.needs_host:
        return True
    cpu_milli, memory_bytes = role.cpu_milli, role.memory_bytes
    network_bps, disk_bps = role.network_bps, role.disk_bps
    # Others may hold more of a node than it has; that keeps only those tasks away that need some of it.
    return (
        (account.cpu_milli >= cpu_milli or not cpu_milli)
        and (account.memory_bytes >= memory_bytes or not memory_bytes)
        and (account.network_bps >= network_bps or not network_bps)
        and (account.disk_bps >= disk_bps or not disk_bps)
    )
