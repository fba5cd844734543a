"""The max-load problem on groups of operators that share a device.

Groups are co-location classes, joined further where the order of the forward operators leaves no choice. Precedence
between groups comes from forward edges; a class without a forward operator takes the mirror image of its backward
edges. Each operator whose output is read is a net: the groups of the operator and its readers. A device that holds a
part of a net, and not all of it, pays the net's transfer once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from rota.core.errors import RotaError
from rota.planner.description.operators import CPU
from rota.planner.description.problem import PlanningProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


MOST_STATES = 2048
"""Beyond so many combinations of devices in use, accelerators of similar memory are taken as equal."""


_TINY_MS = 1e-30


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorKind:
    """Accelerators of the same memory, by their numbers among all devices."""

    memory_cap_bytes: float
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxLoadInstance:
    """Groups to be split over equally fast accelerators, whose memory may differ, and equal CPUs."""

    members: tuple[tuple[int, ...], ...]
    """Numbers of the operators of each group."""
    accelerator_ms: Floats
    cpu_ms: Floats
    memory_bytes: Floats
    accelerator_only: Ints
    """How many operators of a group a CPU cannot run."""
    cpu_only: Ints
    precedence: frozenset[tuple[int, int]]
    nets: tuple[tuple[tuple[int, ...], float], ...]
    kinds: tuple[AcceleratorKind, ...]
    cpus: int
    rounds_memory: bool = False
    """Whether some accelerators are taken to have less memory than they have, to keep the search short."""

    def __len__(self) -> int:
        return len(self.members)

    @property
    def memory_cap_bytes(self) -> float:
        """The memory of the smallest accelerator."""
        return min((kind.memory_cap_bytes for kind in self.kinds), default=np.inf)

    def without_memory(self) -> MaxLoadInstance:
        """The instance with accelerators of unlimited memory."""
        devices = tuple(number for kind in self.kinds for number in kind.devices)
        return replace(self, kinds=(AcceleratorKind(memory_cap_bytes=np.inf, devices=devices),) if devices else ())

    def scaled(self) -> MaxLoadInstance:
        """The instance with times such that the least possible load is about 1, so that tolerances are relative."""
        fast_ms = np.where(self.cpu_only > 0, np.inf, self.accelerator_ms) if self.kinds else np.inf
        slow_ms = np.where(self.accelerator_only > 0, np.inf, self.cpu_ms) if self.cpus else np.inf
        least_ms = np.minimum(fast_ms, slow_ms)
        unit_ms = float(np.max(least_ms, initial=0.0, where=np.isfinite(least_ms)))
        if unit_ms <= 0.0:
            unit_ms = max((cost_ms for _, cost_ms in self.nets), default=0.0)
        if unit_ms <= 0.0:
            return self
        return replace(
            self,
            accelerator_ms=self.accelerator_ms / unit_ms,
            cpu_ms=self.cpu_ms / unit_ms,
            nets=tuple((groups, cost_ms / unit_ms) for groups, cost_ms in self.nets),
        )

    def joined(self, labels: Ints) -> MaxLoadInstance:
        """The instance in which groups of one label are one group."""
        count = int(labels.max()) + 1
        members: list[list[int]] = [[] for _ in range(count)]
        for group, label in enumerate(labels):
            members[label] += self.members[group]
        costs_ms: dict[tuple[int, ...], float] = {}
        for groups, cost_ms in self.nets:
            net = tuple(sorted({int(labels[group]) for group in groups}))
            if len(net) > 1:
                costs_ms[net] = costs_ms.get(net, 0.0) + cost_ms
        return MaxLoadInstance(
            members=tuple(tuple(sorted(each)) for each in members),
            accelerator_ms=_summed(labels, self.accelerator_ms, count),
            cpu_ms=_summed(labels, self.cpu_ms, count),
            memory_bytes=_summed(labels, self.memory_bytes, count),
            accelerator_only=np.bincount(labels, self.accelerator_only, count).astype(np.int64),
            cpu_only=np.bincount(labels, self.cpu_only, count).astype(np.int64),
            precedence=frozenset(
                (int(labels[a]), int(labels[b])) for a, b in self.precedence if labels[a] != labels[b]
            ),
            nets=tuple(sorted(costs_ms.items())),
            kinds=self.kinds,
            cpus=self.cpus,
            rounds_memory=self.rounds_memory,
        )


def _whole_ms(times_ms: Floats) -> Floats:
    """Times with 0 for what is too short to be divided by."""
    return np.where(times_ms < _TINY_MS, 0.0, times_ms)


def _summed(labels: Ints, values: Floats, count: int) -> Floats:
    return np.asarray(np.bincount(labels, values, count), dtype=np.float64)


def accelerator_type(problem: PlanningProblem) -> str:
    """The one device type that is not a CPU; planners for equal accelerators take no others."""
    types = [device_type for device_type in problem.devices.types if device_type != CPU]
    if len(types) > 1:
        raise RotaError(f"this planner takes accelerators of one type, not {', '.join(types)}; leave out all but one")
    return types[0] if types else CPU


def transfer_cost_ms(problem: PlanningProblem, number: int) -> float:
    """Time to move an operator's output onto or off an accelerator: its `transfer_ms`, else by the slowest link."""
    operator = problem.graph.operators[number]
    if operator.transfer_ms is not None:
        return operator.transfer_ms
    if not problem.devices.links and len(problem.devices) > 1:
        raise RotaError(
            f"operator {operator.name!r} has neither transfer_ms nor are there links between devices; add `links`"
        )
    return max((link.time_ms(operator.output_bytes) for link in problem.devices.links), default=0.0)


def max_load_instance(problem: PlanningProblem) -> MaxLoadInstance:
    """The problem by co-location classes, with classes joined that no contiguous split can separate."""
    graph, fast = problem.graph, accelerator_type(problem)
    classes = colocation_classes(problem)
    count = int(classes.max()) + 1
    kinds, rounds_memory = accelerator_kinds(problem, fast, most=count)
    fast_ms, cpu_ms = _whole_ms(graph.times_ms(fast)), _whole_ms(graph.times_ms(CPU))
    sizes = np.array([operator.weight_bytes for operator in graph.operators], dtype=float)
    members: list[list[int]] = [[] for _ in range(count)]
    for number, each in enumerate(classes):
        members[each].append(number)
    nets: list[tuple[tuple[int, ...], float]] = []
    for number, readers in enumerate(graph.successors):
        groups = tuple(sorted({int(classes[number]), *(int(classes[reader]) for reader in readers)}))
        if len(groups) > 1:
            cost_ms = transfer_cost_ms(problem, number)
            nets.append((groups, cost_ms if cost_ms >= _TINY_MS else 0.0))
    raw = MaxLoadInstance(
        members=tuple(map(tuple, members)),
        accelerator_ms=_summed(classes, np.where(np.isfinite(fast_ms), fast_ms, 0.0), count),
        cpu_ms=_summed(classes, np.where(np.isfinite(cpu_ms), cpu_ms, 0.0), count),
        memory_bytes=_summed(classes, sizes, count),
        accelerator_only=np.bincount(classes, ~np.isfinite(cpu_ms), count).astype(np.int64),
        cpu_only=np.bincount(classes, ~np.isfinite(fast_ms), count).astype(np.int64),
        precedence=_precedence(problem, classes),
        nets=tuple(nets),
        kinds=kinds,
        cpus=min(len(problem.devices.of_type(CPU)), count),
        rounds_memory=rounds_memory,
    )
    return without_cycles(raw)


def accelerator_kinds(problem: PlanningProblem, fast: str, most: int) -> tuple[tuple[AcceleratorKind, ...], bool]:
    """Accelerators by memory, the smallest first, and whether kinds were joined because there are too many.

    No chain uses more than `most` devices, so that no kind has more.
    """
    if fast == CPU:
        return (), False
    devices: dict[float, tuple[int, ...]] = {}
    for number in problem.devices.of_type(fast):
        cap = problem.devices.devices[number].memory_bytes
        key = np.inf if cap is None else float(cap)
        known = devices.get(key, ())
        devices[key] = (*known, number) if len(known) < most else known
    caps = sorted(devices)
    rounds_memory = False
    while len(caps) > 1 and math.prod(len(devices[cap]) + 1 for cap in caps) > MOST_STATES:
        place = min(range(1, len(caps)), key=lambda each: caps[each] / caps[each - 1])
        devices[caps[place - 1]] += devices.pop(caps.pop(place))
        rounds_memory = True
    return tuple(AcceleratorKind(memory_cap_bytes=cap, devices=devices[cap]) for cap in caps), rounds_memory


def colocation_classes(problem: PlanningProblem) -> Ints:
    """A class number for each operator; an operator without a class is one of its own."""
    found: dict[object, int] = {}
    classes = [
        found.setdefault(number if operator.colocation is None else operator.colocation, len(found))
        for number, operator in enumerate(problem.graph.operators)
    ]
    return np.array(classes, dtype=np.int64)


def _precedence(problem: PlanningProblem, classes: Ints) -> frozenset[tuple[int, int]]:
    operators = problem.graph.operators
    with_forward = {int(classes[n]) for n, operator in enumerate(operators) if not operator.is_backward}
    found = set()
    for source, target in problem.graph.edges:
        first, second = int(classes[source]), int(classes[target])
        if first == second:
            continue
        backward = operators[source].is_backward, operators[target].is_backward
        if backward == (False, False):
            found.add((first, second))
        elif backward == (True, True) and not {first, second} <= with_forward:
            found.add((second, first))
    return frozenset(found)


def without_cycles(instance: MaxLoadInstance) -> MaxLoadInstance:
    """The instance with groups joined that lie on one cycle: every ideal holds all of them or none."""
    count = len(instance)
    if not instance.precedence:
        return instance
    rows, columns = zip(*instance.precedence, strict=True)
    matrix = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(count, count))
    found, labels = connected_components(matrix, directed=True, connection="strong")
    return instance if found == count else instance.joined(labels.astype(np.int64))


def with_weightless_joined(instance: MaxLoadInstance) -> MaxLoadInstance:
    """The instance with groups that take no time joined to their only neighbour.

    If every net of such a group holds the neighbour too, moving the group there never adds a transfer, so that the
    least load stays the same as long as memory is not the limit.
    """
    while True:
        labels = np.arange(len(instance), dtype=np.int64)
        near: list[set[int]] = [set() for _ in range(len(instance))]
        for first, second in instance.precedence:
            near[first].add(second)
            near[second].add(first)
        nets: list[list[tuple[int, ...]]] = [[] for _ in range(len(instance))]
        for groups, _ in instance.nets:
            for group in groups:
                nets[group].append(groups)
        moved: set[int] = set()
        for group in range(len(instance)):
            host = _host(instance, group, near[group], nets[group])
            if host is not None and host not in moved:
                labels[group] = host
                moved.add(group)
        if not moved:
            return instance
        hosts = {int(labels[group]) for group in moved}
        for group in moved & hosts:
            labels[group] = group
        _, labels = np.unique(labels, return_inverse=True)
        if labels.max() + 1 == len(instance):
            return instance
        instance = without_cycles(instance.joined(labels.astype(np.int64)))


def _host(instance: MaxLoadInstance, group: int, near: set[int], nets: Sequence[tuple[int, ...]]) -> int | None:
    takes_time = instance.accelerator_ms[group] > 0 or instance.cpu_ms[group] > 0
    is_bound = instance.accelerator_only[group] > 0 or instance.cpu_only[group] > 0
    if takes_time or is_bound or len(near) != 1:
        return None
    (host,) = near
    return host if all(host in groups for groups in nets) else None
