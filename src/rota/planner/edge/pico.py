"""`pico`: a pipeline of stages over unequal edge devices, each stage split over the devices of a group.

Yang et al. (arXiv 2206.08662): the graph is a chain of pieces; a dynamic program gives each stage a run of pieces and
a number of equal devices; then a greedy pass gives the fastest devices to the stages with the most work. A stage's
devices split the feature map, so that each computes a halo twice: `HALO` of a layer's work for each later layer of
the stage and each neighbour.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rota.core.errors import RotaError
from rota.planner.description.problem import PlanningProblem
from rota.planner.methods.coarsen import topological
from rota.planner.options import DEFAULTS, PlannerOptions
from rota.planner.plan import PlacementPlan, PlanObjective, PlanStage, ReportProgress

HALO = 0.01
_MOST_PIECES = 120


def plan_pico(
    problem: PlanningProblem, options: PlannerOptions = DEFAULTS, report: ReportProgress | None = None
) -> PlacementPlan:
    """The stages whose slowest is fastest."""
    began_s = time.process_time()
    pieces = _pieces(problem)
    speeds = _speeds(problem)
    works = [_work_ms(problem, piece) for piece in pieces]
    sent = _sent_ms(problem, pieces)
    layout = _equal_devices(works, sent, len(speeds), sum(speeds) / len(speeds))
    groups = _unequal_devices(works, layout, speeds)
    stages = tuple(
        _stage(problem, pieces, works, sent, layout[number][:2], group, speeds) for number, group in enumerate(groups)
    )
    value_ms = max(stage.load_ms / len(stage.devices) for stage in stages)
    alone_ms = sum(works) / max(speeds)
    return PlacementPlan(
        planner="pico",
        objective=PlanObjective.THROUGHPUT,
        value_ms=value_ms,
        stages=stages,
        seconds=time.process_time() - began_s,
        notes=(f"throughput {alone_ms / value_ms:.2f} times that of the fastest device alone",),
    )


def _pieces(problem: PlanningProblem) -> list[tuple[int, ...]]:
    """Runs of operators between places that one output crosses, at most so many."""
    graph = problem.graph
    order = topological(len(graph), tuple(graph.edges))
    place = {number: position for position, number in enumerate(order)}
    reach, pieces, start = 0, [], 0
    for position, number in enumerate(order):
        reach = max(reach, *(place[reader] for reader in graph.successors[number]), position)
        open_before = sum(
            1 for earlier in order[start : position + 1] if any(place[r] > position for r in graph.successors[earlier])
        )
        if open_before <= 1:
            pieces.append(tuple(order[start : position + 1]))
            start = position + 1
    if start < len(order):
        pieces.append(tuple(order[start:]))
    while len(pieces) > _MOST_PIECES:
        pieces = [tuple(number for piece in pieces[at : at + 2] for number in piece) for at in range(0, len(pieces), 2)]
    return pieces


def _speeds(problem: PlanningProblem) -> list[float]:
    """Speed of each device relative to the first device type, from the operators' times."""
    reference = problem.devices.types[0]
    totals: dict[str, float] = {}
    for device_type in problem.devices.types:
        times = [operator.time_ms.get(device_type) for operator in problem.graph.operators]
        if any(each is None for each in times):
            raise RotaError(f"pico needs times of all operators on {device_type}; some have none")
        totals[device_type] = sum(each or 0.0 for each in times)
    if not totals[reference]:
        raise RotaError("pico needs operators that take time")
    return [totals[reference] / max(totals[device.type], 1e-12) for device in problem.devices.devices]


def _work_ms(problem: PlanningProblem, piece: Sequence[int]) -> float:
    reference = problem.devices.types[0]
    return sum(problem.graph.operators[number].time_ms[reference] for number in piece)


def _sent_ms(problem: PlanningProblem, pieces: Sequence[tuple[int, ...]]) -> list[float]:
    """Time to hand on what each piece puts out, over the slowest link."""
    found = []
    for piece in pieces:
        inside = set(piece)
        total_ms = 0.0
        for number in piece:
            operator = problem.graph.operators[number]
            if any(reader not in inside for reader in problem.graph.successors[number]):
                slowest = max((link.time_ms(operator.output_bytes) for link in problem.devices.links), default=0.0)
                total_ms += slowest if operator.transfer_ms is None else operator.transfer_ms
        found.append(total_ms)
    return found


def _split_ms(works: Sequence[float], devices: int, speed: float) -> float:
    """Compute of a run of pieces that devices of one total speed split, halo included."""
    extra = HALO * (devices - 1) / devices if devices > 1 else 0.0
    count = len(works)
    return sum(work * (1 + extra * (count - 1 - place)) for place, work in enumerate(works)) / speed


def _equal_devices(
    works: Sequence[float], sent: Sequence[float], devices: int, speed: float
) -> list[tuple[int, int, int]]:
    """Stages as (start, end, devices) with the fastest slowest one, as if devices were alike."""
    count = len(works)
    best: dict[tuple[int, int], tuple[float, list[tuple[int, int, int]]]] = {(0, 0): (0.0, [])}
    for end in range(1, count + 1):
        for used in range(1, devices + 1):
            found: tuple[float, list[tuple[int, int, int]]] | None = None
            for start in range(end):
                for taken in range(1, used + 1):
                    before = best.get((start, used - taken))
                    if before is None or (found is not None and before[0] >= found[0]):
                        continue
                    load_ms = _split_ms(works[start:end], taken, taken * speed) + sent[end - 1]
                    value_ms = max(before[0], load_ms)
                    if found is None or value_ms < found[0]:
                        found = (value_ms, [*before[1], (start, end, taken)])
            if found is not None:
                best[end, used] = found
    finished = [best[count, used] for used in range(1, devices + 1) if (count, used) in best]
    return min(finished, key=lambda cell: (cell[0], len(cell[1])))[1]


def _unequal_devices(
    works: Sequence[float], layout: Sequence[tuple[int, int, int]], speeds: Sequence[float]
) -> list[list[int]]:
    """Devices for each stage: the fastest free one to the stage that is slowest with what it has."""
    groups: list[list[int]] = [[] for _ in layout]
    held = [0.0] * len(layout)
    for device in sorted(range(len(speeds)), key=lambda number: (-speeds[number], number)):
        empty = [at for at, group in enumerate(groups) if not group]
        if empty:
            slowest = max(empty, key=lambda at: sum(works[slice(*layout[at][:2])]))
        else:
            slowest = max(
                range(len(layout)),
                key=lambda at: _split_ms(works[slice(*layout[at][:2])], len(groups[at]), held[at]),
            )
        groups[slowest].append(device)
        held[slowest] += speeds[device]
    return groups


def _stage(
    problem: PlanningProblem,
    pieces: Sequence[tuple[int, ...]],
    works: Sequence[float],
    sent: Sequence[float],
    bounds: tuple[int, int],
    group: Sequence[int],
    speeds: Sequence[float],
) -> PlanStage:
    start, end = bounds
    numbers = sorted(number for piece in pieces[start:end] for number in piece)
    speed = sum(speeds[device] for device in group)
    return PlanStage(
        devices=tuple(problem.devices.devices[device].name for device in sorted(group)),
        operators=tuple(numbers),
        compute_ms=_split_ms(works[start:end], len(group), speed) * len(group),
        transfer_ms=sent[end - 1] * len(group) if end < len(works) else 0.0,
        memory_bytes=sum(problem.graph.operators[number].weight_bytes for number in numbers),
    )
