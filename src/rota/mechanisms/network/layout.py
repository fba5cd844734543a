"""Tasks of a batch of jobs laid over nodes, each where it adds least to the network's load (Gu et al., TPDS 2022).

A `PlacementBatch` holds what has to be placed and where it may go, a `BatchLayout` one assignment. Both count
amounts per node, not single devices.
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
"""Devices, CPU thousandths, bytes of memory, bits a second."""
NOWHERE = -1
EVERYWHERE = -1
"""The set of all nodes, as a bit mask."""
MOST_CELLS = 4
"""In how many racks, or domains, a whole job is tried."""


class Opening(Enum):
    """Which node a job goes to next, of those that cost the network as little."""

    PUBLISHED = "published"
    """Workers to full ones, servers to empty ones: as Liquid does, without a look at who comes after."""
    ROOMY = "roomy"
    """To empty ones."""
    SNUG = "snug"
    """To the fullest that holds all that is left of the job, or else to the one with most room."""


@dataclass(frozen=True, slots=True)
class BatchTask:
    """One task of a batch: whose it is, what it needs and the nodes where it may run."""

    job: int
    role: int
    serves: bool
    needs: Amounts
    nodes: tuple[int, ...]


def needs_of(role: Role) -> Amounts:
    """What a task of a role takes of its node; only whole devices."""
    return (role.device_milli // WHOLE, role.cpu_milli, role.memory_bytes, role.network_bps)


def free_on(books: NodeAccount) -> Amounts:
    """What a node has left."""
    return (books.free, books.cpu_milli, books.memory_bytes, books.network_bps)


def nodes_for(inventory: Inventory, role: Role, pool: int, among: int) -> tuple[int, ...]:
    """The nodes of a pool, within a set, that a role may use whatever is free there."""
    allowed = inventory.pools[pool].nodes & inventory.matching(role) & among
    found = []
    for node, books in enumerate(inventory.nodes):
        memory = books.node.device_memory_bytes
        if allowed >> node & 1 and books.usable and (memory is None or memory >= role.device_memory_bytes):
            found.append(node)
    return tuple(found)


def interleaved(jobs: Sequence[Job], nodes: Sequence[Sequence[tuple[int, ...]]]) -> tuple[BatchTask, ...]:
    """The tasks of jobs one job after the other; within a job a task of each role in turn. `nodes` by job and role."""
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
    """What has to be placed, what is free, and how far it is from node to node."""

    jobs: Sequence[Job]
    tasks: Sequence[BatchTask]
    free: Sequence[Amounts]
    devices: Sequence[int]
    """Devices of each node, free or not."""
    distances: Distances
    by_job: Sequence[Sequence[int]] = field(init=False)
    """The numbers of each job's tasks."""
    traffic: Sequence[float] = field(init=False)
    """What a task of each job sends."""
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
    """Where each task of a batch is, as far as it is anywhere."""

    __slots__ = ("_cost", "_free", "_others", "_servers", "batch", "where")

    def __init__(self, batch: PlacementBatch) -> None:
        self.batch = batch
        self.where = [NOWHERE] * len(batch.tasks)
        self._free = list(batch.free)
        self._servers: list[Counts] = [{} for _ in batch.jobs]
        self._others: list[Counts] = [{} for _ in batch.jobs]
        self._cost: list[float | None] = [0.0] * len(batch.jobs)

    def copy(self) -> BatchLayout:
        """One that can be changed by itself."""
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
        """The network cost of one job's tasks, as far as they are anywhere."""
        known = self._cost[job]
        if known is None:
            known = cost_of(self.batch.jobs[job], self._servers[job], self._others[job], self.batch.distances)
            self._cost[job] = known
        return known

    @property
    def score(self) -> float:
        """What a search makes small: the network cost, and nodes in use for each task."""
        return self.network_cost + len(set(self.where)) / len(self.where)

    def fits(self, number: int, node: int) -> bool:
        """Whether a node has room for a task."""
        free, needs = self._free[node], self.batch.tasks[number].needs
        return free[0] >= needs[0] and free[1] >= needs[1] and free[2] >= needs[2] and free[3] >= needs[3]

    def put(self, number: int, node: int) -> None:
        """Place a task that is nowhere."""
        self.where[number] = node
        self._shift(number, node, 1)

    def remove(self, number: int) -> None:
        """Take a task from where it is."""
        self._shift(number, self.where[number], -1)
        self.where[number] = NOWHERE

    def _shift(self, number: int, node: int, by: int) -> None:
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
        avoid: int = NOWHERE,
        among: int = EVERYWHERE,
        left: int = 0,
    ) -> int:
        """Where a task adds least: to the network, then by load, as the opening says, and by nodes in use.

        `among` are the only nodes to look at; `left` is how many devices its job has yet to find.
        """
        batch, task = self.batch, self.batch.tasks[number]
        tasks = len(batch.tasks)
        servers, others = self._servers[task.job], self._others[task.job]
        by_rack: dict[int, float] = {}
        best, least = NOWHERE, math.inf
        devices, free = task.needs[0], self._free
        for node in task.nodes:
            if free[node][0] < devices or node == avoid or not (among >> node & 1 and self.fits(number, node)):
                continue
            if node in servers or node in others:
                score = self._added(task, node)
            else:
                rack = batch.distances.rack(node)
                if rack not in by_rack:
                    by_rack[rack] = self._added(task, node)
                score = by_rack[rack] + 1.0 / tasks
            score += self._load(task, node, opening, left) / max(batch.devices[node], 1) / tasks
            if score < least:
                best, least = node, score
        return best

    def _load(self, task: BatchTask, node: int, opening: Opening, left: int) -> float:
        """How much a node's load speaks against it, in devices."""
        room, devices = self._free[node][0], self.batch.devices[node]
        if opening is Opening.SNUG:
            return room - left if room >= left else devices + left - room
        load = 1 + devices - room + task.needs[0]
        return load if task.serves or opening is Opening.ROOMY else -load

    def _added(self, task: BatchTask, node: int) -> float:
        """What a task at a node would add to the network cost of its job."""
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

    def settle(
        self,
        numbers: Sequence[int],
        opening: Opening = Opening.PUBLISHED,
        *,
        avoid: int = NOWHERE,
        among: int = EVERYWHERE,
    ) -> bool:
        """Place tasks one after the other, each where it adds least; whether all found a place."""
        left = sum(self.batch.tasks[number].needs[0] for number in numbers)
        for number in numbers:
            node = self.best_node(number, opening, avoid=avoid, among=among, left=left)
            if node == NOWHERE and avoid != NOWHERE:
                node = self.best_node(number, opening, among=among, left=left)
            if node == NOWHERE:
                return False
            self.put(number, node)
            left -= self.batch.tasks[number].needs[0]
        return True

    def settle_job(self, job: int) -> bool:
        """Place a whole job as published or, where that costs the network anything, snugly if that scores less.

        The published way begins on the fullest node, and so splits rings that had room together elsewhere.
        """
        numbers = self.batch.by_job[job]
        best = self._tried(numbers, Opening.PUBLISHED, EVERYWHERE)
        if best is None or best[0] > 1.0:
            snug = (self._tried(numbers, Opening.SNUG, cell) for cell in self._cells_with_room(numbers))
            best = min((each for each in (best, *snug) if each is not None), key=lambda each: each[0], default=None)
        if best is None:
            return False
        for number, node in zip(numbers, best[1], strict=True):
            self.put(number, node)
        return True

    def _tried(self, numbers: Sequence[int], opening: Opening, among: int) -> tuple[float, list[int]] | None:
        """Where the tasks of a job would go and how that scores; they are nowhere afterwards."""
        found = None
        if self.settle(numbers, opening, among=among):
            where = [self.where[number] for number in numbers]
            found = (self.cost_of_job(self.batch.tasks[numbers[0]].job) + len(set(where)) / len(where), where)
        for number in numbers:
            if self.where[number] != NOWHERE:
                self.remove(number)
        return found

    def _cells_with_room(self, numbers: Sequence[int]) -> list[int]:
        """The racks that have enough free devices for all tasks, the fullest first; else the domains, else all."""
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
                return [sum(1 << node for node in nodes) for _, nodes in roomy[:MOST_CELLS]]
        return [EVERYWHERE]

    def pieces(self, job: int) -> Iterator[tuple[int, int, int]]:
        """A job's tasks as (role, node, tasks), in that order."""
        counts: dict[tuple[int, int], int] = {}
        for number in self.batch.by_job[job]:
            key = (self.batch.tasks[number].role, self.where[number])
            counts[key] = counts.get(key, 0) + 1
        for (role, node), tasks in sorted(counts.items()):
            yield role, node, tasks


def best_fit(batch: PlacementBatch) -> BatchLayout | None:
    """Every job in its turn where it adds least; None if one finds no place."""
    layout = BatchLayout(batch)
    return layout if all(map(layout.settle_job, range(len(batch.jobs)))) else None


def placed(inventory: Inventory, layout: BatchLayout, job: int) -> Placement:
    """The devices for one job of a layout; the inventory is as it was before anyone of the batch had any."""
    roles = layout.batch.jobs[job].roles
    slots: list[Slot] = []
    for role, node, tasks in layout.pieces(job):
        mask = inventory.pick_devices(node, tasks * (roles[role].device_milli // WHOLE))
        slots.append(Slot(node, mask, tasks, role))
        inventory.take((slots[-1],), roles)
    for slot in reversed(slots):
        inventory.give((slot,), roles)
    return tuple(slots)
