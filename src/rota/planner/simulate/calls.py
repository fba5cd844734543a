"""Latency of one sample where each accelerator is called once: inputs in, all of its operators, outputs out.

The model of Tarnawski et al. (NeurIPS 2020): a call starts when all inputs of its operators are ready, and its outputs
are ready when it ends. An operator on a CPU starts when its own inputs are ready; cores are as many as the graph is
wide. Operators of one accelerator that are not contiguous make several calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.planner.description.operators import CPU
from rota.planner.description.problem import PlanningProblem
from rota.planner.ideals.instance import transfer_cost_ms
from rota.planner.plan import PlanStage


def call_latency_ms(problem: PlanningProblem, stages: Sequence[PlanStage]) -> float:
    """When the last operator of one sample has ended."""
    pieces = [piece for stage in stages for piece in _pieces(problem, stage)]
    ended_ms = _last_end_ms(problem, pieces)
    if ended_ms is None:
        ended_ms = _last_end_ms(problem, _levelled(problem, stages))
    assert ended_ms is not None
    return ended_ms


def _pieces(problem: PlanningProblem, stage: PlanStage) -> list[tuple[str, list[int]]]:
    """The calls of one stage, each with the type of its device."""
    device_type = problem.devices.devices[problem.devices.numbers[stage.devices[0]]].type
    if device_type == CPU:
        return [(CPU, [number]) for number in stage.operators]
    return [(device_type, piece) for piece in contiguous_pieces(problem, stage.operators)]


def _levelled(problem: PlanningProblem, stages: Sequence[PlanStage]) -> list[tuple[str, list[int]]]:
    """Calls by how often paths change devices; no two such calls wait for each other."""
    device_of = {number: stage.devices[0] for stage in stages for number in stage.operators}
    types = {device.name: device.type for device in problem.devices.devices}
    level: dict[int, int] = {}
    pieces: dict[tuple[str, int], list[int]] = {}
    for number in problem.graph.topological_order:
        home = device_of[number]
        before = problem.graph.predecessors[number]
        level[number] = max((level[each] + (device_of[each] != home) for each in before), default=0)
        pieces.setdefault((home, level[number]), []).append(number)
    found: list[tuple[str, list[int]]] = []
    for (home, _), piece in pieces.items():
        if types[home] == CPU:
            found += [(CPU, [number]) for number in piece]
        else:
            found.append((types[home], piece))
    return found


def _last_end_ms(problem: PlanningProblem, calls: Sequence[tuple[str, list[int]]]) -> float | None:
    """When the last call has ended; None where calls wait for each other."""
    call_of = {number: call for call, (_, piece) in enumerate(calls) for number in piece}
    before: list[set[int]] = [set() for _ in calls]
    after: list[set[int]] = [set() for _ in calls]
    for source, target in problem.graph.edges:
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
        device_type, piece = calls[call]
        began_ms = max((end_ms[first] for first in before[call]), default=0.0)
        end_ms[call] = began_ms + _call_ms(problem, piece, device_type)
        for second in after[call]:
            waiting[second] -= 1
            if not waiting[second]:
                ready.append(second)
    return max(end_ms, default=0.0) if done == len(calls) else None


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
