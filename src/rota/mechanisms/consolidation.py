"""Consolidation: jobs are moved together so that whole nodes and whole devices become free.

A node is emptied only if every job on it fits on nodes that are no emptier; a device with fractions only if each of
them fits on other such devices. Each step leaves fewer occupied nodes, or as many and fewer devices with fractions, so
that repeated steps end in a stable state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rota.core.engine.draft import Draft
from rota.core.engine.protocols import Capabilities, Changes, Policy
from rota.core.errors import RotaError
from rota.core.messages.reasons import Reason
from rota.core.model.job import WHOLE, JobState
from rota.core.model.placement import Placement, Slot, device_indexes
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.mechanisms.colocation.groups import devices_of, may_share
from rota.mechanisms.constrained_job import on_node

Targets = list[tuple[LiveJob, Placement]]


def consolidate(draft: Draft, holders: Iterable[LiveJob], *, parts: bool = True) -> int:
    """Consolidate jobs as far as the devices that are free now allow; return how many were moved.

    Without `parts`, jobs that requested fractions of devices stay where they are.
    """
    occupants = _NodeOccupants(draft, holders, parts=parts)
    while occupants.empty_a_node():
        pass
    while occupants.empty_a_device():
        pass
    return occupants.moved


class _NodeOccupants:
    """Jobs by node, and which of them can be moved."""

    def __init__(self, draft: Draft, holders: Iterable[LiveJob], *, parts: bool) -> None:
        self._draft = draft
        self._by_node: dict[int, dict[LiveJob, None]] = {}
        self._where: dict[LiveJob, int] = {}
        self._fixed: set[int] = set()
        """Nodes with a job that can't be moved."""
        self._suspended: dict[int, int] = {}
        """By node, the devices of suspended jobs; no job is moved to these."""
        self._moved: dict[LiveJob, None] = {}
        for live in holders:
            if live.placement is None or live.state is JobState.WAITING:
                continue
            for slot in live.suspended_on or ():
                self._suspended[slot.node] = self._suspended.get(slot.node, 0) | slot.devices
            if is_movable(live) and (parts or not live.job.roles[0].is_fraction) and draft.may_preempt(live):
                self._put(live, live.placement[0].node)
            else:
                self._fixed.update(slot.node for slot in (live.suspended_on or live.placement))

    @property
    def moved(self) -> int:
        """How many jobs were moved."""
        return len(self._moved)

    def empty_a_node(self) -> bool:
        """Empty the emptiest node that can be emptied."""
        nodes = self._draft.inventory.nodes
        able = [node for node, jobs in self._by_node.items() if jobs and node not in self._fixed and nodes[node].usable]
        for source in sorted(able, key=lambda node: (-_room_milli(self._draft.inventory, node), node)):
            if self._move_all(list(self._by_node[source]), source):
                return True
        return False

    def empty_a_device(self) -> bool:
        """Empty the least allocated device that can be emptied."""
        by_device: dict[tuple[int, int], list[LiveJob]] = {}
        for live, node in self._where.items():
            if live.job.roles[0].is_fraction and live.placement is not None:
                by_device.setdefault((node, live.placement[0].devices), []).append(live)
        accounts = self._draft.inventory.nodes
        left = {
            at: accounts[at[0]].shares[device_indexes(at[1])[0]][0]
            for at in by_device
            if _holds_all(by_device[at], at, accounts)
        }
        for at in sorted(left, key=lambda at: (-left[at], at)):
            if self._move_all(by_device[at], at[0], device=at[1]):
                return True
        return False

    def _move_all(self, jobs: list[LiveJob], source: int, device: int = 0) -> bool:
        """Move all jobs, the largest first, or none."""
        mark = self._draft.mark()
        targets: Targets = []
        for live in sorted(jobs, key=lambda live: (-live.gpu_milli, live.seq)):
            there = self._target(live, source, device)
            if there is None:
                self._draft.undo(mark)
                return False
            self._draft.move(live, there)
            targets.append((live, there))
        for live, there in targets:
            self._put(live, there[0].node)
            self._moved[live] = None
        return True

    def _put(self, live: LiveJob, node: int) -> None:
        before = self._where.get(live)
        if before is not None:
            del self._by_node[before][live]
        self._where[live] = node
        self._by_node.setdefault(node, {})[live] = None

    def _target(self, live: LiveJob, source: int, device: int) -> Placement | None:
        """The tightest placement on another occupied node that is no emptier; a fraction goes to a shared device."""
        inventory = self._draft.inventory
        if live.job.roles[0].is_fraction:
            return self._part(live, source, device)
        room = _room_milli(inventory, source)
        kind = inventory.nodes[source].pool
        able = [
            node
            for node, account in enumerate(inventory.nodes)
            if node != source
            and account.users
            and account.pool == kind
            and account.free
            and _fuller(inventory, node, room)
        ]
        for node in sorted(able, key=lambda node: (inventory.nodes[node].free, node)):
            there = on_node(inventory, live.job, node)
            if there is not None and not self._is_suspended_on(node, there[0].devices):
                return there
        return None

    def _is_suspended_on(self, node: int, devices: int) -> bool:
        """Whether a suspended job will resume on one of these devices."""
        return bool(self._suspended.get(node, 0) & devices)

    def _part(self, live: LiveJob, source: int, device: int) -> Placement | None:
        """A fraction of a device that is already shared, other than this device, or than any of this node."""
        inventory, job = self._draft.inventory, live.job
        need = job.roles[0].device_milli
        for left, node, other in inventory.pools[inventory.nodes[source].pool].partial:
            if left < need or (node == source and (not device or device >> other & 1)):
                continue
            there = (Slot(node, 1 << other, 1, 0, need),)
            if not self._is_suspended_on(node, 1 << other) and inventory.is_free(there, job.roles):
                return there
        return None


def is_movable(live: LiveJob) -> bool:
    """Whether a job runs on one node and shares what it holds with no other: whole devices, or its fraction."""
    if not live.is_settled or not may_share(live.job) or live.lease is not None or live.placement is None:
        return False
    (slot, *others) = live.placement
    role = live.job.roles[0]
    return (
        not others
        and not slot.in_turn
        and slot.milli == min(role.device_milli, WHOLE)
        and bool(devices_of(live.placement))
    )


def _room_milli(inventory: Inventory, node: int) -> int:
    """Thousandths of devices that are free."""
    account = inventory.nodes[node]
    return account.free * WHOLE + sum(left for left, _ in account.shares.values())


def _fuller(inventory: Inventory, node: int, room: int) -> bool:
    return _room_milli(inventory, node) <= room


def _holds_all(jobs: list[LiveJob], at: tuple[int, int], accounts: Any) -> bool:
    """Whether these jobs hold all allocated fractions of a device."""
    left = accounts[at[0]].shares.get(device_indexes(at[1])[0])
    return left is not None and left[0] + sum(live.gpu_milli for live in jobs) == WHOLE


class Consolidating:
    """A policy with consolidation: jobs are moved when something has changed and the policy plans nothing."""

    def __init__(self, policy: Policy, every_s: float) -> None:
        self._policy = policy
        self._every_s = every_s
        self._holders: dict[LiveJob, None] = {}
        self._stale = False
        self._blocked = False
        """Whether consolidation waits for the driver to answer."""
        self._due_s = -math.inf

    @property
    def capabilities(self) -> Capabilities:
        """Those of the policy inside."""
        return self._policy.capabilities

    @property
    def inner(self) -> Policy:
        """The policy that is consolidated."""
        return self._policy

    @property
    def wakeup_s(self) -> float:
        """When the policy wants to plan, or when consolidation may."""
        return min(self._policy.wakeup_s, self._due_s if self._stale and not self._blocked else math.inf)

    @property
    def memory(self) -> Any:
        """What the policy remembers, and when jobs may be moved next."""
        due_s = None if self._due_s == -math.inf else self._due_s
        return {"policy": "consolidating", "due_s": due_s, "stale": self._stale, "of": self._policy.memory}

    def adopt(self, state: State) -> None:
        """Rebuild from a state."""
        memory = state.memory
        self._holders = {live: None for live in state.jobs.values() if live.placement is not None}
        self._stale = bool(self._holders)
        if isinstance(memory, dict) and memory.get("policy") == "consolidating":
            self._due_s = -math.inf if memory["due_s"] is None else memory["due_s"]
            self._stale = memory["stale"]
            state.memory = memory["of"]
        self._policy.adopt(state)
        state.memory = memory

    def note(self, changes: Changes, now_s: float) -> None:
        """Pass changes on, and keep track of the holders of devices."""
        for live in (*changes.left, *changes.arrived):
            self._holders.pop(live, None)
        for live in changes.started:
            self._holders[live] = None
        if changes.left or changes.freed or changes.started:
            self._stale = True
        self._blocked = False
        self._policy.note(changes, now_s)

    def plan(self, draft: Draft) -> None:
        """Let the policy plan; where it changes nothing, consolidate."""
        self._policy.plan(draft)
        if not self._stale or draft.now_s < self._due_s:
            return
        is_busy = any(map(draft.alters, draft.touched))
        if is_busy or not all(live.placement is None or is_calm(live) for live in self._holders):
            self._blocked = True
            return
        self._stale = False
        if not consolidate(draft, self._holders, parts=self._policy.capabilities.moves_parts):
            self._due_s = draft.now_s + self._every_s

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """The policy's reason."""
        return self._policy.explain(waiting, draft)


def is_calm(live: LiveJob) -> bool:
    """Whether no decision about a job is unanswered."""
    return live.is_settled or live.is_suspended


def read_every_s(options: str, owner: str) -> tuple[str, float | None]:
    """A policy's options without `consolidate_s`, and the value of that; None if it is not given."""
    kept, every_s = [], None
    for option in options.split(","):
        key, _, text = option.partition("=")
        if key.strip() != "consolidate_s":
            kept.append(option)
            continue
        try:
            every_s = float(text)
        except ValueError:
            every_s = math.nan
        if not 0 < every_s < math.inf:
            raise RotaError(f"{owner}: consolidate_s is {text!r}; it must be a number of seconds above 0")
    return ",".join(kept), every_s
