"""Consolidation: jobs are moved together so that whole nodes and whole devices become free.

A node is emptied only if every job on it has a new home on nodes that are fuller; a device that is held in part only if
every part has one on other such devices. Each step leaves fewer nodes in use, or as many and fewer devices in part; so
that steps which follow each other come to a state in which there is nothing left to do, and it stays.
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

Homes = list[tuple[LiveJob, Placement]]


def consolidate(draft: Draft, holders: Iterable[LiveJob], *, parts: bool = True) -> int:
    """Move jobs together as far as it goes with devices that are free now; how many were moved.

    Without `parts`, those that asked for parts of devices stay where they are.
    """
    crowd = _NodeOccupants(draft, holders, parts=parts)
    while crowd.empty_a_node():
        pass
    while crowd.empty_a_device():
        pass
    return crowd.moved


class _NodeOccupants:
    """Who is where, and who of them can be moved."""

    def __init__(self, draft: Draft, holders: Iterable[LiveJob], *, parts: bool) -> None:
        self._draft = draft
        self._by_node: dict[int, dict[LiveJob, None]] = {}
        self._where: dict[LiveJob, int] = {}
        self._fixed: set[int] = set()
        """Nodes on which somebody has to stay."""
        self._resting: dict[int, int] = {}
        """By node the devices on which suspended jobs rest, to which nobody is moved."""
        self._moved: dict[LiveJob, None] = {}
        for live in holders:
            if live.placement is None or live.state is JobState.WAITING:
                continue
            for slot in live.suspended_on or ():
                self._resting[slot.node] = self._resting.get(slot.node, 0) | slot.devices
            if is_movable(live) and (parts or not live.job.roles[0].is_fraction):
                self._put(live, live.placement[0].node)
            else:
                self._fixed.update(slot.node for slot in (live.suspended_on or live.placement))

    @property
    def moved(self) -> int:
        """How many jobs were moved."""
        return len(self._moved)

    def empty_a_node(self) -> bool:
        """Empty the node with most room of those where it can be done."""
        nodes = self._draft.inventory.nodes
        able = [node for node, jobs in self._by_node.items() if jobs and node not in self._fixed and nodes[node].usable]
        for source in sorted(able, key=lambda node: (-_room_milli(self._draft.inventory, node), node)):
            if self._rehouse(list(self._by_node[source]), source):
                return True
        return False

    def empty_a_device(self) -> bool:
        """Empty the device of which least is held, of those where it can be done."""
        by_device: dict[tuple[int, int], list[LiveJob]] = {}
        for live, node in self._where.items():
            if live.job.roles[0].is_fraction and live.placement is not None:
                by_device.setdefault((node, live.placement[0].devices), []).append(live)
        books = self._draft.inventory.nodes
        left = {
            at: books[at[0]].shares[device_indexes(at[1])[0]][0]
            for at in by_device
            if _holds_all(by_device[at], at, books)
        }
        for at in sorted(left, key=lambda at: (-left[at], at)):
            if self._rehouse(by_device[at], at[0], device=at[1]):
                return True
        return False

    def _rehouse(self, jobs: list[LiveJob], source: int, device: int = 0) -> bool:
        """A new home for each, the largest first, or for none."""
        mark = self._draft.mark()
        homes: Homes = []
        for live in sorted(jobs, key=lambda live: (-live.gpu_milli, live.seq)):
            there = self._home(live, source, device)
            if there is None:
                self._draft.undo(mark)
                return False
            self._draft.move(live, there)
            homes.append((live, there))
        for live, there in homes:
            self._put(live, there[0].node)
            self._moved[live] = None
        return True

    def _put(self, live: LiveJob, node: int) -> None:
        before = self._where.get(live)
        if before is not None:
            del self._by_node[before][live]
        self._where[live] = node
        self._by_node.setdefault(node, {})[live] = None

    def _home(self, live: LiveJob, source: int, device: int) -> Placement | None:
        """The tightest place on another node that is in use and no emptier; for parts, on a device held in part."""
        inventory = self._draft.inventory
        if live.job.roles[0].is_fraction:
            return self._part(live, source, device)
        room = _room_milli(inventory, source)
        kind = inventory.nodes[source].pool
        able = [
            node
            for node, books in enumerate(inventory.nodes)
            if node != source and books.users and books.pool == kind and books.free and _fuller(inventory, node, room)
        ]
        for node in sorted(able, key=lambda node: (inventory.nodes[node].free, node)):
            there = on_node(inventory, live.job, node)
            if there is not None and not self._is_rest(node, there[0].devices):
                return there
        return None

    def _is_rest(self, node: int, devices: int) -> bool:
        """Whether a suspended job rests on one of these devices."""
        return bool(self._resting.get(node, 0) & devices)

    def _part(self, live: LiveJob, source: int, device: int) -> Placement | None:
        """A part of a device that others have parts of: elsewhere than on this device, or than on this node."""
        inventory, job = self._draft.inventory, live.job
        need = job.roles[0].device_milli
        for left, node, other in inventory.pools[inventory.nodes[source].pool].partial:
            if left < need or (node == source and (not device or device >> other & 1)):
                continue
            there = (Slot(node, 1 << other, 1, 0, need),)
            if not self._is_rest(node, 1 << other) and inventory.is_free(there, job.roles):
                return there
        return None


def is_movable(live: LiveJob) -> bool:
    """Whether a job runs on one node and has what it holds to itself: whole devices, or a part that is its own."""
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
    """Thousandths of devices that nobody holds."""
    books = inventory.nodes[node]
    return books.free * WHOLE + sum(left for left, _ in books.shares.values())


def _fuller(inventory: Inventory, node: int, room: int) -> bool:
    return _room_milli(inventory, node) <= room


def _holds_all(jobs: list[LiveJob], at: tuple[int, int], books: Any) -> bool:
    """Whether these are all that hold parts of a device."""
    left = books[at[0]].shares.get(device_indexes(at[1])[0])
    return left is not None and left[0] + sum(live.gpu_milli for live in jobs) == WHOLE


class Consolidating:
    """Any policy, and consolidation every so often when something has changed and nothing else is to do."""

    def __init__(self, policy: Policy, every_s: float) -> None:
        self._policy = policy
        self._every_s = every_s
        self._holders: dict[LiveJob, None] = {}
        self._stale = False
        self._blocked = False
        """Whether it has to wait for answers to orders."""
        self._due_s = -math.inf

    @property
    def capabilities(self) -> Capabilities:
        """Those of the policy inside."""
        return self._policy.capabilities

    @property
    def inner(self) -> Policy:
        """The policy that comes first."""
        return self._policy

    @property
    def wakeup_s(self) -> float:
        """When the policy wants to be asked, or when jobs may be moved together."""
        return min(self._policy.wakeup_s, self._due_s if self._stale and not self._blocked else math.inf)

    @property
    def memory(self) -> Any:
        """What the policy remembers, and when jobs may be moved next."""
        due_s = None if self._due_s == -math.inf else self._due_s
        return {"policy": "consolidating", "due_s": due_s, "stale": self._stale, "of": self._policy.memory}

    def adopt(self, state: State) -> None:
        """Index a state anew."""
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
        """Tell the policy; remember who holds devices."""
        for live in (*changes.left, *changes.arrived):
            self._holders.pop(live, None)
        for live in changes.started:
            self._holders[live] = None
        if changes.left or changes.freed or changes.started:
            self._stale = True
        self._blocked = False
        self._policy.note(changes, now_s)

    def plan(self, draft: Draft) -> None:
        """What the policy wants comes first; where it wants nothing, jobs are moved together."""
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
        """The policy's word."""
        return self._policy.explain(waiting, draft)


def is_calm(live: LiveJob) -> bool:
    """Whether no order for a job is on its way."""
    return live.is_settled or live.is_suspended


def read_every_s(options: str, owner: str) -> tuple[str, float | None]:
    """A policy's options without `consolidate_s`, and that."""
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
