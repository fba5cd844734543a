"""The graph of operators: what each costs, what it sends on and what must stay with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rota.core.errors import RotaError

ACCELERATOR = "accelerator"
CPU = "cpu"
MOST_MS = 1e15
"""The longest time of an operator or transfer: some 30,000 years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOperator:
    """One operator (or layer): times by device type, the bytes it sends on and the bytes it keeps.

    A device type that `time_ms` does not name cannot run it. `transfer_ms`, where given, is the time to move its output
    between a device and the host's memory, whatever the link; otherwise `output_bytes` and the link decide.
    """

    name: str
    time_ms: Mapping[str, float]
    output_bytes: int = 0
    transfer_ms: float | None = None
    weight_bytes: float = 0
    resident_bytes: int = 0
    """Activations kept from the forward to the backward pass, for each micro-batch in flight."""
    colocation: str | None = None
    """Operators of one class must be on one device."""
    is_backward: bool = False
    backward_share: float = 0.0
    """The part of its time that is its backward pass, where one operator stands for both passes."""
    occupancy: float = 1.0
    """The fraction of a device that it keeps busy while it runs; the rest could run something beside it."""

    def __post_init__(self) -> None:
        if not self.time_ms:
            raise RotaError(f"operator {self.name!r} runs nowhere; give it a time on at least one device type")
        for device_type, time_ms in self.time_ms.items():
            if not 0 <= time_ms <= MOST_MS:
                raise RotaError(
                    f"operator {self.name!r}: time on {device_type} is {time_ms:g} ms; it must be from 0 to {MOST_MS:g}"
                )
        if not 0 <= self.backward_share <= 1:
            raise RotaError(
                f"operator {self.name!r}: backward share of {self.backward_share:g}; it must be from 0 to 1"
            )
        if not 0 < self.occupancy <= 1:
            raise RotaError(f"operator {self.name!r}: occupancy {self.occupancy:g}; it must be above 0 and at most 1")
        if self.transfer_ms is not None and not 0 <= self.transfer_ms <= MOST_MS:
            raise RotaError(
                f"operator {self.name!r}: transfer of {self.transfer_ms:g} ms; it must be from 0 to {MOST_MS:g}"
            )
        for label, count in (
            ("output", self.output_bytes),
            ("weights", self.weight_bytes),
            ("resident memory", self.resident_bytes),
        ):
            if count < 0:
                raise RotaError(f"operator {self.name!r}: {label} of {count} bytes; it must be 0 or more")


@dataclass(frozen=True, kw_only=True)
class OperatorGraph:
    """Operators and the edges from each to its readers; positions in `operators` are the operators' numbers."""

    operators: tuple[GraphOperator, ...]
    edges: tuple[tuple[int, int], ...]
    source: str = field(default="graph", compare=False)
    """Where it was read from, for messages."""

    def __post_init__(self) -> None:
        if not self.operators:
            raise RotaError(f"{self.source}: the graph has no operators")
        count = len(self.operators)
        for source, target in self.edges:
            if not (0 <= source < count and 0 <= target < count):
                raise RotaError(f"{self.source}: edge {source} -> {target} names an operator that is not there")
        if len(self.topological_order) < count:
            names = " -> ".join(self.operators[number].name for number in self._cycle())
            raise RotaError(f"{self.source}: the operators form a cycle: {names}; remove one of these edges")

    def __len__(self) -> int:
        return len(self.operators)

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the operators that read an operator's output, ascending and without repeats."""
        return _adjacent(len(self.operators), self.edges)

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the operators whose output an operator reads."""
        return _adjacent(len(self.operators), [(target, source) for source, target in self.edges])

    @cached_property
    def topological_order(self) -> tuple[int, ...]:
        """Numbers in an order in which inputs come first; short if there is a cycle.

        Of the operators that are ready, the one that became ready last comes next, so that branches stay together.
        """
        waiting = [len(before) for before in self.predecessors]
        ready = [number for number in reversed(range(len(self.operators))) if not waiting[number]]
        order: list[int] = []
        while ready:
            number = ready.pop()
            order.append(number)
            for after in reversed(self.successors[number]):
                waiting[after] -= 1
                if not waiting[after]:
                    ready.append(after)
        return tuple(order)

    def times_ms(self, device_type: str) -> np.ndarray:
        """Times on a device type by operator; infinite where the type cannot run it."""
        return np.array([operator.time_ms.get(device_type, math.inf) for operator in self.operators])

    @property
    def has_backward(self) -> bool:
        """Whether the graph is of training with its backward pass spelled out."""
        return any(operator.is_backward for operator in self.operators)

    def _cycle(self) -> list[int]:
        """Operators that form a cycle, the first one again at the end."""
        sorted_ones = set(self.topological_order)
        number = next(n for n in range(len(self.operators)) if n not in sorted_ones)
        seen: dict[int, int] = {}
        path: list[int] = []
        while number not in seen:
            seen[number] = len(path)
            path.append(number)
            number = next(before for before in self.predecessors[number] if before not in sorted_ones)
        loop = path[seen[number] :]
        loop.reverse()
        return [*loop, loop[0]] if len(loop) < 12 else [*loop[:11], loop[0]]


def _adjacent(count: int, edges: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    found: list[set[int]] = [set() for _ in range(count)]
    for source, target in edges:
        found[source].add(target)
    return tuple(tuple(sorted(each)) for each in found)
