"""`dapple`: synchronous pipelines with replicated stages (Fan et al., PPoPP 2021).

Plans that are looked at: data parallelism alone, every cut into two stages with every split of the devices, equal
replication of any number of stages, and a dynamic program over layers and devices in use. Groups of devices are taken
by three policies: from fresh nodes first, from nodes in use first, or evenly over all. The formula for the length of
a step ranks them, the simulator of the early-backward schedule chooses among the best: of plans that are about as
short, the one with the fewest stages, since every stage has costs that a profile does not show.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from rota.core.errors import RotaError
from rota.planner.description.problem import PlanningProblem
from rota.planner.options import DEFAULTS, PlannerOptions
from rota.planner.pipelines.chain import LayerChain
from rota.planner.pipelines.fabric import Fabric
from rota.planner.pipelines.pipedream import pipeline_problem
from rota.planner.pipelines.stages import (
    LayerStage,
    StageList,
    analytic_step_ms,
    block_ms,
    cut_transfer_ms,
    pipeline_chunks,
    placed_stages,
    simulated_step,
)
from rota.planner.plan import PlacementPlan, PlanObjective, ReportProgress
from rota.planner.simulate.schedules import PipelineSchedule

_SIMULATED = 24
_ABOUT_AS_SHORT = 1.02
_MOST_LAYERS = 100
_PROGRAM_LAYERS = 24
_MOST_STAGES = 4


def plan_dapple(
    problem: PlanningProblem, options: PlannerOptions = DEFAULTS, report: ReportProgress | None = None
) -> PlacementPlan:
    """The synchronous pipeline with the shortest step for a number of micro-batches."""
    began_s = time.process_time()
    chain, fabric, devices = pipeline_problem(problem, "dapple")
    if len(devices) > 1 and not problem.devices.links:
        raise RotaError("dapple replicates stages and needs links between devices; add `links`, or give --devices")
    stages, value_ms = best_dapple(chain, fabric, devices, options.micro_batches, report)
    step = simulated_step(chain, fabric, stages, options.micro_batches)
    single_ms = chain.stage_ms(0, len(chain)) * options.micro_batches
    faster = single_ms / value_ms if value_ms > 0 else 1.0
    return PlacementPlan(
        planner="dapple",
        objective=PlanObjective.LATENCY,
        value_ms=value_ms,
        formula_ms=analytic_step_ms(chain, fabric, stages, options.micro_batches),
        schedule=PipelineSchedule.DAPPLE,
        of_step=True,
        stages=placed_stages(problem, chain, fabric, stages),
        seconds=time.process_time() - began_s,
        notes=(
            f"replicas {':'.join(str(len(stage.devices)) for stage in stages)}, {options.micro_batches} micro-batches",
            f"speed-up over one device {faster:.2f}, bubble {step.bubble:.1%}",
        ),
    )


def best_dapple(
    chain: LayerChain, fabric: Fabric, devices: list[int], micro_batches: int, report: ReportProgress | None = None
) -> tuple[StageList, float]:
    """The best plan and the length of its step in the simulator."""
    small, places = chain.merged(_MOST_LAYERS)
    coarse, coarse_places = chain.merged(_PROGRAM_LAYERS)
    plans = {_widened(plan, places) for plan in _direct_plans(small, fabric, devices)}
    if report is not None:
        report(0.4)
    plans |= {_widened(plan, coarse_places) for plan in _program_plans(coarse, fabric, devices)}
    if report is not None:
        report(0.7)
    fitting = [plan for plan in plans if _fits(chain, fabric, plan)]
    if not fitting:
        raise RotaError("no pipeline fits the devices' memory; add memory or devices")
    ranked = sorted(fitting, key=lambda plan: (analytic_step_ms(chain, fabric, plan, micro_batches), _shape(plan)))
    two = [plan for plan in ranked if len(plan) <= 2]
    tried = dict.fromkeys((*ranked[:_SIMULATED], *two[: _SIMULATED // 2]))
    judged = [(simulated_step(chain, fabric, plan, micro_batches).step_ms, plan) for plan in tried]
    limit_ms = min(step_ms for step_ms, _ in judged) * _ABOUT_AS_SHORT
    short = [each for each in judged if each[0] <= limit_ms]
    value_ms, plan = min(short, key=lambda each: (len(each[1]), each[0], _shape(each[1])))
    return plan, value_ms


def _shape(plan: StageList) -> tuple[object, ...]:
    return (len(plan), tuple((stage.start, stage.devices) for stage in plan))


def _widened(plan: StageList, places: list[int]) -> StageList:
    return tuple(LayerStage(start=places[each.start], end=places[each.end], devices=each.devices) for each in plan)


def _fits(chain: LayerChain, fabric: Fabric, plan: StageList) -> bool:
    caps = {device.name: device.memory_bytes for device in fabric.devices.devices}
    for chunk in pipeline_chunks(chain, fabric, plan):
        if any((cap := caps[name]) is not None and chunk.weight_bytes > cap for name in chunk.devices):
            return False
    return True


def _direct_plans(chain: LayerChain, fabric: Fabric, devices: list[int]) -> Iterator[StageList]:
    layers, count = len(chain), len(devices)
    yield (LayerStage(start=0, end=layers, devices=tuple(devices)),)
    for taken in range(1, count):
        for group in device_groups(fabric, devices, (), taken):
            rest = tuple(number for number in devices if number not in group)
            for cut in range(1, layers):
                yield (
                    LayerStage(start=0, end=cut, devices=group),
                    LayerStage(start=cut, end=layers, devices=rest),
                )
    for stages in range(2, count + 1):
        if count % stages == 0 and stages <= layers:
            yield _even_plan(chain, devices, stages)


def _even_plan(chain: LayerChain, devices: list[int], stages: int) -> StageList:
    """Stages of equally many devices whose slowest is as fast as possible."""
    layers, share = len(chain), len(devices) // stages
    best: list[list[tuple[float, int]]] = [[(chain.stage_ms(0, end), 0) for end in range(layers + 1)]]
    for _ in range(1, stages):
        row = []
        for end in range(layers + 1):
            options = ((max(best[-1][cut][0], chain.stage_ms(cut, end)), cut) for cut in range(end + 1))
            row.append(min(options))
        best.append(row)
    ends = [layers]
    for row in reversed(best[1:]):
        ends.append(row[ends[-1]][1])
    ends = [*ends[::-1]]
    starts = [0, *ends[:-1]]
    parts = [
        LayerStage(start=start, end=end, devices=tuple(devices[place * share : (place + 1) * share]))
        for place, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    return tuple(part for part in parts if part.end > part.start) or tuple(parts[:1])


def device_groups(fabric: Fabric, devices: list[int], occupied: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    """Groups of free devices by the three policies, without repeats."""
    taken = set(occupied)
    free = [[number for number in node if number in devices and number not in taken] for node in fabric.nodes]
    used_nodes = {fabric.node_of[number] for number in occupied}
    fresh = sorted(range(len(free)), key=lambda node: (node in used_nodes, node))
    append = sorted(range(len(free)), key=lambda node: (node not in used_nodes, node))
    found = [tuple(sorted([number for node in nodes for number in free[node]][:count])) for nodes in (fresh, append)]
    spread: list[int] = []
    depth = 0
    while len(spread) < count and depth < max(map(len, free), default=0):
        spread += [node[depth] for node in free if depth < len(node)][: count - len(spread)]
        depth += 1
    found.append(tuple(sorted(spread)))
    return list(dict.fromkeys(group for group in found if len(group) == count))


def _program_plans(chain: LayerChain, fabric: Fabric, devices: list[int]) -> Iterator[StageList]:
    """Plans of three and more stages: the least slowest block for each position and devices in use, then closed."""
    layers, count = len(chain), len(devices)
    sizes = sorted({size for size in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if size < count})
    level: dict[tuple[int, tuple[int, ...]], tuple[float, StageList]] = {(0, ()): (0.0, ())}
    for _ in range(1, min(_MOST_STAGES, count)):
        following: dict[tuple[int, tuple[int, ...]], tuple[float, StageList]] = {}
        for (start, occupied), (slowest_ms, plan) in level.items():
            groups = [
                group
                for size in sizes
                if size < count - len(occupied)
                for group in device_groups(fabric, devices, occupied, size)
            ]
            for end in range(start + 1, layers):
                for group in groups:
                    stage = LayerStage(start=start, end=end, devices=group)
                    value_ms = max(slowest_ms, block_ms(chain, stage))
                    if plan:
                        value_ms = max(value_ms, cut_transfer_ms(chain, fabric, plan[-1], stage))
                    key = (end, tuple(sorted((*occupied, *group))))
                    if key not in following or value_ms < following[key][0]:
                        following[key] = (value_ms, (*plan, stage))
        for (start, occupied), (_, plan) in following.items():
            if len(plan) > 1:
                rest = tuple(number for number in devices if number not in set(occupied))
                yield (*plan, LayerStage(start=start, end=layers, devices=rest))
        keep = sorted(following.items(), key=lambda item: (item[1][0], item[0]))
        level = dict(keep[:400])
