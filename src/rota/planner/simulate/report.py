"""What a plan comes to, whichever planner made it: load, latency, a step of micro-batches, bubble and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from rota.core.errors import RotaError
from rota.planner.description.problem import PlanningProblem
from rota.planner.pipelines.fabric import Fabric
from rota.planner.pipelines.interleaved import interleaved_chunks
from rota.planner.plan import PlacementPlan, PlanObjective, PlanStage
from rota.planner.simulate.latency import placement_latency_ms
from rota.planner.simulate.loads import max_load_ms
from rota.planner.simulate.operators import simulate_placement
from rota.planner.simulate.pipeline import PipelineChunk, PipelineSettings, simulate_pipeline
from rota.planner.simulate.schedules import PipelineSchedule
from rota.planner.simulate.tasks import StepTimeline

DEFAULT_CHUNKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings:
    """How the step of a plan is run; None: as its planner has it in mind."""

    micro_batches: int = 8
    schedule: PipelineSchedule | None = None
    chunks: int | None = None
    """Parts of the model on each device, for the interleaved schedule."""
    recompute: bool = False
    swap_bytes_per_ms: float | None = None

    def __post_init__(self) -> None:
        if self.chunks is not None and self.schedule is not PipelineSchedule.INTERLEAVED:
            raise RotaError(f"--chunks {self.chunks} is for --schedule interleaved; the others have one on each device")
        if self.chunks is not None and self.chunks < 1:
            raise RotaError(f"--chunks {self.chunks}; at least 1 is needed")
        if self.swap_bytes_per_ms is not None and not 0 < self.swap_bytes_per_ms < float("inf"):
            raise RotaError(f"--swap {self.swap_bytes_per_ms / 1e6:g} GB/s; it must be more than 0")

    @property
    def is_special(self) -> bool:
        """Whether anything but the number of micro-batches is asked for."""
        return self.schedule is not None or self.recompute or self.swap_bytes_per_ms is not None


USUAL_STEP = StepSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """A plan by the evaluator's rules."""

    evaluated_ms: float | None
    """What the planner's objective comes to by these rules; None where it is the latency of replicated stages."""
    max_load_ms: float
    latency_ms: float | None
    """One sample on its own; None where stages are replicated."""
    step_ms: float
    """All micro-batches, whatever the planner's objective."""
    bubble: float
    peak_bytes: int
    timeline: StepTimeline


def plan_report(problem: PlanningProblem, plan: PlacementPlan, settings: StepSettings = USUAL_STEP) -> PlanReport:
    """Judge a plan by a step of micro-batches: through its stages as a pipeline.

    Where stages need each other's outputs both ways, they are no pipeline; samples then run one after the other.
    """
    is_replicated = any(len(stage.devices) > 1 for stage in plan.stages)
    latency_ms = None if is_replicated else _latency_ms(problem, plan)
    stages = plan.stages if is_replicated else _in_order(problem, plan.stages)
    if settings.is_special and (stages is None or plan.timeline is not None):
        why = (
            "its step has an order of its own" if plan.timeline is not None else "its stages need each other's outputs"
        )
        raise RotaError(
            f"the plan of {plan.planner} is no pipeline: {why}; --schedule, --chunks, --recompute and --swap are for"
            " pipelines"
        )
    if plan.timeline is not None:
        timeline = plan.timeline
        step_ms = timeline.step_ms * (1 if plan.of_step else settings.micro_batches)
    elif stages is None:
        timeline = simulate_placement(problem, plan.device_of(), plan.order)
        step_ms = settings.micro_batches * timeline.step_ms
    else:
        timeline = _pipeline(problem, plan, stages, settings)
        step_ms = timeline.step_ms
    load_ms = max_load_ms(plan.stages)
    by_kind = load_ms if plan.objective is PlanObjective.THROUGHPUT else step_ms if plan.of_step else latency_ms
    return PlanReport(
        evaluated_ms=by_kind,
        max_load_ms=load_ms,
        latency_ms=latency_ms,
        step_ms=step_ms,
        bubble=timeline.bubble,
        peak_bytes=max(timeline.peak_bytes.values(), default=0),
        timeline=timeline,
    )


def _latency_ms(problem: PlanningProblem, plan: PlacementPlan) -> float:
    """One sample: by the planner's own order where it has one, else by the model that the graph asks for."""
    if plan.timeline is not None and not plan.of_step:
        return plan.timeline.step_ms
    return placement_latency_ms(problem, plan.stages, plan.order)


def _pipeline(
    problem: PlanningProblem, plan: PlacementPlan, stages: Sequence[PlanStage], settings: StepSettings
) -> StepTimeline:
    if settings.recompute or settings.swap_bytes_per_ms is not None:
        operators = problem.graph.operators
        if not any(operator.is_backward or operator.backward_share for operator in operators):
            raise RotaError(
                f"{problem.graph.source} has no backward pass; --recompute and --swap are for graphs of a training step"
            )
    schedule = settings.schedule or plan.schedule
    if schedule is PipelineSchedule.INTERLEAVED:
        chunks = interleaved_chunks(problem, [stage.devices for stage in stages], settings.chunks or DEFAULT_CHUNKS)
    else:
        chunks = [_chunk(problem, stage) for stage in stages]
    return simulate_pipeline(
        chunks,
        PipelineSettings(
            micro_batches=settings.micro_batches,
            schedule=schedule,
            recompute=settings.recompute,
            swap_bytes_per_ms=settings.swap_bytes_per_ms,
        ),
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
    backward_ms = sum(
        operator.time_ms[device_type] * (1.0 if operator.is_backward else operator.backward_share)
        for operator in operators
    )
    return PipelineChunk(
        devices=stage.devices,
        forward_ms=stage.load_ms - backward_ms,
        backward_ms=backward_ms,
        weight_bytes=float(stage.memory_bytes),
        input_bytes=float(_input_bytes(problem, stage)),
        all_reduce_ms=Fabric(devices=problem.devices).all_reduce_ms(
            [problem.devices.numbers[name] for name in stage.devices], float(stage.memory_bytes)
        ),
        resident_bytes=float(sum(operator.resident_bytes for operator in operators)),
    )


def _input_bytes(problem: PlanningProblem, stage: PlanStage) -> int:
    """What the forward operators of a stage read from others, each output once."""
    graph, inside = problem.graph, set(stage.operators)
    forward = [number for number in stage.operators if not graph.operators[number].is_backward]
    read = {before for number in forward for before in graph.predecessors[number]} - inside
    return sum(graph.operators[number].output_bytes for number in read)
