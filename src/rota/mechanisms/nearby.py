"""Tasks of a batch of jobs laid over nodes, each where it adds least to the network's load (Gu et al., TPDS 2022).

A `Batch` is what has to be placed and where it may go, a `Layout` one way to do it. Both know nothing of single
devices: what a task needs of a node is an amount.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from rota.core.inventory import Inventory, NodeFree
from rota.core.model import WHOLE, Job, Role
from rota.core.placement import Placement, Slot
from rota.perf.network import Counts, Distances, cost_of, is_server, traffic

Amounts = tuple[int, int, int, int]
"""Devices, CPU thousandths, bytes of memory, bits a second."""
NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a batch: whose it is, what it needs and the nodes where it may run."""

    job: int
    role: int
    serves: bool
    needs: Amounts
    nodes: tuple[int, ...]


def needs_of(role: Role) -> Amounts:
    """What a task of a role takes of its node; only whole devices."""
    return (role.device_milli // WHOLE, role.cpu_milli, role.memory_bytes, role.network_bps)


def free_on(books: NodeFree) -> Amounts:
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


def interleaved(jobs: Sequence[Job], nodes: Sequence[Sequence[tuple[int, ...]]]) -> tuple[Task, ...]:
    """The tasks of jobs one job after the other; within a job a task of each role in turn. `nodes` by job and role."""
    tasks = []
    for index, job in enumerate(jobs):
        left = [role.count for role in job.roles]
        while any(left):
            for role, of_role in enumerate(job.roles):
                if left[role]:
                    left[role] -= 1
                    tasks.append(Task(index, role, is_server(job, role), needs_of(of_role), tuple(nodes[index][role])))
    return tuple(tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What has to be placed, what is free, and how far it is from node to node."""

    jobs: Sequence[Job]
    tasks: Sequence[Task]
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


class Layout:
    """Where each task of a batch is, as far as it is anywhere."""

    __slots__ = ("_cost", "_free", "_others", "_servers", "batch", "where")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.where = [NOWHERE] * len(batch.tasks)
        self._free = list(batch.free)
        self._servers: list[Counts] = [{} for _ in batch.jobs]
        self._others: list[Counts] = [{} for _ in batch.jobs]
        self._cost: list[float | None] = [0.0] * len(batch.jobs)

    def copy(self) -> Layout:
        """One that can be changed by itself."""
        other = Layout.__new__(Layout)
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
        total = 0.0
        for index, known in enumerate(self._cost):
            if known is None:
                known = cost_of(self.batch.jobs[index], self._servers[index], self._others[index], self.batch.distances)
                self._cost[index] = known
            total += known
        return total

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

    def best_node(self, number: int, avoid: int = NOWHERE, *, roomy: bool = False) -> int:
        """Where a task adds least: to the network, then by load (servers spread, others pack) and by nodes in use.

        With `roomy` all of them spread, so that a job begins where it may stay together.
        """
        batch, task = self.batch, self.batch.tasks[number]
        tasks = len(batch.tasks)
        servers, others = self._servers[task.job], self._others[task.job]
        sign = 1.0 if task.serves or roomy else -1.0
        by_rack: dict[int, float] = {}
        best, least = NOWHERE, math.inf
        for node in task.nodes:
            if node == avoid or not self.fits(number, node):
                continue
            if node in servers or node in others:
                score = self._added(task, node)
            else:
                rack = batch.distances.rack(node)
                if rack not in by_rack:
                    by_rack[rack] = self._added(task, node)
                score = by_rack[rack] + 1.0 / tasks
            devices = batch.devices[node]
            used = devices - self._free[node][0]
            score += sign * (1 + used + task.needs[0]) / max(devices, 1) / tasks
            if score < least:
                best, least = node, score
        return best

    def _added(self, task: Task, node: int) -> float:
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

    def settle(self, numbers: Collection[int], avoid: int = NOWHERE, *, roomy: bool = False) -> bool:
        """Place tasks one after the other, each where it adds least; whether all found a place."""
        for number in numbers:
            node = self.best_node(number, avoid, roomy=roomy)
            if node == NOWHERE and avoid != NOWHERE:
                node = self.best_node(number, roomy=roomy)
            if node == NOWHERE:
                return False
            self.put(number, node)
        return True

    def pieces(self, job: int) -> Iterator[tuple[int, int, int]]:
        """A job's tasks as (role, node, tasks), in that order."""
        counts: dict[tuple[int, int], int] = {}
        for number in self.batch.by_job[job]:
            key = (self.batch.tasks[number].role, self.where[number])
            counts[key] = counts.get(key, 0) + 1
        for (role, node), tasks in sorted(counts.items()):
            yield role, node, tasks


def best_fit(batch: Batch) -> Layout | None:
    """Every task in its turn where it adds least; None if one finds no place."""
    layout = Layout(batch)
    return layout if layout.settle(range(len(batch.tasks))) else None


def placed(inventory: Inventory, layout: Layout, job: int) -> Placement:
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
