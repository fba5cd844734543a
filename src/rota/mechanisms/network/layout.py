"""Layouts of a batch of jobs over nodes that minimise network cost (Gu et al., TPDS 2022).

A `PlacementBatch` holds the tasks to place and the nodes they may use, a `BatchLayout` one assignment of tasks to
nodes. Both count amounts for each node, not single devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from rota.core.model.job import WHOLE, Job, Role
from rota.core.model.placement import Placement, Slot
from rota.core.state.inventory import Inventory
from rota.core.state.node_accounts import NodeAccount
from rota.perf.speed.network import Counts, Distances, cost_of, is_server, traffic

Amounts = tuple[int, int, int, int]
"""Devices, CPU thousandths, bytes of memory, bits per second."""
UNASSIGNED = -1
ALL_NODES = -1
"""The set of all nodes, as a bit mask."""
MAX_CELLS = 4
"""Number of racks, or domains, in which a whole job is tried."""


class Opening(Enum):
    """Tie-break among the nodes with the lowest network cost for the next task."""

    PUBLISHED = "published"
    """Workers to the fullest nodes, servers to the emptiest: as Liquid does, without regard to later tasks."""
    ROOMY = "roomy"
    """To the emptiest nodes."""
    SNUG = "snug"
    """To the fullest node that holds the rest of the job, else to the emptiest one."""


@dataclass(frozen=True, slots=True)
class BatchTask:
    """One task of a batch: its job, what it requests and the nodes it may use."""

    job: int
    role: int
    serves: bool
    needs: Amounts
    nodes: tuple[int, ...]


def needs_of(role: Role) -> Amounts:
    """Return what a task of a role takes from its node, in whole devices."""
    return (role.device_milli // WHOLE, role.cpu_milli, role.memory_bytes, role.network_bps)


def free_on(account: NodeAccount) -> Amounts:
    """Return what a node has free."""
    return (account.free, account.cpu_milli, account.memory_bytes, account.network_bps)


def nodes_for(inventory: Inventory, role: Role, pool: int, among: int) -> tuple[int, ...]:
    """Return the nodes of a pool, within a set, that a role may use regardless of what is free."""
    allowed = inventory.pools[pool].nodes & inventory.matching(role) & among
    found = []
    for node, account in enumerate(inventory.nodes):
        memory = account.node.device_memory_bytes
        if allowed >> node & 1 and account.usable and (memory is None or memory >= role.device_memory_bytes):
            found.append(node)
    return tuple(found)


def interleaved(jobs: Sequence[Job], nodes: Sequence[Sequence[tuple[int, ...]]]) -> tuple[BatchTask, ...]:
    """Return the tasks job by job, cycling through the roles of each job; `nodes` is indexed by job and role."""
    tasks = []
    for index, job in enumerate(jobs):
        left = [role.count for role in job.roles]
        while any(left):
            for role, of_role in enumerate(job.roles):
                if left[role]:
                    left[role] -= 1
                    tasks.append(
                        BatchTask(index, role, is_server(job, role), needs_of(of_role), tuple(nodes[index][role]))
                    )
    return tuple(tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementBatch:
    """The tasks to place, the free resources and the distances between nodes."""

    jobs: Sequence[Job]
    tasks: Sequence[BatchTask]
    free: Sequence[Amounts]
    devices: Sequence[int]
    """Devices of each node, free or not."""
    distances: Distances
    by_job: Sequence[Sequence[int]] = field(init=False)
    """The task numbers of each job."""
    traffic: Sequence[float] = field(init=False)
    """The traffic of one task of each job."""
    is_served: Sequence[bool] = field(init=False)
    """Whether each job has parameter servers."""

    def __post_init__(self) -> None:
        by_job: list[list[int]] = [[] for _ in self.jobs]
        for number, task in enumerate(self.tasks):
            by_job[task.job].append(number)
        object.__setattr__(self, "by_job", by_job)
        object.__setattr__(self, "traffic", [traffic(job) for job in self.jobs])
        object.__setattr__(self, "is_served", [any(self.tasks[number].serves for number in of) for of in by_job])


class BatchLayout:
    """Assignment of the tasks of a batch to nodes; tasks may be unassigned."""

    __slots__ = ("_cost", "_free", "_others", "_servers", "batch", "where")

    def __init__(self, batch: PlacementBatch) -> None:
        self.batch = batch
        self.where = [UNASSIGNED] * len(batch.tasks)
        self._free = list(batch.free)
        self._servers: list[Counts] = [{} for _ in batch.jobs]
        self._others: list[Counts] = [{} for _ in batch.jobs]
        self._cost: list[float | None] = [0.0] * len(batch.jobs)

    def copy(self) -> BatchLayout:
        """Return an independent copy."""
        other = BatchLayout.__new__(BatchLayout)
        other.batch = self.batch
        other.where = self.where.copy()
        other._free = self._free.copy()
        other._servers = self._servers.copy()
        other._others = self._others.copy()
        other._cost = self._cost.copy()
        return other

    @property
    def network_cost(self) -> float:
        """The network cost of all jobs."""
        return sum(map(self.cost_of_job, range(len(self._cost))))

    def cost_of_job(self, job: int) -> float:
        """Return the network cost of the assigned tasks of one job."""
        known = self._cost[job]
        if known is None:
            known = cost_of(self.batch.jobs[job], self._servers[job], self._others[job], self.batch.distances)
            self._cost[job] = known
        return known

    @property
    def score(self) -> float:
        """The objective of a search: network cost plus the number of distinct nodes per task."""
        return self.network_cost + len(set(self.where)) / len(self.where)

    def fits(self, number: int, node: int) -> bool:
        """Return whether a node has room for a task."""
        free, needs = self._free[node], self.batch.tasks[number].needs
        return free[0] >= needs[0] and free[1] >= needs[1] and free[2] >= needs[2] and free[3] >= needs[3]

    def assign(self, number: int, node: int) -> None:
        """Assign an unassigned task."""
        self.where[number] = node
        self._account(number, node, 1)

    def unassign(self, number: int) -> None:
        """Unassign a task."""
        self._account(number, self.where[number], -1)
        self.where[number] = UNASSIGNED

    def _account(self, number: int, node: int, by: int) -> None:
        task = self.batch.tasks[number]
        free, needs = self._free[node], task.needs
        self._free[node] = (
            free[0] - by * needs[0],
            free[1] - by * needs[1],
            free[2] - by * needs[2],
            free[3] - by * needs[3],
        )
        parts = self._servers if task.serves else self._others
        counts = dict(parts[task.job])
        counts[node] = counts.get(node, 0) + by
        if not counts[node]:
            del counts[node]
        parts[task.job] = counts
        self._cost[task.job] = None

    def best_node(
        self,
        number: int,
        opening: Opening = Opening.PUBLISHED,
        *,
        avoid: int = UNASSIGNED,
        among: int = ALL_NODES,
        left: int = 0,
    ) -> int:
        """Return the node where a task adds least network cost; ties by the load that the opening prefers.

        Only the nodes in `among` are considered; `left` is the number of devices its job still needs.
        """
        batch, task = self.batch, self.batch.tasks[number]
        tasks = len(batch.tasks)
        servers, others = self._servers[task.job], self._others[task.job]
        by_rack: dict[int, float] = {}
        best, least = UNASSIGNED, math.inf
        devices, free = task.needs[0], self._free
        for node in task.nodes:
            if free[node][0] < devices or node == avoid or not (among >> node & 1 and self.fits(number, node)):
                continue
            if node in servers or node in others:
                score = self._added_cost(task, node)
            else:
                rack = batch.distances.rack(node)
                if rack not in by_rack:
                    by_rack[rack] = self._added_cost(task, node)
                score = by_rack[rack] + 1.0 / tasks
            score += self._load(task, node, opening, left) / max(batch.devices[node], 1) / tasks
            if score < least:
                best, least = node, score
        return best

    def _load(self, task: BatchTask, node: int, opening: Opening, left: int) -> float:
        """Return the penalty of a node for its load, in devices."""
        room, devices = self._free[node][0], self.batch.devices[node]
        if opening is Opening.SNUG:
            return room - left if room >= left else devices + left - room
        load = 1 + devices - room + task.needs[0]
        return load if task.serves or opening is Opening.ROOMY else -load

    def _added_cost(self, task: BatchTask, node: int) -> float:
        """Return the network cost that a task adds to its job on a node."""
        batch, distances = self.batch, self.batch.distances
        servers, others = self._servers[task.job], self._others[task.job]
        if task.serves:
            added = distances.to(node, others)
        elif batch.is_served[task.job]:
            added = distances.to(node, servers)
        elif node in others:
            return 0.0
        else:
            added = distances.around([*others, node]) - distances.around(others)
        return batch.traffic[task.job] * added

    def assign_best(
        self,
        numbers: Sequence[int],
        opening: Opening = Opening.PUBLISHED,
        *,
        avoid: int = UNASSIGNED,
        among: int = ALL_NODES,
    ) -> bool:
        """Assign tasks one by one to their best nodes; return whether all of them fit."""
        left = sum(self.batch.tasks[number].needs[0] for number in numbers)
        for number in numbers:
            node = self.best_node(number, opening, avoid=avoid, among=among, left=left)
            if node == UNASSIGNED and avoid != UNASSIGNED:
                node = self.best_node(number, opening, among=among, left=left)
            if node == UNASSIGNED:
                return False
            self.assign(number, node)
            left -= self.batch.tasks[number].needs[0]
        return True

    def assign_job(self, job: int) -> bool:
        """Assign a whole job by the published opening, or by the snug one where that lowers a network cost above 0.

        The published opening starts on the fullest node and thereby splits rings that fit together elsewhere.
        """
        numbers = self.batch.by_job[job]
        best = self._try_opening(numbers, Opening.PUBLISHED, ALL_NODES)
        if best is None or best[0] > 1.0:
            snug = (self._try_opening(numbers, Opening.SNUG, cell) for cell in self._cells_with_room(numbers))
            best = min((each for each in (best, *snug) if each is not None), key=lambda each: each[0], default=None)
        if best is None:
            return False
        for number, node in zip(numbers, best[1], strict=True):
            self.assign(number, node)
        return True

    def _try_opening(self, numbers: Sequence[int], opening: Opening, among: int) -> tuple[float, list[int]] | None:
        """Return the score and the nodes of a job under an opening, and unassign its tasks again."""
        found = None
        if self.assign_best(numbers, opening, among=among):
            where = [self.where[number] for number in numbers]
            found = (self.cost_of_job(self.batch.tasks[numbers[0]].job) + len(set(where)) / len(where), where)
        for number in numbers:
            if self.where[number] != UNASSIGNED:
                self.unassign(number)
        return found

    def _cells_with_room(self, numbers: Sequence[int]) -> list[int]:
        """Return the racks with enough free devices for all tasks, fullest first; else the domains, else all nodes."""
        distances = self.batch.distances
        wanted = sum(self.batch.tasks[number].needs[0] for number in numbers)
        usable = {node for number in numbers for node in self.batch.tasks[number].nodes}
        for cell_of in (distances.rack, distances.domain):
            nodes_by_cell: dict[int, list[int]] = {}
            for node in sorted(usable):
                nodes_by_cell.setdefault(cell_of(node), []).append(node)
            rooms = ((sum(self._free[node][0] for node in nodes), nodes) for nodes in nodes_by_cell.values())
            roomy = sorted(entry for entry in rooms if entry[0] >= wanted)
            if roomy:
                return [sum(1 << node for node in nodes) for _, nodes in roomy[:MAX_CELLS]]
        return [ALL_NODES]

    def pieces(self, job: int) -> Iterator[tuple[int, int, int]]:
        """Iterate over a job's tasks as (role, node, tasks), sorted."""
        counts: dict[tuple[int, int], int] = {}
        for number in self.batch.by_job[job]:
            key = (self.batch.tasks[number].role, self.where[number])
            counts[key] = counts.get(key, 0) + 1
        for (role, node), tasks in sorted(counts.items()):
            yield role, node, tasks


def best_fit(batch: PlacementBatch) -> BatchLayout | None:
    """Assign every job in order at the least network cost; None if one does not fit."""
    layout = BatchLayout(batch)
    return layout if all(map(layout.assign_job, range(len(batch.jobs)))) else None


def placed(inventory: Inventory, layout: BatchLayout, job: int) -> Placement:
    """Return the devices of one job of a layout; none of the batch may hold devices in the inventory."""
    roles = layout.batch.jobs[job].roles
    slots: list[Slot] = []
    for role, node, tasks in layout.pieces(job):
        mask = inventory.pick_devices(node, tasks * (roles[role].device_milli // WHOLE))
        slots.append(Slot(node, mask, tasks, role))
        inventory.take((slots[-1],), roles)
    for slot in reversed(slots):
        inventory.give((slot,), roles)
    return tuple(slots)
