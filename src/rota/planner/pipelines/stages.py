"""A pipeline's plan, its length by formula and by simulation, and its form as a placement."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from rota.planner.description.problem import PlanningProblem
from rota.planner.pipelines.chain import LayerChain
from rota.planner.pipelines.fabric import Fabric
from rota.planner.plan import PlanStage
from rota.planner.simulate.pipeline import PipelineChunk, PipelineSettings, simulate_pipeline
from rota.planner.simulate.schedules import PipelineSchedule
from rota.planner.simulate.tasks import StepTimeline

OPTIMIZER_COPIES = 4
"""Weights, gradients and two states of the optimizer, as multiples of the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStage:
    """Layers from start up to, not including, end on devices by number; each micro-batch is split over them."""

    start: int
    end: int
    devices: tuple[int, ...]


StageList = tuple[LayerStage, ...]


def block_ms(chain: LayerChain, stage: LayerStage) -> float:
    """Forward and backward of one micro-batch on a stage."""
    return chain.stage_ms(stage.start, stage.end) / len(stage.devices)


def cut_transfer_ms(chain: LayerChain, fabric: Fabric, first: LayerStage, second: LayerStage) -> float:
    """Time to hand one micro-batch from a stage to the next."""
    by_link_ms = fabric.transfer_ms(first.devices, second.devices, float(chain.cut_bytes[first.end]))
    return by_link_ms + 2 * float(chain.cut_ms[first.end])


def stage_all_reduce_ms(chain: LayerChain, fabric: Fabric, stage: LayerStage) -> float:
    """Time to add up a stage's gradients over its devices."""
    return fabric.all_reduce_ms(stage.devices, float(chain.weight_bytes[stage.end] - chain.weight_bytes[stage.start]))


def analytic_step_ms(chain: LayerChain, fabric: Fabric, stages: StageList, micro_batches: int) -> float:
    """DAPPLE's length of a synchronous pipeline: the slowest block or transfer for all but one micro-batch, one way
    through and back, and gradients that later stages do not hide."""
    blocks = [block_ms(chain, stage) for stage in stages]
    cuts = [cut_transfer_ms(chain, fabric, first, second) for first, second in itertools.pairwise(stages)]
    slowest = max([*blocks, *cuts])
    through = sum(blocks) + 2 * sum(cuts)
    late = max(
        max(stage_all_reduce_ms(chain, fabric, stage) - place * slowest, 0.0) for place, stage in enumerate(stages)
    )
    return slowest * (micro_batches - 1) + through + late


def pipeline_chunks(chain: LayerChain, fabric: Fabric, stages: StageList) -> list[PipelineChunk]:
    """The stages as the simulator takes them."""
    found = []
    for place, stage in enumerate(stages):
        forward_ms = float(chain.forward_ms[stage.end] - chain.forward_ms[stage.start])
        both_ms = chain.stage_ms(stage.start, stage.end)
        weights = float(chain.weight_bytes[stage.end] - chain.weight_bytes[stage.start])
        has_next = place + 1 < len(stages)
        found.append(
            PipelineChunk(
                devices=tuple(fabric.devices.devices[number].name for number in stage.devices),
                forward_ms=forward_ms,
                backward_ms=both_ms - forward_ms,
                output_bytes=float(chain.cut_bytes[stage.end]) if has_next else 0.0,
                input_bytes=float(chain.cut_bytes[stage.start]) if place else 0.0,
                resident_bytes=float(chain.resident_bytes[stage.end] - chain.resident_bytes[stage.start]),
                weight_bytes=weights * OPTIMIZER_COPIES,
                transfer_ms=cut_transfer_ms(chain, fabric, stage, stages[place + 1]) if has_next else 0.0,
                all_reduce_ms=stage_all_reduce_ms(chain, fabric, stage),
            )
        )
    return found


def simulated_step(
    chain: LayerChain,
    fabric: Fabric,
    stages: StageList,
    micro_batches: int,
    schedule: PipelineSchedule = PipelineSchedule.DAPPLE,
    *,
    recompute: bool = False,
) -> StepTimeline:
    """One step of the plan, simulated."""
    settings = PipelineSettings(micro_batches=micro_batches, schedule=schedule, recompute=recompute)
    return simulate_pipeline(pipeline_chunks(chain, fabric, stages), settings)


def placed_stages(
    problem: PlanningProblem, chain: LayerChain, fabric: Fabric, stages: StageList
) -> tuple[PlanStage, ...]:
    """The plan with names, loads and memory."""
    found = []
    for place, stage in enumerate(stages):
        sent_ms = 0.0
        if place + 1 < len(stages):
            sent_ms += 2 * cut_transfer_ms(chain, fabric, stage, stages[place + 1])
        if place:
            sent_ms += 2 * cut_transfer_ms(chain, fabric, stages[place - 1], stage)
        found.append(
            PlanStage(
                devices=tuple(problem.devices.devices[number].name for number in stage.devices),
                operators=tuple(n for layer in chain.members[stage.start : stage.end] for n in layer),
                compute_ms=chain.stage_ms(stage.start, stage.end),
                transfer_ms=sent_ms,
                memory_bytes=int(chain.weight_bytes[stage.end] - chain.weight_bytes[stage.start]),
            )
        )
    return tuple(found)
