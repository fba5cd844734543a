"""Refusals that still hold: a waiting job is tried again only where more became available than when it was refused.

A job that found no devices, free or held by jobs behind it in the order, finds none until a node has room for a task
of it where more became available since. Looking at such nodes costs a few comparisons; trying costs the release of
every job behind it.
"""

from __future__ import annotations

from typing import Final

from rota.core.engine.draft import Draft
from rota.core.engine.preemption_guard import OPEN
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.mechanisms.ordering.index import Index
from rota.mechanisms.ordering.lanes import Holders, Lane, is_beyond, moved
from rota.mechanisms.ordering.needs import Need
from rota.mechanisms.ordering.node_yields import Key, NodeSum, NodeYield

_NEAR = 1e-12
"""Relative difference above which rounding can't decide a comparison."""
_MANY_SHAPES = 16
"""Shapes of jobs from which on looking at nodes costs less than attempts, which release many jobs."""
_MOST_KEPT: Final = 4
"""Refusals that a lane keeps; the earliest, which spare least, are dropped first."""
_BUSY: Final = ReasonCode.DEVICES_BUSY  # compiled, a member of an enum costs a search in its class each time
_FRAGMENTED: Final = ReasonCode.FRAGMENTED
_HOST_BUSY: Final = ReasonCode.HOST_BUSY


def is_refused(lane: Lane, key: Key, index: Index, draft: Draft, *, preempts: bool) -> bool:
    """Whether it is certain, without an attempt, that the first job of a lane finds no devices.

    Either it or a job like it before it in order found none, and no node where more became available has room for a
    task; or it has a single task, and no node at all has.
    """
    if not index.looks_at_nodes:
        return False
    inventory = draft.inventory
    stored, live = lane.head
    need = need_of(lane, live)
    nodes = need.nodes(inventory)
    index.log_growth(inventory)
    refused, roomless = _latest(lane.refusals, stored), _latest(lane.roomless, stored)
    if refused < 0 and (
        not preempts or need.role.count > 1 or draft.guard is not OPEN or not may_keep(live, index, draft)
    ):
        return False
    if inventory.locked:  # what an exclusive job leaves is not counted
        asked = need.allowed if refused < 0 else need.allowed & index.growth.since(lane.refusals[0][1])
        if inventory.locked & asked:
            return False
    if refused >= 0 or roomless >= 0:
        nodes &= index.growth.since(max(refused, roomless))
    if nodes and _any_room(nodes, need, key, index, draft, preempts and live.job.preempts):
        return False
    if refused < 0:
        refuse(lane, index, None)
    elif nodes:
        _keep(lane.refusals, 1, stored, index.growth.count)
    if nodes and roomless >= refused:
        _keep(lane.roomless, 0, stored, index.growth.count)
    return True


def looks_at_nodes(index: Index) -> bool:
    """Whether jobs are refused after a look at nodes."""
    return not index.drifts and len(index.lanes) >= _MANY_SHAPES


def need_of(lane: Lane, live: LiveJob) -> Need:
    """What a task of a lane's first job needs."""
    need = lane.need
    if need is not None and lane.is_uniform:
        return need
    role = live.job.roles[0]
    if need is None or (need.role is not role and need.role != role):
        need = lane.need = Need(role)
    return need


def _latest(found: list[tuple[Key, int]], key: Key) -> int:
    """When the same was last found for this key or one before it; -1 if it was not."""
    for before, at in reversed(found):
        if before is key or before <= key:
            return at
    return -1


def may_keep(live: LiveJob, index: Index, draft: Draft) -> bool:
    """Whether a refusal of a job may be kept."""
    return index.keeps_refusals and draft.allocator.keeps_refusal(live.job)


def _any_room(nodes: int, need: Need, key: Key, index: Index, draft: Draft, preempts: bool) -> bool:
    """Whether a task fits on one of the nodes once all jobs behind a key have left it."""
    holders, inventory, now_s = index.holders, draft.inventory, draft.now_s
    while nodes:
        low = nodes & -nodes
        nodes ^= low
        if has_room(low.bit_length() - 1, need, key, holders, inventory, now_s, preempts):
            return True
    return False


def same_answer(lane: Lane, draft: Draft) -> Reason | None:
    """The reason of a job that is still refused; None if it is already recorded."""
    live = lane.head[1]
    short = is_short(lane, live, draft)
    if is_recorded(lane, live, is_short=short):
        return None
    reason = draft.reason(live)
    if not short:
        lane.refused_code = reason.code
    return reason


def is_recorded(lane: Lane, live: LiveJob, *, is_short: bool) -> bool:
    """Whether the reason of the first job of a lane, which is still refused, is the one that was journaled last."""
    code = live.wait_code
    if is_short:
        return code is _BUSY
    if code is None or code is not lane.refused_code:
        return False
    return lane.is_scattered is (code is _FRAGMENTED or code is _HOST_BUSY)


def is_short(lane: Lane, live: LiveJob, draft: Draft) -> bool:
    """Whether the first job of a lane is short of devices by count."""
    is_counted = lane.is_counted if lane.is_uniform else None
    if is_counted is None:
        job = live.job
        is_counted = not draft.allocator.has_guarantees and job.elastic is None and len(job.roles) == 1
        lane.is_counted = is_counted
    if is_counted:
        return need_of(lane, live).is_short(draft.inventory)
    return draft.allocator.shortage.milli(live, draft.inventory) > 0


def refuse(lane: Lane, index: Index, code: ReasonCode | None) -> None:
    """Record that the first job of a lane found no devices, and why where their number would suffice."""
    lane.refused_code = code
    lane.refusals.clear()
    lane.refusals.append((lane.head[0], index.walk_from))


def _keep(found: list[tuple[Key, int]], first: int, key: Key, at: int) -> None:
    """Record that no room was found with a key; what was found for later keys, from `first` on, is superfluous then."""
    if len(found) > first and found[-1][0] is key:  # the same job as at the last look
        found[-1] = (key, at)
        return
    while len(found) > first and found[-1][0] >= key:
        found.pop()
    found.append((key, at))
    if len(found) > _MOST_KEPT:
        del found[first]


def has_room(
    node: int, need: Need, key: Key, holders: Holders, inventory: Inventory, now_s: float, preempts: bool
) -> bool:
    """Whether a task fits on a node once all jobs behind a key have left it."""
    account = inventory.nodes[node]
    left: NodeSum | None = None
    if preempts:
        for given in holders.yields(node):
            count = _count_behind(given, now_s, key)
            if not count:
                continue
            more = given.given(count)
            if left is None:
                left = more
            else:
                both = NodeSum()
                both.merge(left)
                both.merge(more)
                left = both
    return (holders.nothing(node) if left is None else left).has_room(need, account)


def _count_behind(given: NodeYield, now_s: float, key: Key) -> int:
    """How many holders of a node, the last in order first, come after a key.

    Where rounding decides, they need not be the last in order: all up to the last that comes after it count, so that
    no job is refused that might find room.
    """
    slope = given.slope
    if not slope:
        return given.count_after(key)
    keys = given.keys
    count = 0
    for at in range(len(keys) - 1, -1, -1):
        stored = keys[at]
        if _is_behind(stored, slope, now_s, key):
            count = len(keys) - at
        elif stored[0] + slope * now_s < key[0] - _NEAR * (abs(stored[0]) + abs(slope) * now_s):
            break
    return count


def _is_behind(stored: Key, slope: float, now_s: float, key: Key) -> bool:
    """Whether a holder's key, as at time 0, comes after another by now; the first numbers decide where they can."""
    apart = stored[0] + slope * now_s - key[0]
    if abs(apart) > _NEAR * (abs(stored[0]) + abs(slope) * now_s):
        return apart > 0
    return is_beyond(moved(stored, slope, now_s), slope, now_s, key)
