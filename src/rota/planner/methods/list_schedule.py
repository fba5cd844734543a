"""List scheduling of operators under memory: earliest task first, with or without favourite children.

Baechi (Jeon et al., SoCC 2020) places operators so: m-ETF starts the operator that can start earliest, on the device
where it can; m-SCT also keeps a device for the favourite child of its last operator. An operator's class reserves its
memory when its first operator is placed, and binds the others.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from rota.core.errors import RotaError
from rota.planner.description.operators import CPU
from rota.planner.description.problem import PlanningProblem

_KEPT_CANDIDATES = 64
_LEAST_CANDIDATES = 2
_MANY_READY = 256
"""Where more operators are ready, fewer of them are looked at for each placement, so that the work stays linear."""

_LOOKS = 300_000
"""Ready operators that are looked at in all, so that graphs of 10,000 operators take seconds."""


@dataclass(slots=True)
class _DeviceState:
    free_ms: float = 0.0
    held_bytes: float = 0
    last: int | None = None


@dataclass(slots=True)
class MemoryListScheduler:
    """Places one operator after the other; `favourite` is the reader that should follow on the same device."""

    problem: PlanningProblem
    favourite: Mapping[int, int] = field(default_factory=dict)
    placed: dict[int, int] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    _end_ms: dict[int, float] = field(default_factory=dict)
    _arrivals_ms: dict[tuple[int, int], float] = field(default_factory=dict)
    _states: list[_DeviceState] = field(default_factory=list)
    _home: dict[str, int] = field(default_factory=dict)
    _class_bytes: dict[str, float] = field(default_factory=dict)
    _types: list[str] = field(default_factory=list)
    _usable: dict[str, list[int]] = field(default_factory=dict)

    def run(self) -> dict[int, str]:
        """The device of each operator."""
        graph, devices = self.problem.graph, self.problem.devices
        self._states = [_DeviceState() for _ in devices.devices]
        self._types = [device.type for device in devices.devices]
        for operator in graph.operators:
            if operator.colocation is not None:
                held = self._class_bytes.get(operator.colocation, 0)
                self._class_bytes[operator.colocation] = held + operator.weight_bytes
        waiting = [len(before) for before in graph.predecessors]
        queue: list[tuple[float, int]] = []
        for number, count in enumerate(waiting):
            if not count:
                heapq.heappush(queue, (0.0, number))
        while queue:
            number, device, start_ms = self._next(queue)
            self._place(number, device, start_ms)
            for reader in graph.successors[number]:
                waiting[reader] -= 1
                if not waiting[reader]:
                    ready_ms = max(self._end_ms[before] for before in graph.predecessors[reader])
                    heapq.heappush(queue, (ready_ms, reader))
        return {number: devices.devices[device].name for number, device in self.placed.items()}

    def _next(self, queue: list[tuple[float, int]]) -> tuple[int, int, float]:
        """The operator that can start earliest, and where; starts only get later, so old ones are lower bounds."""
        looked: list[tuple[float, int, int]] = []
        least_ms = math.inf
        most = min(_KEPT_CANDIDATES, _KEPT_CANDIDATES * _MANY_READY // len(queue), _LOOKS // len(self.problem.graph))
        most = max(_LEAST_CANDIDATES, most)
        while queue:
            bound_ms, number = heapq.heappop(queue)
            if looked and (bound_ms >= least_ms or len(looked) >= most):
                heapq.heappush(queue, (bound_ms, number))
                break
            start_ms, device = self._earliest(number)
            looked.append((start_ms, number, device))
            least_ms = min(least_ms, start_ms)
        start_ms, number, device = min(looked)
        for other_ms, other, _ in looked:
            if other != number:
                heapq.heappush(queue, (other_ms, other))
        return number, device, start_ms

    def _earliest(self, number: int) -> tuple[float, int]:
        operator = self.problem.graph.operators[number]
        bound = self._home.get(operator.colocation) if operator.colocation is not None else None
        best: tuple[float, float, int] | None = None
        for device in [bound] if bound is not None else self._candidates():
            if self._types[device] not in operator.time_ms or not self._fits(number, device):
                continue
            start_ms = max(self._states[device].free_ms, self._arrival_ms(number, device))
            last = self._states[device].last
            wanted = self.favourite.get(last) if last is not None else None
            if wanted is not None and wanted != number and wanted not in self.placed:
                start_ms += self.problem.graph.operators[wanted].time_ms.get(self._types[device], 0.0)
            end_ms = start_ms + operator.time_ms[self._types[device]]
            if best is None or (end_ms, start_ms, device) < best:
                best = (end_ms, start_ms, device)
        if best is None:
            raise RotaError(
                f"operator {operator.name!r} fits no device with what is placed already; add memory or devices"
            )
        return best[1], best[2]

    def _candidates(self) -> list[int]:
        """Devices worth looking at: of those that are still empty, one of each kind."""
        found, empty = [], set()
        for number, state in enumerate(self._states):
            if state.last is None:
                device = self.problem.devices.devices[number]
                kind = (device.type, device.memory_bytes)
                if kind in empty and not self.problem.devices.links:
                    continue
                empty.add(kind)
            found.append(number)
        return found

    def _fits(self, number: int, device: int) -> bool:
        cap = self.problem.devices.devices[device].memory_bytes
        operator = self.problem.graph.operators[number]
        if cap is None or (operator.colocation is not None and operator.colocation in self._home):
            return True
        needed = operator.weight_bytes if operator.colocation is None else self._class_bytes[operator.colocation]
        return self._states[device].held_bytes + needed <= cap

    def _arrival_ms(self, number: int, device: int) -> float:
        """When all inputs of an operator are on a device; settled once they are placed."""
        known = self._arrivals_ms.get((number, device))
        if known is not None:
            return known
        latest_ms = 0.0
        for before in self.problem.graph.predecessors[number]:
            home = self.placed[before]
            moved_ms = 0.0
            if home != device:
                moved_ms = self.problem.transfer_ms(before, home, device)
                if self.problem.graph.operators[before].transfer_ms is not None:
                    moved_ms *= (self._types[home] != CPU) + (self._types[device] != CPU)
            latest_ms = max(latest_ms, self._end_ms[before] + moved_ms)
        self._arrivals_ms[number, device] = latest_ms
        return latest_ms

    def _place(self, number: int, device: int, start_ms: float) -> None:
        operator = self.problem.graph.operators[number]
        state = self._states[device]
        if operator.colocation is None:
            state.held_bytes += operator.weight_bytes
        elif operator.colocation not in self._home:
            state.held_bytes += self._class_bytes[operator.colocation]
            self._home[operator.colocation] = device
        end_ms = start_ms + operator.time_ms[self._types[device]]
        state.free_ms, state.last = end_ms, number
        self._end_ms[number] = end_ms
        self.placed[number] = device
        self.order.append(number)
