"""Loads of the stages of a plan: compute, transfers in and out, and memory.

An accelerator pays for each operator whose output crosses its boundary, once for each operator however many readers
there are. A CPU works in the host's memory and pays for no transfer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.core.errors import RotaError
from rota.planner.description.operators import CPU
from rota.planner.description.problem import PlanningProblem
from rota.planner.ideals.instance import transfer_cost_ms
from rota.planner.plan import PlanStage


def placed_stage(problem: PlanningProblem, device: str, operators: Iterable[int]) -> PlanStage:
    """A stage on one device with its compute, transfers and memory."""
    chosen = tuple(sorted(operators))
    inside = set(chosen)
    device_type = problem.devices.devices[problem.devices.numbers[device]].type
    compute_ms = 0.0
    for number in chosen:
        operator = problem.graph.operators[number]
        if device_type not in operator.time_ms:
            raise RotaError(f"operator {operator.name!r} cannot run on {device} ({device_type})")
        compute_ms += operator.time_ms[device_type]
    transfer_ms = 0.0
    if device_type != CPU:
        transfer_ms = sum(transfer_cost_ms(problem, number) for number in _crossing(problem, inside))
    return PlanStage(
        devices=(device,),
        operators=chosen,
        compute_ms=compute_ms,
        transfer_ms=transfer_ms,
        memory_bytes=sum(problem.graph.operators[number].weight_bytes for number in chosen),
    )


def _crossing(problem: PlanningProblem, inside: set[int]) -> list[int]:
    """Operators whose output enters or leaves a set, each once."""
    graph = problem.graph
    leaving = {number for number in inside if any(reader not in inside for reader in graph.successors[number])}
    entering = {before for number in inside for before in graph.predecessors[number] if before not in inside}
    return sorted(leaving | entering)


def max_load_ms(stages: Sequence[PlanStage]) -> float:
    """The largest load of a stage: what limits the throughput of a pipeline."""
    return max((stage.load_ms / len(stage.devices) for stage in stages), default=0.0)


def refuse_misplaced(problem: PlanningProblem, stages: Sequence[PlanStage]) -> None:
    """Raise where a plan leaves an operator out, splits a co-location class or exceeds a device's memory."""
    device_of: dict[int, str] = {}
    held: dict[str, float] = {}
    for stage in stages:
        for number in stage.operators:
            if number in device_of:
                raise RotaError(f"operator {problem.graph.operators[number].name!r} is placed twice")
            device_of[number] = stage.devices[0]
        for device in stage.devices:
            held[device] = held.get(device, 0) + stage.memory_bytes
    home: dict[str, str] = {}
    for number, operator in enumerate(problem.graph.operators):
        if number not in device_of:
            raise RotaError(f"operator {operator.name!r} is placed nowhere")
        if (
            operator.colocation is not None
            and home.setdefault(operator.colocation, device_of[number]) != device_of[number]
        ):
            raise RotaError(
                f"class {operator.colocation} is split over {home[operator.colocation]} and {device_of[number]}"
            )
    for name, count_bytes in held.items():
        cap = problem.devices.devices[problem.devices.numbers[name]].memory_bytes
        if cap is not None and count_bytes > cap:
            raise RotaError(f"{name} would hold {count_bytes} bytes and has {cap}")
