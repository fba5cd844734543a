"""Latency of one sample where each accelerator is called once: inputs in, all of its operators, outputs out.

The model of Tarnawski et al. (NeurIPS 2020): a call starts when all inputs of its operators are ready, and its outputs
are ready when it ends. An operator on a CPU starts when its own inputs are ready; cores are as many as the graph is
wide. Operators of one accelerator that are not contiguous make several calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.core.errors import RotaError
from rota.planner.description.operators import CPU
from rota.planner.description.problem import PlanningProblem
from rota.planner.ideals.instance import transfer_cost_ms
from rota.planner.plan import PlanStage


def call_latency_ms(problem: PlanningProblem, stages: Sequence[PlanStage]) -> float:
    """When the last operator of one sample has ended."""
    graph = problem.graph
    types = {device.name: device.type for device in problem.devices.devices}
    call_of: dict[int, int] = {}
    calls: list[list[int]] = []
    time_ms: list[float] = []
    for stage in stages:
        if types[stage.devices[0]] == CPU:
            pieces: Iterable[list[int]] = ([number] for number in stage.operators)
        else:
            pieces = contiguous_pieces(problem, stage.operators)
        for piece in pieces:
            for number in piece:
                call_of[number] = len(calls)
            calls.append(piece)
            time_ms.append(_call_ms(problem, piece, types[stage.devices[0]]))
    before: list[set[int]] = [set() for _ in calls]
    after: list[set[int]] = [set() for _ in calls]
    for source, target in graph.edges:
        first, second = call_of[source], call_of[target]
        if first != second:
            before[second].add(first)
            after[first].add(second)
    waiting = [len(each) for each in before]
    ready = [number for number, count in enumerate(waiting) if not count]
    end_ms = [0.0] * len(calls)
    done = 0
    while ready:
        call = ready.pop()
        done += 1
        end_ms[call] = max((end_ms[first] for first in before[call]), default=0.0) + time_ms[call]
        for second in after[call]:
            waiting[second] -= 1
            if not waiting[second]:
                ready.append(second)
    if done < len(calls):
        raise RotaError("the accelerators wait for each other; their operators are not contiguous")
    return max(end_ms, default=0.0)


def _call_ms(problem: PlanningProblem, piece: Sequence[int], device_type: str) -> float:
    graph = problem.graph
    time_ms = sum(graph.operators[number].time_ms[device_type] for number in piece)
    if device_type == CPU:
        return time_ms
    inside = set(piece)
    moved = {before for number in piece for before in graph.predecessors[number] if before not in inside}
    moved |= {number for number in piece if any(after not in inside for after in graph.successors[number])}
    return time_ms + sum(transfer_cost_ms(problem, number) for number in moved)


def contiguous_pieces(problem: PlanningProblem, operators: Iterable[int]) -> list[list[int]]:
    """Operators of one device by how often a path to them has left the device and come back."""
    inside = set(operators)
    depth = [0] * len(problem.graph)
    for number in problem.graph.topological_order:
        before = problem.graph.predecessors[number]
        if number in inside:
            depth[number] = max([1, *(depth[each] + (each not in inside) for each in before)])
        else:
            depth[number] = max([0, *(depth[each] for each in before)])
    pieces: dict[int, list[int]] = {}
    for number in sorted(inside):
        pieces.setdefault(depth[number], []).append(number)
    return [pieces[each] for each in sorted(pieces)]
