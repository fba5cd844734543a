"""Puts operators together until few enough groups are left, without ever making a cycle.

Pesto (Hafeez et al., Middleware 2021): two groups may be merged if the edge between them is the only way from one to
the other, for which it is enough that the first has no other reader or the second no other input. Heaviest transfers
first, so that what is cut later is light. Where no such edge is left, neighbours in a topological order are merged.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rota.planner.description.problem import PlanningProblem
from rota.planner.ideals.instance import Floats, MaxLoadInstance, max_load_instance


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupGraph:
    """Groups of operators in topological order, with what they cost and what passes between them."""

    members: tuple[tuple[int, ...], ...]
    accelerator_ms: Floats
    cpu_ms: Floats
    memory_bytes: Floats
    edges: dict[tuple[int, int], float]
    """Transfer time by pair of groups; each operator counts once for each group that reads it."""
    accelerator_only: tuple[bool, ...]
    cpu_only: tuple[bool, ...]

    def __len__(self) -> int:
        return len(self.members)


def coarsened(problem: PlanningProblem, most: int, *, heaviest_bytes: float = np.inf) -> GroupGraph:
    """At most so many groups, none above a size unless an operator is; forward edges order them."""
    instance = max_load_instance(problem)
    merged = _Merging(instance, heaviest_bytes)
    merged.along_edges(most)
    labels = merged.labels()
    if labels.max() + 1 > most:
        labels = _along_order(instance, labels, most, heaviest_bytes)
    return _group_graph(instance.joined(labels))


class _Merging:
    def __init__(self, instance: MaxLoadInstance, heaviest_bytes: float) -> None:
        self._bytes = instance.memory_bytes.copy()
        self._heaviest = heaviest_bytes
        self._root = list(range(len(instance)))
        self._left = len(instance)
        costs = _pair_costs(instance)
        self._after: list[dict[int, float]] = [{} for _ in range(len(instance))]
        self._before: list[dict[int, float]] = [{} for _ in range(len(instance))]
        for first, second in instance.precedence:
            cost_ms = costs.get((first, second), 0.0)
            self._after[first][second] = cost_ms
            self._before[second][first] = cost_ms

    def along_edges(self, most: int) -> None:
        """Merge the heaviest edge that may be merged, again and again."""
        queue = [(-cost, first, second) for first, ends in enumerate(self._after) for second, cost in ends.items()]
        heapq.heapify(queue)
        while queue and self._left > most:
            cost, first, second = heapq.heappop(queue)
            if self._after[first].get(second) != -cost or self._root[first] != first or self._root[second] != second:
                continue
            if len(self._after[first]) > 1 and len(self._before[second]) > 1:
                continue
            if self._bytes[first] + self._bytes[second] > self._heaviest:
                continue
            self._merge(first, second, queue)

    def _merge(self, first: int, second: int, queue: list[tuple[float, int, int]]) -> None:
        """Move the edges of the one with fewer to the other; queue what changed, and what may be merged now.

        An edge may be merged once its source has one reader or its target one input, so that only ends with one edge
        left need be looked at again.
        """
        del self._after[first][second], self._before[second][first]
        degrees = [len(self._after[each]) + len(self._before[each]) for each in (first, second)]
        kept, gone = (first, second) if degrees[0] >= degrees[1] else (second, first)
        self._root[gone] = kept
        self._left -= 1
        self._bytes[kept] += self._bytes[gone]
        for ahead, back in ((self._after, self._before), (self._before, self._after)):
            for end, cost in ahead[gone].items():
                del back[end][gone]
                ahead[kept][end] = back[end][kept] = ahead[kept].get(end, 0.0) + cost
                self._queue(queue, *((kept, end) if ahead is self._after else (end, kept)))
                if len(back[end]) == 1:
                    self._queue_last(queue, end)
            ahead[gone] = {}
        self._queue_last(queue, kept)

    def _queue(self, queue: list[tuple[float, int, int]], first: int, second: int) -> None:
        heapq.heappush(queue, (-self._after[first][second], first, second))

    def _queue_last(self, queue: list[tuple[float, int, int]], group: int) -> None:
        """Queue the edge of a group that has one reader left, or one input."""
        if len(self._after[group]) == 1:
            self._queue(queue, group, next(iter(self._after[group])))
        if len(self._before[group]) == 1:
            self._queue(queue, next(iter(self._before[group])), group)

    def labels(self) -> np.ndarray:
        """A group number for each class."""
        roots = []
        for number in range(len(self._root)):
            root = number
            while self._root[root] != root:
                root = self._root[root]
            roots.append(root)
        _, labels = np.unique(roots, return_inverse=True)
        return labels.astype(np.int64)


def _along_order(instance: MaxLoadInstance, labels: np.ndarray, most: int, heaviest_bytes: float) -> np.ndarray:
    """Merge neighbours of a topological order into runs of about equal time."""
    joined = instance.joined(labels)
    order = topological(len(joined), joined.precedence)
    weight = joined.accelerator_ms + 1e-9
    runs, run_of, held_ms, held_bytes = 0, np.zeros(len(joined), np.int64), 0.0, 0.0
    share_ms = weight.sum() / most
    for place, group in enumerate(order):
        is_full = held_ms + weight[group] / 2 > share_ms or held_bytes + joined.memory_bytes[group] > heaviest_bytes
        if place and is_full:
            runs, held_ms, held_bytes = runs + 1, 0.0, 0.0
        run_of[group] = runs
        held_ms += weight[group]
        held_bytes += joined.memory_bytes[group]
    return np.asarray(run_of[labels])


def topological(
    count: int, precedence: Sequence[tuple[int, int]] | frozenset[tuple[int, int]], *, breadth: bool = False
) -> list[int]:
    """Groups in an order in which inputs come first: branches kept together, or what became ready first comes first."""
    waiting = [0] * count
    after: list[list[int]] = [[] for _ in range(count)]
    for first, second in sorted(precedence):
        waiting[second] += 1
        after[first].append(second)
    ready = deque(number for number in reversed(range(count)) if not waiting[number])
    if breadth:
        ready.reverse()
    order = []
    while ready:
        number = ready.popleft() if breadth else ready.pop()
        order.append(number)
        for second in after[number]:
            waiting[second] -= 1
            if not waiting[second]:
                ready.append(second)
    return order


def _pair_costs(instance: MaxLoadInstance) -> dict[tuple[int, int], float]:
    """Transfer time of each precedence pair: nets that hold both."""
    after: list[set[int]] = [set() for _ in range(len(instance))]
    for first, second in instance.precedence:
        after[first].add(second)
    found: dict[tuple[int, int], float] = {}
    for groups, cost_ms in instance.nets:
        inside = set(groups)
        for first in groups:
            for second in after[first] & inside:
                found[first, second] = found.get((first, second), 0.0) + cost_ms
    return found


def _group_graph(instance: MaxLoadInstance) -> GroupGraph:
    order = topological(len(instance), instance.precedence)
    labels = np.empty(len(instance), np.int64)
    labels[order] = np.arange(len(instance))
    sorted_one = instance.joined(labels)
    costs = _pair_costs(sorted_one)
    return GroupGraph(
        members=sorted_one.members,
        accelerator_ms=sorted_one.accelerator_ms,
        cpu_ms=sorted_one.cpu_ms,
        memory_bytes=sorted_one.memory_bytes,
        edges={pair: costs.get(pair, 0.0) for pair in sorted(sorted_one.precedence)},
        accelerator_only=tuple(bool(count) for count in sorted_one.accelerator_only),
        cpu_only=tuple(bool(count) for count in sorted_one.cpu_only),
    )
