"""What a plan comes to, whichever planner made it: load, latency, a step of micro-batches, bubble and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from rota.planner.description.problem import PlanningProblem
from rota.planner.pipelines.fabric import Fabric
from rota.planner.plan import PlacementPlan, PlanStage
from rota.planner.simulate.latency import placement_latency_ms
from rota.planner.simulate.loads import max_load_ms
from rota.planner.simulate.operators import simulate_placement
from rota.planner.simulate.pipeline import PipelineChunk, PipelineSettings, simulate_pipeline
from rota.planner.simulate.schedules import PipelineSchedule
from rota.planner.simulate.tasks import StepTimeline


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """A plan by the evaluator's rules."""

    max_load_ms: float
    latency_ms: float | None
    """One sample on its own; None where stages are replicated."""
    step_ms: float
    """All micro-batches, whatever the planner's objective."""
    bubble: float
    peak_bytes: int
    timeline: StepTimeline


def plan_report(
    problem: PlanningProblem,
    plan: PlacementPlan,
    micro_batches: int,
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B,
) -> PlanReport:
    """Judge a plan by a step of micro-batches: through its stages as a pipeline.

    Where stages need each other's outputs both ways, they are no pipeline; samples then run one after the other.
    """
    is_replicated = any(len(stage.devices) > 1 for stage in plan.stages)
    latency_ms = None if is_replicated else placement_latency_ms(problem, plan.stages, plan.order)
    stages = plan.stages if is_replicated else _in_order(problem, plan.stages)
    if stages is None:
        timeline = simulate_placement(problem, plan.device_of(), plan.order)
        step_ms = micro_batches * timeline.step_ms
    else:
        chunks = [_chunk(problem, stage) for stage in stages]
        timeline = simulate_pipeline(chunks, PipelineSettings(micro_batches=micro_batches, schedule=schedule))
        step_ms = timeline.step_ms
    return PlanReport(
        max_load_ms=max_load_ms(plan.stages),
        latency_ms=latency_ms,
        step_ms=step_ms,
        bubble=timeline.bubble,
        peak_bytes=max(timeline.peak_bytes.values(), default=0),
        timeline=timeline,
    )


def _in_order(problem: PlanningProblem, stages: Sequence[PlanStage]) -> tuple[PlanStage, ...] | None:
    """Stages such that forward operators read from earlier ones only; None where there is no such order."""
    stage_of = {number: place for place, stage in enumerate(stages) for number in stage.operators}
    before: dict[int, set[int]] = {place: set() for place in range(len(stages))}
    for source, target in problem.graph.edges:
        is_forward = not (problem.graph.operators[source].is_backward or problem.graph.operators[target].is_backward)
        if is_forward and source in stage_of and target in stage_of and stage_of[source] != stage_of[target]:
            before[stage_of[target]].add(stage_of[source])
    if all(place > each for place, earlier in before.items() for each in earlier):
        return tuple(stages)
    try:
        return tuple(stages[place] for place in TopologicalSorter(before).static_order())
    except CycleError:
        return None


def _chunk(problem: PlanningProblem, stage: PlanStage) -> PipelineChunk:
    """A stage as one chunk whose transfers are part of its passes, as they are of its load."""
    operators = [problem.graph.operators[number] for number in stage.operators]
    device_type = problem.devices.devices[problem.devices.numbers[stage.devices[0]]].type
    backward_ms = sum(operator.time_ms[device_type] for operator in operators if operator.is_backward)
    return PipelineChunk(
        devices=stage.devices,
        forward_ms=stage.load_ms - backward_ms,
        backward_ms=backward_ms,
        weight_bytes=float(stage.memory_bytes),
        all_reduce_ms=Fabric(devices=problem.devices).all_reduce_ms(
            [problem.devices.numbers[name] for name in stage.devices], float(stage.memory_bytes)
        ),
        resident_bytes=float(sum(operator.resident_bytes for operator in operators)),
    )
