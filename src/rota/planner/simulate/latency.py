"""The latency of a placement, by the model that its graph asks for.

Graphs that give transfers as times to and from the host follow the published model of calls; graphs with links are
simulated operator by operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.planner.description.problem import PlanningProblem
from rota.planner.plan import PlanStage
from rota.planner.simulate.calls import call_latency_ms
from rota.planner.simulate.loads import placed_stage
from rota.planner.simulate.operators import simulate_placement


def is_called(problem: PlanningProblem) -> bool:
    """Whether accelerators are called through the host's memory."""
    return not problem.devices.links and all(operator.transfer_ms is not None for operator in problem.graph.operators)


def placement_latency_ms(problem: PlanningProblem, stages: Sequence[PlanStage], order: Sequence[int] = ()) -> float:
    """How long one sample (or step) takes from its start to its end."""
    if is_called(problem):
        return call_latency_ms(problem, stages)
    device_of = {number: stage.devices[0] for stage in stages for number in stage.operators}
    return simulate_placement(problem, device_of, order).step_ms


def stages_of(problem: PlanningProblem, device_of: Mapping[int, str]) -> tuple[PlanStage, ...]:
    """One stage for each device that has operators, in the order in which devices are first needed."""
    found: dict[str, list[int]] = {}
    for number in problem.graph.topological_order:
        found.setdefault(device_of[number], []).append(number)
    return tuple(placed_stage(problem, device, operators) for device, operators in found.items())
