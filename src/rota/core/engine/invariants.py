"""The invariants: recount everything from the jobs alone and compare it with what the state keeps.

Slow on purpose and independent of the code that it checks. Tests run it after every step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rota.core.errors import InvariantBroken
from rota.core.messages.decisions import Cause
from rota.core.model.job import WHOLE, JobId, JobState, Role
from rota.core.model.placement import (
    Placement,
    Slot,
    device_indexes,
    device_memory,
    fault_in,
    held_milli,
    is_suspended_claim,
    same_devices,
    suspended_claim,
)
from rota.core.state.derived_phase import derived_phase
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.node_accounts import UNCOUNTED, NodeAccount
from rota.core.state.phases import STATE_BY_PHASE, Phase
from rota.core.state.state import State

_ON_DEVICES = frozenset({JobState.STARTING, JobState.RUNNING})
_SLACK = 1e-6
"""The relative error that sums of floats may have."""


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


def check(state: State) -> None:
    """Raise `InvariantBroken`, naming what is wrong, unless the state agrees with itself."""
    for name, live in state.jobs.items():
        if live.job.id != name:
            raise InvariantBroken(f"job {name}: it is filed under another name than its own, {live.job.id}")
        _check_standing(live, state)
        _check_books(live, state)
        is_without = live.suspended_on is not None or live.phase is Phase.SAVING
        if live.placement is not None and not (is_without and is_suspended_claim(live.placement)):
            _check_claim(live, live.placement, state.inventory)
    _check_sequence(state)
    _check_dependencies(state)
    _check_registers(state)
    for live in state.jobs.values():
        _check_phase(live, state)
    claims = ((live, live.placement) for live in state.jobs.values() if live.placement is not None)
    claimed = _usage(claims, state.inventory, "claimed")
    _usage(_physical(state), state.inventory, "physically held")
    for index, account in enumerate(state.inventory.nodes):
        _check_node(account, claimed[index])
    _check_pools(state.inventory)
    _check_totals(state.inventory)


# -- jobs ----------------------------------------------------------------------------------------


def _check_standing(live: LiveJob, state: State) -> None:
    """What a job may claim and hold in each state."""
    holds, stopping = live.placement is not None, live.stopping
    _must((live.run_since_s is not None) == (live.state is JobState.RUNNING), live, "its clock is wrong")
    _must(live.reserved == (live.job.id in state.reserved), live, "its reservation is not registered")
    _must(holds or not live.reserved, live, "it has a reservation of nothing")
    _must(stopping is None or live.job.id in state.vacating, live, "it is being stopped but vacates nothing")
    if live.suspended_on is not None:
        _check_suspended_at(live, live.suspended_on, state)
    if live.phase is Phase.SAVING:
        _must(not holds or is_suspended_claim(live.placement or ()), live, "it saves on devices")
    if live.state is JobState.SUSPENDED:
        _must(live.suspended_on is not None, live, "it is suspended nowhere")
        _must(holds or stopping is not None, live, "it keeps no host resources")
    elif live.state in _ON_DEVICES:
        if stopping is None:
            _must(holds and not live.reserved, live, "it holds nothing")
            as_claimed = live.run_milli == live.gpu_milli or live.job.id in state.vacating
            _must(as_claimed, live, f"it runs on {live.run_milli} thousandths, not on what it claims")
        else:
            _must(holds == live.reserved, live, "it is being stopped and still claims devices")
            _must(not holds or stopping is Cause.MOVED, live, "it claims devices that it will not return to")
    else:
        _must(stopping is None, live, "it is being stopped but runs nowhere")
        _must(holds == live.reserved, live, "it claims devices without a reservation")
        _must(live.state is JobState.WAITING or not holds, live, "it claims devices")
    _must(live.lease is None or holds or stopping is not None, live, "it has a lease of nothing")
    _must((live.ended_s is not None) == live.state.is_final, live, "its end does not fit its state")


def _check_phase(live: LiveJob, state: State) -> None:
    """A job's phase is what the rest of its record adds up to, and the state that users see is that of the phase."""
    expected = derived_phase(live, state, saves=live.phase is Phase.SAVING)
    _must(live.phase is expected, live, f"its record is that of a job which is {expected.label}")
    _must(live.state is STATE_BY_PHASE[live.phase], live, "its state is not that of its phase")


def _check_suspended_at(live: LiveJob, former: Placement, state: State) -> None:
    """A suspended job keeps its host resources, or has its devices again; one that is being suspended vacates them."""
    _must(live.state in (JobState.SUSPENDED, JobState.RUNNING), live, "it has a suspended claim and is not suspended")
    if live.state is JobState.RUNNING:
        _must(live.job.id in state.vacating, live, "it is being suspended and vacates nothing")
    if live.stopping is None and live.placement is not None:
        is_back = same_devices(live.placement, former) and live.state is JobState.SUSPENDED
        is_moved = live.job.id in state.vacating and not is_suspended_claim(live.placement)
        _must(
            is_back or is_moved or live.placement == suspended_claim(former),
            live,
            "it claims other devices than its own",
        )
    _must(
        live.placement is None or not live.reserved or not is_suspended_claim(live.placement),
        live,
        "it waits for nothing",
    )


def _check_books(live: LiveJob, state: State) -> None:
    """Amounts that can only grow, and never beyond what there is."""
    now_s, total = state.now_s, live.job.work
    done = live.work_done(now_s)
    _must(done >= 0, live, f"it has done {done} of its work")
    _must(total is None or done <= total + _SLACK * max(total, 1.0), live, f"it has done {done} of {total}")
    _must(live.ran_s >= 0 and live.attained_milli_s >= 0, live, "it has run for a negative time")
    alive_s = (now_s if live.ended_s is None else live.ended_s) - live.submitted_s
    slack_s = _SLACK * max(alive_s, 1.0)
    _must(live.run_s(now_s) <= alive_s + slack_s, live, "it has run for longer than it has lived")
    _must(live.first_start_s is not None or live.ran_s == 0, live, "it ran without ever starting")
    for earlier, later in ((live.submitted_s, live.first_start_s), (live.first_start_s, live.ended_s)):
        _must(earlier is None or later is None or earlier <= later, live, "its times are out of order")
    expected = live.job.gpu_milli if live.placement is None else held_milli(live.placement)
    _must(live.gpu_milli == expected, live, f"it counts {live.gpu_milli} thousandths, not {expected}")


def _check_claim(live: LiveJob, placement: Placement, inventory: Inventory) -> None:
    """A gang is whole, on types that it may use, and a reservation only on nodes that work.

    Only tasks of a single role that have whole devices may be on several types at once.
    """
    fault = fault_in(placement, live.job)
    _must(fault is None, live, fault or "")
    type_by_role: dict[int, str] = {}
    for slot in placement:
        role, account = live.job.roles[slot.role], inventory.nodes[slot.node]
        kind, memory = account.node.device_type, account.node.device_memory_bytes
        if role.device_types:
            _must(kind in role.device_types, live, f"a task of role {role.name!r} is on type {kind!r}")
        is_mixed = type_by_role.setdefault(slot.role, kind) != kind
        may_mix = len(live.job.roles) == 1 and role.device_milli >= WHOLE
        _must(may_mix or not is_mixed, live, f"role {role.name!r} is on two types")
        if memory is not None and slot.devices:
            _must(role.device_memory_bytes <= memory, live, "a device has less memory than a task needs")
        if live.reserved and live.state is not JobState.SUSPENDED:
            _must(
                account.up and not account.drained,
                live,
                f"its reservation is on node {account.node.id}, out of use",
            )


def _check_sequence(state: State) -> None:
    numbers = [live.seq for live in state.jobs.values()]
    if len(set(numbers)) < len(numbers) or any(number >= state.seq for number in numbers):
        raise InvariantBroken(f"jobs' sequence numbers are not unique below {state.seq}: {sorted(numbers)}")


def _check_dependencies(state: State) -> None:
    for live in state.jobs.values():
        unmet = [d for d in live.job.depends_on if state.jobs[d].state is not JobState.SUCCEEDED]
        if live.state.is_final:
            continue
        retries = live.retry_s is not None
        _must(live.unmet == len(unmet) + retries, live, f"it counts {live.unmet} unmet dependencies, not {len(unmet)}")
        for needed in unmet:
            _must(not state.jobs[needed].state.is_final, live, f"job {needed}, which it needs, never succeeds")
            _must(
                any(waiting is live for waiting in state.dependents.get(needed, ())),
                live,
                f"job {needed} does not know that it waits for it",
            )
        _must(not unmet or live.state in (JobState.HELD, JobState.WAITING), live, "it did not wait")
        _must(not unmet or live.placement is None, live, "it claims devices before its dependencies are met")


def _check_registers(state: State) -> None:
    for name, live in state.reserved.items():
        _must(state.jobs.get(name) is live, live, "the reservation is of a job that is not known")
    for name, (live, held) in state.vacating.items():
        _must(state.jobs.get(name) is live, live, "what is vacated belongs to a job that is not known")
        _must(live.state in (*_ON_DEVICES, JobState.SUSPENDED), live, "it vacates devices but is on none")
        _must(bool(held), live, "it vacates nothing")
        _must(live.stopping is not None or live.placement != held, live, "it vacates for no reason")


def _must(holds: bool, live: LiveJob, fault: str) -> None:
    if not holds:
        raise InvariantBroken(
            f"job {live.job.id} ({live.phase.label}, stopping {live.stopping}, placement {live.placement}): {fault}"
        )


# -- devices -------------------------------------------------------------------------------------


def _physical(state: State) -> Iterator[tuple[LiveJob, Placement]]:
    """Where tasks really are: where they were started, until they have answered a stop or a resize.

    Packed tasks that leave are not counted: a neighbour that stays may claim the whole device at once.
    """
    for live in state.jobs.values():
        if live.state not in _ON_DEVICES and live.state is not JobState.SUSPENDED:
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
