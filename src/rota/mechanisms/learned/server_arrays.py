"""Servers as arrays: free resources and present tasks of each, for placing the tasks of a job.

A `ServerArrays` is the cluster as one plan sees it; placing a task updates it for the next task. It counts amounts, not
single devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rota.core.model.job import WHOLE, Job, Role
from rota.core.model.placement import Placement, Slot
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.node_accounts import UNCOUNTED
from rota.mechanisms.network.layout import ALL_NODES, free_on, needs_of, nodes_for
from rota.perf.speed.network import is_server
from rota.perf.speed.shared_servers import kind_of

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
WORKER, SERVER = 0, 1
Chosen = dict[tuple[int, int], int]
"""Tasks by role and node."""


class ServerArrays:
    """Free amounts by node, and tasks by node, role and kind; `talking` are those whose job spans several nodes."""

    __slots__ = (
        "_allowed",
        "_inventory",
        "_kinds",
        "_known",
        "capacity",
        "free",
        "open",
        "talking",
        "tasks",
        "touched",
    )

    def __init__(self, inventory: Inventory, kinds: Sequence[str]) -> None:
        nodes = inventory.nodes
        self._inventory = inventory
        self._known: dict[tuple[Role, int], Bools] = {}
        """Allowed nodes by role and the pool of its device type."""
        self._allowed: dict[Role, Bools] = {}
        self._kinds = {kind: number for number, kind in enumerate(kinds)}
        self.open: Bools = np.array([account.usable for account in nodes], np.bool_)
        self.free: Floats = np.array([free_on(account) for account in nodes], np.float64).reshape(len(nodes), 4)
        self.capacity: Floats = np.array(
            [
                (
                    max(account.node.devices, 1),
                    *(
                        amount or UNCOUNTED
                        for amount in (account.node.cpu_milli, account.node.memory_bytes, account.node.network_bps)
                    ),
                )
                for account in nodes
            ],
            np.float64,
        ).reshape(len(nodes), 4)
        self.tasks: Floats = np.zeros((len(nodes), 2, len(kinds) + 1))
        self.talking: Floats = np.zeros((len(nodes), len(kinds) + 1))
        self.touched: list[int] = []
        """Nodes on which tasks were placed, in order."""

    def kind(self, job: Job) -> int:
        """Return the number of a job's kind; the last number stands for all unknown kinds."""
        return self._kinds.get(kind_of(job) or "", len(self._kinds))

    def populate(self, running: Iterable[LiveJob]) -> None:
        """Add the tasks of running jobs, whose resources are no longer free."""
        for live in running:
            if live.placement is not None:
                self.settle(live.job, counted(live.placement))

    def settle(self, job: Job, chosen: Mapping[tuple[int, int], int]) -> None:
        """Add the tasks of a job without changing free amounts."""
        kind = self.kind(job)
        spans = len({node for _, node in chosen}) > 1
        for (role, node), tasks in chosen.items():
            self.tasks[node, SERVER if is_server(job, role) else WORKER, kind] += tasks
            if spans:
                self.talking[node, kind] += tasks
            self.touched.append(node)

    def add(self, job: Job, chosen: Mapping[tuple[int, int], int]) -> None:
        """Add the tasks of a job and subtract their resources."""
        self.settle(job, chosen)
        for (role, node), tasks in chosen.items():
            self.take(node, job.roles[role], tasks)

    def take(self, node: int, role: Role, tasks: int = 1) -> None:
        """Subtract the resources of tasks; a negative number adds them back."""
        self.free[node] -= tasks * np.array(needs_of(role), np.float64)

    def confine(self, job: Job, offered: Placement) -> None:
        """Restrict the roles of a job to their allowed nodes, on the device types of the offered placement."""
        for slot in offered:
            role, pool = job.roles[slot.role], self._inventory.nodes[slot.node].pool
            if (role, pool) not in self._known:
                allowed = np.zeros(len(self.open), np.bool_)
                allowed[list(nodes_for(self._inventory, role, pool, ALL_NODES))] = True
                self._known[role, pool] = allowed
            self._allowed[role] = self._known[role, pool]

    def fits(self, role: Role) -> Bools:
        """Return the allowed nodes with room for a task of a role, by amounts."""
        return self._allowed.get(role, self.open) & (self.free >= np.array(needs_of(role), np.float64)).all(axis=1)

    def used(self) -> Floats:
        """Return the used fraction of each resource by node."""
        return 1.0 - self.free / self.capacity


def counted(placement: Placement) -> Chosen:
    """Return a placement's tasks by role and node."""
    chosen: Chosen = {}
    for slot in placement:
        chosen[slot.role, slot.node] = chosen.get((slot.role, slot.node), 0) + slot.tasks
    return chosen


def as_placement(inventory: Inventory, job: Job, chosen: Chosen) -> Placement | None:
    """Return devices for the chosen tasks; None if they are not free."""
    slots: list[Slot] = []
    fits = True
    for (role, node), tasks in sorted(chosen.items()):
        mask = inventory.pick_devices(node, tasks * (job.roles[role].device_milli // WHOLE))
        slot = Slot(node, mask, tasks, role)
        fits = fits and inventory.is_free((slot,), job.roles, job.exclusive)
        if not fits:
            break
        inventory.take((slot,), job.roles)
        slots.append(slot)
    for slot in reversed(slots):
        inventory.give((slot,), job.roles)
    return tuple(slots) if fits else None
