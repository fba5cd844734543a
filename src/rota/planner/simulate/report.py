"""What a plan comes to, whichever planner made it: load, latency, a step of micro-batches, bubble and memory."""

from __future__ import annotations

from dataclasses import dataclass

from rota.planner.description.problem import PlanningProblem
from rota.planner.pipelines.fabric import Fabric
from rota.planner.plan import PlacementPlan, PlanObjective, PlanStage
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
    bubble: float
    peak_bytes: int
    timeline: StepTimeline


def plan_report(
    problem: PlanningProblem,
    plan: PlacementPlan,
    micro_batches: int,
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B,
) -> PlanReport:
    """Judge a plan: stages as a pipeline of micro-batches, or one step of operators where latency is the aim."""
    is_replicated = any(len(stage.devices) > 1 for stage in plan.stages)
    latency_ms = None if is_replicated else placement_latency_ms(problem, plan.stages, plan.order)
    if plan.objective is PlanObjective.LATENCY and not is_replicated:
        timeline = simulate_placement(problem, plan.device_of(), plan.order)
    else:
        chunks = [_chunk(problem, stage) for stage in plan.stages]
        timeline = simulate_pipeline(chunks, PipelineSettings(micro_batches=micro_batches, schedule=schedule))
    return PlanReport(
        max_load_ms=max_load_ms(plan.stages),
        latency_ms=latency_ms,
        step_ms=timeline.step_ms,
        bubble=timeline.bubble,
        peak_bytes=max(timeline.peak_bytes.values(), default=0),
        timeline=timeline,
    )


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
