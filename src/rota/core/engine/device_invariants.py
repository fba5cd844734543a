"""The invariants of devices: recount what jobs claim and hold, and compare it with the inventory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rota.core.errors import InvariantBroken
from rota.core.model.job import WHOLE, JobId, JobState, Role
from rota.core.model.placement import Placement, Slot, device_indexes, device_memory
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.node_accounts import UNCOUNTED, NodeAccount
from rota.core.state.state import State

_WITH_TASKS = frozenset({JobState.STARTING, JobState.RUNNING, JobState.SUSPENDED})


@dataclass(slots=True)
class _Usage:
    """What is held of one node: by device, of the host, in how many slots, and by which exclusive job."""

    milli: dict[int, int] = field(default_factory=dict)
    memory: dict[int, int] = field(default_factory=dict)
    cpu_milli: int = 0
    memory_bytes: int = 0
    network_bps: int = 0
    disk_bps: int = 0
    slots: int = 0
    jobs: dict[JobId, None] = field(default_factory=dict)
    alone: JobId | None = None


def check_devices(state: State) -> None:
    """Raise `InvariantBroken`, naming the device or amount, unless claims, tasks and the inventory agree."""
    claims = ((live, live.placement) for live in state.jobs.values() if live.placement is not None)
    claimed = _usage(claims, state.inventory, "claimed")
    _usage(_physical(state), state.inventory, "physically held")
    for index, account in enumerate(state.inventory.nodes):
        _check_node(account, claimed[index])
    _check_pools(state.inventory)
    _check_totals(state.inventory)


def _physical(state: State) -> Iterator[tuple[LiveJob, Placement]]:
    """Where tasks really are: where they were started, until they have answered a stop or a resize.

    Packed tasks that leave are not counted: a neighbour that stays may claim the whole device at once.
    """
    for live in state.jobs.values():
        if live.state not in _WITH_TASKS:
            continue
        if live.suspended_on is not None and live.stopping is None:
            yield live, _suspended_at(live, state)
            continue
        leaving = _leaving(live, state)
        here = leaving if live.stopping is not None else (live.placement or ()) + leaving
        yield live, _merged(here) if live.job.elastic is not None or leaving else here


def _suspended_at(live: LiveJob, state: State) -> Placement:
    """Where the tasks are of a job that is suspended, being suspended, resumed or moved."""
    if live.state is JobState.RUNNING:
        return _leaving(live, state)
    return state.where(live) + _leaving(live, state)


def _leaving(live: LiveJob, state: State) -> Placement:
    """What a job has not vacated yet of devices that it does not share."""
    _, leaving = state.vacating.get(live.job.id, (live, ()))
    return tuple(slot for slot in leaving if not _is_packed(slot, live.job.roles[slot.role]))


def _is_packed(slot: Slot, role: Role) -> bool:
    """Whether tasks are packed: they asked for whole devices and hold less.

    When one leaves, a neighbour that stays may claim the whole devices at once.
    """
    return role.device_milli >= WHOLE > slot.milli


def _merged(placement: Placement) -> Placement:
    """The slots of an old and a new size together, what is in both counted once."""
    slots: dict[tuple[int, int, int, int], Slot] = {}
    for slot in placement:
        part = slot.devices if slot.milli != WHOLE else -1
        key = (slot.node, slot.role, slot.milli, part)
        old = slots.get(key, slot)
        slots[key] = slot._replace(devices=old.devices | slot.devices, tasks=max(old.tasks, slot.tasks))
    return tuple(slots.values())


def _usage(placed: Iterator[tuple[LiveJob, Placement]], inventory: Inventory, how: str) -> list[_Usage]:
    """Add up what jobs hold, node by node, and refuse what exceeds a node."""
    usage = [_Usage() for _ in inventory.nodes]
    for live, placement in placed:
        for slot in placement:
            node = usage[slot.node]
            role = live.job.roles[slot.role]
            _add_devices(node, slot, role)
            node.cpu_milli += role.cpu_milli * slot.tasks
            node.memory_bytes += role.memory_bytes * slot.tasks
            node.network_bps += role.network_bps * slot.tasks
            node.disk_bps += role.disk_bps * slot.tasks
            node.slots += 1
            node.jobs[live.job.id] = None
            if live.job.exclusive:
                node.alone = live.job.id
    for node, account in zip(usage, inventory.nodes, strict=True):
        _refuse_excess(node, account, how)
    return usage


def _add_devices(node: _Usage, slot: Slot, role: Role) -> None:
    for device in device_indexes(slot.devices):
        node.milli[device] = node.milli.get(device, 0) + slot.milli
        if slot.milli != WHOLE:
            node.memory[device] = node.memory.get(device, 0) + device_memory(slot, role)


def _refuse_excess(usage: _Usage, account: NodeAccount, how: str) -> None:
    node = account.node
    for device, milli in usage.milli.items():
        if device >= node.devices:
            raise InvariantBroken(f"node {node.id}: device {device} is {how}, it has {node.devices}")
        if milli > WHOLE:
            raise InvariantBroken(f"node {node.id}: device {device} is {how} twice, {milli} thousandths")
        held = usage.memory.get(device, 0)
        if node.device_memory_bytes is not None and held > node.device_memory_bytes:
            raise InvariantBroken(f"node {node.id}: {held} bytes of device {device} are {how}")
    for held, limit, what in (
        (usage.cpu_milli, node.cpu_milli, "CPU thousandths"),
        (usage.memory_bytes, node.memory_bytes, "bytes of memory"),
        (usage.network_bps, node.network_bps, "bits a second"),
        (usage.disk_bps, node.disk_bps, "bits a second of its disks"),
    ):
        if limit is not None and held > limit:
            raise InvariantBroken(f"node {node.id}: {held} {what} are {how}; it has {limit}")
    if usage.alone is not None and len(usage.jobs) > 1:
        raise InvariantBroken(f"node {node.id} is {how} by {', '.join(usage.jobs)}, though {usage.alone} is exclusive")


def _check_node(account: NodeAccount, usage: _Usage) -> None:
    """One node's account against the claims on it."""
    node = account.node
    free_mask = (1 << node.devices) - 1 & ~account.others_mask
    shares: dict[int, tuple[int, int]] = {}
    for device, milli in usage.milli.items():
        if account.others_mask >> device & 1:
            raise InvariantBroken(f"node {node.id}: device {device} is claimed, though others hold it")
        free_mask &= ~(1 << device)
        if device in usage.memory:
            has = UNCOUNTED if node.device_memory_bytes is None else node.device_memory_bytes
            shares[device] = (WHOLE - milli, has - usage.memory[device])
    for kept, counted, what in (
        (account.all_mask, (1 << node.devices) - 1, "devices"),
        (account.free_mask, free_mask, "free devices"),
        (account.free, free_mask.bit_count(), "number of free devices"),
        (account.shares, shares, "shares"),
        (account.users, usage.slots, "slots"),
        (account.locked, usage.alone is not None, "exclusive use"),
        (account.cpu_milli, _left(node.cpu_milli, usage.cpu_milli + account.others_cpu_milli), "CPUs"),
        (account.memory_bytes, _left(node.memory_bytes, usage.memory_bytes + account.others_memory_bytes), "memory"),
        (account.network_bps, _left(node.network_bps, usage.network_bps), "network"),
        (account.disk_bps, _left(node.disk_bps, usage.disk_bps), "disk"),
    ):
        _agree(kept, counted, f"node {node.id}: {what}")


def _check_pools(inventory: Inventory) -> None:
    """The indexes by type against the nodes' account."""
    for number, pool in enumerate(inventory.pools):
        _agree(inventory.pool_by_type.get(pool.device_type), number, f"pool {pool.device_type}: its number")
        members = [(i, each) for i, each in enumerate(inventory.nodes) if each.pool == number and not each.removed]
        usable = [(i, account) for i, account in members if account.up and not account.drained and not account.locked]
        by_free = [0] * len(pool.by_free)
        for index, account in usable:
            by_free[account.free] |= 1 << index
        partial = sorted(
            (milli, index, device) for index, account in usable for device, (milli, _) in account.shares.items()
        )
        for kept, counted, what in (
            (pool.nodes, sum(1 << index for index, _ in members), "nodes"),
            (pool.devices, sum(account.node.devices for _, account in members), "devices"),
            (pool.usable, sum(account.node.devices for _, account in usable), "usable devices"),
            (pool.free, sum(account.free for _, account in usable), "free devices"),
            (pool.by_free, by_free, "nodes by free devices"),
            (pool.partial, partial, "fractionally held devices"),
        ):
            _agree(kept, counted, f"pool {pool.device_type}: {what}")


def _check_totals(inventory: Inventory) -> None:
    nodes = inventory.nodes
    racks: dict[str, int] = {}
    domains: dict[str, int] = {}
    for index, account in enumerate(nodes):
        if account.removed:
            continue
        racks[account.node.rack] = racks.get(account.node.rack, 0) | 1 << index
        domains[account.node.domain] = domains.get(account.node.domain, 0) | 1 << index
    there = [account for account in nodes if not account.removed]
    idle = sum(b.free for b in there if b.up and not b.drained and not b.locked and not b.users)
    for kept, counted, what in (
        (inventory.racks, racks, "racks"),
        (inventory.domains, domains, "domains"),
        (inventory.free, sum(pool.free for pool in inventory.pools), "free devices"),
        (inventory.idle_free, idle, "free devices of idle nodes"),
        (inventory.by_name, {account.node.id: index for index, account in enumerate(nodes)}, "nodes by name"),
        (inventory.cpu_total, sum(account.node.cpu_milli or 0 for account in there), "all CPUs"),
        (inventory.memory_total, sum(account.node.memory_bytes or 0 for account in there), "all memory"),
    ):
        _agree(kept, counted, f"inventory: {what}")


def _left(has: int | None, used: int) -> int:
    return (UNCOUNTED if has is None else has) - used


def _agree(kept: object, counted: object, what: str) -> None:
    if kept != counted:
        raise InvariantBroken(f"{what}: the accounts have {kept}, a recount gives {counted}")
