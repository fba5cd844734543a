"""Pesto's integer program: which group goes where and when, such that the last one ends earliest.

Start times, one placement bit for each group and device, one bit for each edge that is cut, and one bit for the order
of each pair of groups that could run at the same time (big-M where they are not on one device). Devices of a kind are
alike, so that a group may open a device only after its predecessors in the numbering are open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rota.planner.methods.coarsen import GroupGraph
from rota.planner.methods.solver import IntegerProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramAnswer:
    """Device numbers of the groups (accelerators first, then the CPU) and their starts; and how sure that is."""

    device_of: tuple[int, ...]
    start_ms: tuple[float, ...]
    value_ms: float
    is_optimal: bool


class PlacementProgram:
    """The program for groups on so many accelerators, and a CPU that has memory for everything."""

    def __init__(
        self,
        groups: GroupGraph,
        *,
        accelerators: int,
        has_cpu: bool,
        memory_cap_bytes: float,
        transfers: float,
        bound_ms: float,
    ) -> None:
        self._groups = groups
        self._fast = accelerators
        self._devices = accelerators + int(has_cpu)
        self._cap = memory_cap_bytes
        self._transfers = transfers
        self._bound_ms = bound_ms
        self._edges = list(groups.edges)
        self._pairs = self._unordered_pairs()

    def _x(self, group: int, device: int) -> int:
        return group * self._devices + device

    def _start(self, group: int) -> int:
        return len(self._groups) * self._devices + group

    @property
    def _end(self) -> int:
        return len(self._groups) * (self._devices + 1)

    def _cut(self, edge: int) -> int:
        return self._end + 1 + edge

    def _first(self, pair: int) -> int:
        return self._end + 1 + len(self._edges) + pair

    @property
    def _count(self) -> int:
        return self._end + 1 + len(self._edges) + len(self._pairs)

    def solve(self, time_limit_s: float) -> ProgramAnswer | None:
        """The best placement found within the time; None where there is none below the bound."""
        bits = len(self._groups) * self._devices
        solved = self._built().solve(time_limit_s)
        if solved is None:
            return None
        values, is_optimal = solved
        placed = values[:bits].reshape(len(self._groups), self._devices)
        return ProgramAnswer(
            device_of=tuple(int(each) for each in placed.argmax(axis=1)),
            start_ms=tuple(float(each) for each in values[self._start(0) : self._end]),
            value_ms=float(values[self._end]),
            is_optimal=is_optimal,
        )

    def _built(self) -> IntegerProgram:
        upper = np.ones(self._count)
        upper[self._start(0) : self._end + 1] = self._bound_ms
        for group in range(len(self._groups)):
            for device in range(self._devices):
                barred = self._groups.cpu_only if device < self._fast else self._groups.accelerator_only
                if barred[group]:
                    upper[self._x(group, device)] = 0.0
        whole = np.zeros(self._count, dtype=bool)
        whole[: len(self._groups) * self._devices] = True
        whole[self._end + 1 + len(self._edges) :] = True
        cost = np.zeros(self._count)
        cost[self._end] = 1.0
        self._program = IntegerProgram(cost=cost, lower=np.zeros(self._count), upper=upper, whole=whole)
        for group in range(len(self._groups)):
            self._program.add_row([(self._x(group, device), 1.0) for device in range(self._devices)], 1.0, 1.0)
        self._add_constraints()
        return self._program

    def _add(self, terms: list[tuple[int, float]], limit: float) -> None:
        self._program.add_row(terms, high=limit)

    def _time_terms(self, group: int) -> list[tuple[int, float]]:
        fast_ms, cpu_ms = float(self._groups.accelerator_ms[group]), float(self._groups.cpu_ms[group])
        return [(self._x(group, device), fast_ms if device < self._fast else cpu_ms) for device in range(self._devices)]

    def _add_constraints(self) -> None:
        groups = self._groups
        for number, (first, second) in enumerate(self._edges):
            cost = groups.edges[first, second] * self._transfers
            wait = [(self._start(first), 1.0), (self._start(second), -1.0), (self._cut(number), cost)]
            self._add([*wait, *self._time_terms(first)], 0.0)
            for device in range(self._devices):
                terms = [(self._x(first, device), 1.0), (self._x(second, device), -1.0), (self._cut(number), -1.0)]
                self._add(terms, 0.0)
        for group in range(len(groups)):
            self._add([(self._start(group), 1.0), (self._end, -1.0), *self._time_terms(group)], 0.0)
        for device in range(self._fast):
            if np.isfinite(self._cap):
                sizes = [
                    (self._x(group, device), groups.memory_bytes[group] / self._cap) for group in range(len(groups))
                ]
                self._add(sizes, 1.0)
            if device:
                self._add_numbering(device)
        for number, (first, second) in enumerate(self._pairs):
            self._add_order(number, first, second)

    def _add_numbering(self, device: int) -> None:
        for group in range(len(self._groups)):
            earlier = [(self._x(before, device - 1), -1.0) for before in range(group)]
            self._add([(self._x(group, device), 1.0), *earlier], 0.0)

    def _add_order(self, number: int, first: int, second: int) -> None:
        """Groups on one device one after the other, the first before the second if the bit says so."""
        large = self._bound_ms
        for device in range(self._devices):
            both = [(self._x(first, device), large), (self._x(second, device), large)]
            ahead = [(self._start(first), 1.0), (self._start(second), -1.0), (self._first(number), large)]
            self._add([*ahead, *both], 3 * large - self._time_on(first, device))
            behind = [(self._start(second), 1.0), (self._start(first), -1.0), (self._first(number), -large)]
            self._add([*behind, *both], 2 * large - self._time_on(second, device))

    def _time_on(self, group: int, device: int) -> float:
        return float(self._groups.accelerator_ms[group] if device < self._fast else self._groups.cpu_ms[group])

    def _unordered_pairs(self) -> list[tuple[int, int]]:
        """Pairs of groups of which neither comes before the other, and which take time."""
        count = len(self._groups)
        reach = [1 << group for group in range(count)]
        for first, second in sorted(self._groups.edges, reverse=True):
            reach[first] |= reach[second]
        takes_time = self._groups.accelerator_ms > 0
        return [
            (first, second)
            for first in range(count)
            for second in range(first + 1, count)
            if takes_time[first] and takes_time[second] and not reach[first] >> second & 1
        ]
