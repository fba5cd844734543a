"""A planning problem: one graph of operators on one graph of devices, checked against each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rota.core.errors import RotaError
from rota.planner.description.devices import DeviceGraph
from rota.planner.description.operators import OperatorGraph


@dataclass(frozen=True, kw_only=True)
class PlanningProblem:
    """Operators to be placed on devices."""

    graph: OperatorGraph
    devices: DeviceGraph

    def __post_init__(self) -> None:
        types = set(self.devices.types)
        for operator in self.graph.operators:
            if not types & set(operator.time_ms):
                wanted = ", ".join(sorted(operator.time_ms))
                raise RotaError(f"operator {operator.name!r} runs on {wanted} only, and there is no such device")

    def refuse_too_large(self) -> None:
        """Raise where no placement can hold the operators' weights; planners that swap need not ask."""
        limits = [device.memory_bytes for device in self.devices.devices]
        known = [limit for limit in limits if limit is not None]
        if len(known) < len(limits):
            return
        needed = sum(operator.weight_bytes for operator in self.graph.operators)
        if needed > sum(known):
            raise RotaError(
                f"{self.graph.source}: the operators need {needed} bytes and all devices together have {sum(known)};"
                " it never fits, add devices or memory"
            )
        largest = max(self.class_bytes.values())
        if largest > max(known):
            name = next(key for key, value in self.class_bytes.items() if value == largest)
            raise RotaError(
                f"{self.graph.source}: {name} needs {largest} bytes on one device and the largest has {max(known)};"
                " it never fits"
            )

    @cached_property
    def class_bytes(self) -> dict[str, float]:
        """Bytes that must be on one device, by co-location class or operator."""
        found: dict[str, float] = {}
        for operator in self.graph.operators:
            key = f"class {operator.colocation}" if operator.colocation is not None else f"operator {operator.name!r}"
            found[key] = found.get(key, 0) + operator.weight_bytes
        return found

    def transfer_ms(self, number: int, source: int, target: int) -> float:
        """Time to move an operator's output from one device to another."""
        if source == target:
            return 0.0
        operator = self.graph.operators[number]
        if operator.transfer_ms is not None:
            return operator.transfer_ms
        return self.devices.link(source, target).time_ms(operator.output_bytes)
