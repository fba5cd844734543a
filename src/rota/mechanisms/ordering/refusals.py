"""Refusals that still hold: a waiting job is tried again only where more became available than when it was refused.

A job that found no devices, free or held by jobs behind it in the order, finds none until a node has room for a task
of it where more became available since. Looking at such nodes costs a few comparisons; trying costs the release of
every job behind it.
"""

from __future__ import annotations

from rota.core.engine.draft import Draft
from rota.core.engine.preemption_guard import OPEN
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import WHOLE, Role
from rota.core.model.placement import Placement
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.node_accounts import NodeAccount
from rota.mechanisms.ordering.index import Index
from rota.mechanisms.ordering.lanes import Lane, is_beyond, moved
from rota.mechanisms.ordering.node_yields import Key, NodeYield

_NEAR = 1e-12
"""Relative difference above which rounding can't decide a comparison."""
_MANY_SHAPES = 16
"""Shapes of jobs from which on looking at nodes costs less than attempts, which release many jobs."""
_SCATTERED = (ReasonCode.FRAGMENTED, ReasonCode.HOST_BUSY)


def is_refused(lane: Lane, key: Key, index: Index, draft: Draft, *, preempts: bool) -> bool:
    """Whether it is certain, without an attempt, that the first job of a lane finds no devices.

    Either it or a job like it before it in order found none, and no node where more became available has room for a
    task; or it has a single task, and no node at all has.
    """
    refused = lane.refused_key
    if index.drifts or len(index.lanes) < _MANY_SHAPES:
        return False
    inventory = draft.inventory
    live = lane.head[1]
    role = live.job.roles[0]
    nodes = inventory.matching(role)
    is_known = refused is not None and lane.head[0] >= refused
    if is_known:
        nodes &= lane.grown | inventory.grown
        if not nodes:
            return True
    elif not preempts or role.count > 1 or draft.guard is not OPEN or not may_keep(live, index, draft):
        return False
    if not _any_room(nodes, key, live, index, draft, preempts=preempts and live.job.preempts):
        if not is_known:
            refuse(lane, None)
        return True
    return False


def may_keep(live: LiveJob, index: Index, draft: Draft) -> bool:
    """Whether a refusal of a job may be kept."""
    return index.keeps_refusals and draft.allocator.keeps_refusal(live.job)


def _any_room(nodes: int, key: Key, live: LiveJob, index: Index, draft: Draft, *, preempts: bool) -> bool:
    """Whether a task of a job fits on one of the nodes once all jobs behind its key have left it."""
    inventory = draft.inventory
    role = live.job.roles[0]
    allowed = 0
    for pool in inventory.eligible(role):
        allowed |= pool.nodes
    nodes &= allowed
    while nodes:
        low = nodes & -nodes
        nodes ^= low
        if _has_room(low.bit_length() - 1, role, key, index, inventory, draft.now_s, preempts):
            return True
    return False


def same_answer(lane: Lane, draft: Draft) -> Placement | Reason | None:
    """The reason of a job that is still refused; None if it is already recorded."""
    live = lane.head[1]
    if draft.allocator.shortage.milli(live, draft.inventory):
        return None if live.wait_code is ReasonCode.DEVICES_BUSY else draft.offer(live)
    code = live.wait_code
    if code is not None and code is lane.refused_code and lane.is_scattered is (code in _SCATTERED):
        return None
    answer = draft.offer(live)
    if isinstance(answer, Reason):
        lane.refused_code = answer.code
    return answer


def refuse(lane: Lane, code: ReasonCode | None) -> None:
    """Record that the first job of a lane found no devices, and why where their number would suffice."""
    lane.refused_key = lane.head[0]
    lane.refused_code = code
    lane.grown = 0


def _has_room(
    node: int, role: Role, key: Key, index: Index, inventory: Inventory, now_s: float, preempts: bool
) -> bool:
    """Whether a task fits on a node once all jobs behind a key have left it."""
    account = inventory.nodes[node]
    if account.locked:
        return True
    if not account.usable or role.device_milli > account.node.devices * WHOLE:
        return False
    cpu_milli, memory_bytes = account.cpu_milli, account.memory_bytes
    network_bps, disk_bps = account.network_bps, account.disk_bps
    free_mask = account.free_mask
    shares: dict[int, int] = {}
    if preempts:
        for given in index.holders.yields(node):
            count = _count_behind(given, now_s, key)
            if not count:
                continue
            cpu_milli += given.cpu_milli[count]
            memory_bytes += given.memory_bytes[count]
            network_bps += given.network_bps[count]
            disk_bps += given.disk_bps[count]
            free_mask |= given.devices[count]
            back = given.shares[count]
            shares = back if not shares else _sum(shares, back)
    if (
        cpu_milli < role.cpu_milli
        or memory_bytes < role.memory_bytes
        or network_bps < role.network_bps
        or disk_bps < role.disk_bps
    ):
        return False
    return _has_devices(account, free_mask, shares, role.device_milli)


def _sum(these: dict[int, int], those: dict[int, int]) -> dict[int, int]:
    """Thousandths of devices of two sources together."""
    return {device: these.get(device, 0) + those.get(device, 0) for device in {**these, **those}}


def _count_behind(given: NodeYield, now_s: float, key: Key) -> int:
    """How many holders of a node, the last in order first, come after a key.

    Where rounding decides, they need not be the last in order: all up to the last that comes after it count, so that
    no job is refused that might find room.
    """
    keys, slope = given.keys, given.slope
    count = 0
    for at, stored in enumerate(keys):
        if _is_behind(stored, slope, now_s, key):
            count = at + 1
        elif not slope or stored[0] + slope * now_s < key[0] - _NEAR * (abs(stored[0]) + abs(slope) * now_s):
            break
    return count


def _is_behind(stored: Key, slope: float, now_s: float, key: Key) -> bool:
    """Whether a holder's key, as at time 0, comes after another by now; the first numbers decide where they can."""
    if not slope:
        return stored > key
    apart = stored[0] + slope * now_s - key[0]
    if abs(apart) > _NEAR * (abs(stored[0]) + abs(slope) * now_s):
        return apart > 0
    return is_beyond(moved(stored, slope, now_s), slope, now_s, key)


def _has_devices(account: NodeAccount, free_mask: int, shares: dict[int, int], need_milli: int) -> bool:
    """Whether a node has the devices of a task; `shares` is what fractional holders would give back by device."""
    if not need_milli:
        return True
    whole = free_mask.bit_count()
    if need_milli <= whole * WHOLE:
        return True
    for device, (milli, _) in account.shares.items():
        left = milli + shares.get(device, 0)
        if left >= WHOLE:
            whole += 1
        elif left >= need_milli:
            return True
    return need_milli <= whole * WHOLE
