"""`pipedream`: stages and their replication by dynamic programming (Narayanan et al., SOSP 2019).

The slowest stage is to be as fast as possible in steady state: A(j, m) is the best for the first j layers on the first
m devices; a last stage on m' of them takes its layers' time and its share of synchronising weights, divided by m', and
twice the activations of its input. Devices are taken in order, so that stages stay within nodes where they can.
"""

from __future__ import annotations

import itertools
import time

from rota.core.errors import RotaError
from rota.planner.description.problem import PlanningProblem
from rota.planner.ideals.instance import accelerator_type
from rota.planner.options import DEFAULTS, PlannerOptions
from rota.planner.pipelines.chain import LayerChain, layer_chain
from rota.planner.pipelines.fabric import Fabric
from rota.planner.pipelines.stages import (
    LayerStage,
    StageList,
    block_ms,
    cut_transfer_ms,
    placed_stages,
    stage_all_reduce_ms,
)
from rota.planner.plan import PlacementPlan, PlanObjective, ReportProgress

_MOST_LAYERS = 120
Cell = tuple[float, StageList]


def plan_pipedream(
    problem: PlanningProblem, options: PlannerOptions = DEFAULTS, report: ReportProgress | None = None
) -> PlacementPlan:
    """The plan with the fastest slowest stage, weights synchronised after each micro-batch as PipeDream does."""
    began_s = time.process_time()
    chain, fabric, devices = pipeline_problem(problem, "pipedream")
    small, places = chain.merged(_MOST_LAYERS)
    stages = best_pipedream(small, fabric, devices, report)
    if stages is None:
        raise RotaError(f"{problem.graph.source}: no stage fits the devices' memory; add memory or devices")
    value_ms = slowest_stage_ms(small, fabric, stages)
    stages = tuple(
        LayerStage(start=places[stage.start], end=places[stage.end], devices=stage.devices) for stage in stages
    )
    return PlacementPlan(
        planner="pipedream",
        objective=PlanObjective.THROUGHPUT,
        value_ms=value_ms,
        formula_ms=value_ms,
        stages=placed_stages(problem, chain, fabric, stages),
        seconds=time.process_time() - began_s,
    )


def pipeline_problem(problem: PlanningProblem, planner: str) -> tuple[LayerChain, Fabric, list[int]]:
    """The chain of layers, the fabric, and the numbers of the accelerators (or CPUs where there are only those)."""
    fast = accelerator_type(problem)
    for operator in problem.graph.operators:
        if fast not in operator.time_ms:
            raise RotaError(
                f"{planner} places all operators on {fast} devices, and operator {operator.name!r} cannot run there;"
                " take max-load, pesto or baechi"
            )
    return layer_chain(problem), Fabric(devices=problem.devices), problem.devices.of_type(fast)


def steady_ms(chain: LayerChain, fabric: Fabric, stage: LayerStage) -> float:
    """Time between two micro-batches of a stage on its own: compute and synchronisation, over its replicas."""
    return block_ms(chain, stage) + stage_all_reduce_ms(chain, fabric, stage) / len(stage.devices)


def slowest_stage_ms(chain: LayerChain, fabric: Fabric, stages: StageList) -> float:
    """What limits the pipeline: a stage, or a transfer there and back."""
    cuts = [2 * cut_transfer_ms(chain, fabric, first, second) for first, second in itertools.pairwise(stages)]
    return max([*(steady_ms(chain, fabric, stage) for stage in stages), *cuts])


def best_pipedream(
    chain: LayerChain, fabric: Fabric, devices: list[int], report: ReportProgress | None = None
) -> StageList | None:
    """The stages with the fastest slowest one on all of the devices, or fewer if more do not help."""
    layers, count = len(chain), len(devices)
    replicates = bool(fabric.devices.links)
    best: dict[tuple[int, int], Cell] = {(0, 0): (0.0, ())}
    for used in range(1, count + 1):
        for end in range(1, layers + 1):
            cell = _best_cell(chain, fabric, devices, best, end, used, replicates)
            if cell is not None:
                best[end, used] = cell
        if report is not None:
            report(used / count)
    finished = [best[layers, used] for used in range(1, count + 1) if (layers, used) in best]
    return min(finished, key=lambda cell: (cell[0], len(cell[1])))[1] if finished else None


def _best_cell(
    chain: LayerChain,
    fabric: Fabric,
    devices: list[int],
    best: dict[tuple[int, int], Cell],
    end: int,
    used: int,
    replicates: bool,
) -> Cell | None:
    found: Cell | None = None
    for taken in range(1, used + 1) if replicates else (1,):
        group = tuple(devices[used - taken : used])
        for start in range(end - 1, -1, -1):
            if found is not None and chain.stage_ms(start, end) / taken >= found[0]:
                break
            before = best.get((start, used - taken))
            if before is None or (found is not None and before[0] >= found[0]):
                continue
            stage = LayerStage(start=start, end=end, devices=group)
            if not _fits(chain, fabric, stage):
                break
            value_ms = max(before[0], steady_ms(chain, fabric, stage))
            if before[1]:
                value_ms = max(value_ms, 2 * cut_transfer_ms(chain, fabric, before[1][-1], stage))
            if found is None or value_ms < found[0]:
                found = (value_ms, (*before[1], stage))
    return found


def _fits(chain: LayerChain, fabric: Fabric, stage: LayerStage) -> bool:
    needed = chain.weight_bytes[stage.end] - chain.weight_bytes[stage.start]
    caps = [fabric.devices.devices[number].memory_bytes for number in stage.devices]
    return all(cap is None or needed <= cap for cap in caps)
