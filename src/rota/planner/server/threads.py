"""`cc-os`: threads for each operator, and which operators run at the same time on a many-core CPU.

Liu et al. (IPDPS 2019): the number of threads of an operator is found by hill climbing over profiled runs; ready
operators that fit the cores left by those that run are started beside them. Times come from the problem, as
`cpu@THREADS`.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.planner.description.operators import CPU, GraphOperator, OperatorGraph
from rota.planner.description.problem import PlanningProblem
from rota.planner.options import DEFAULTS, PlannerOptions
from rota.planner.plan import PlacementPlan, PlanObjective, PlanStage, ReportProgress
from rota.planner.simulate.tasks import side_by_side

_PREFIX = f"{CPU}@"
_LOOKAHEAD = 64
"""Ready operators that may be left waiting before no other is looked at for the free cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadPlan:
    """Threads of each operator, in what order they start, and when the last ends."""

    threads: tuple[int, ...]
    order: tuple[int, ...]
    start_ms: tuple[float, ...]
    end_ms: tuple[float, ...]
    step_ms: float


def plan_threads(
    problem: PlanningProblem, options: PlannerOptions = DEFAULTS, report: ReportProgress | None = None
) -> PlacementPlan:
    """Threads by hill climbing and co-running, against all cores for one operator after the other."""
    began_s = time.process_time()
    graph = problem.graph
    tables = thread_times(graph)
    cores = max(max(table) for table in tables)
    alone_ms = sum(table[max(table)] for table in tables)
    caps = sorted({count for table in tables for count in table})
    best = min((co_run(graph, tables, cores, cap) for cap in caps), key=lambda plan: plan.step_ms)
    device = problem.devices.devices[0].name
    stage = PlanStage(
        devices=(device,),
        operators=tuple(range(len(graph))),
        compute_ms=best.step_ms,
        memory_bytes=sum(operator.weight_bytes for operator in graph.operators),
    )
    return PlacementPlan(
        planner="cc-os",
        objective=PlanObjective.LATENCY,
        value_ms=best.step_ms,
        stages=(stage,),
        seconds=time.process_time() - began_s,
        notes=(
            f"{cores} cores; all cores for one operator after the other: {alone_ms:.3f} ms",
            f"threads: {', '.join(f'{graph.operators[n].name} {best.threads[n]}' for n in best.order[:20])}",
        ),
        order=best.order,
        timeline=side_by_side(
            device,
            stage.memory_bytes,
            [(graph.operators[n].name, best.start_ms[n], best.end_ms[n]) for n in best.order],
        ),
    )


def thread_times(graph: OperatorGraph) -> list[dict[int, float]]:
    """Times by number of threads for each operator."""
    found = []
    for operator in graph.operators:
        table = _table(operator)
        if not table:
            raise RotaError(
                f'operator {operator.name!r} has no times by threads; give `time_ms` as {{"cpu@1": .., "cpu@4": ..}}'
            )
        found.append(table)
    return found


def _table(operator: GraphOperator) -> dict[int, float]:
    found = {}
    for name, time_ms in operator.time_ms.items():
        if name.startswith(_PREFIX):
            count = name.removeprefix(_PREFIX)
            if not count.isdigit() or int(count) < 1:
                raise RotaError(f"operator {operator.name!r}: {name!r} must name a number of threads, as cpu@4")
            found[int(count)] = time_ms
    return found


def climbed(table: Mapping[int, float]) -> int:
    """The number of threads from which neither fewer nor more are faster, climbed to from the most."""
    counts = sorted(table)
    place = len(counts) - 1
    while True:
        around = [other for other in (place - 1, place + 1) if 0 <= other < len(counts)]
        best = min(around, key=lambda other: table[counts[other]], default=place)
        if table[counts[best]] >= table[counts[place]]:
            return counts[place]
        place = best


def co_run(graph: OperatorGraph, tables: list[dict[int, float]], cores: int, cap: int | None = None) -> ThreadPlan:
    """Start ready operators beside those that run, longest way to the end first, with the threads that fit.

    An operator takes its best number of threads if that many cores are free; otherwise fewer, if it then still ends
    before it could on all cores later on. None takes more threads than `cap`, which leaves cores for others.
    """
    if cap is not None:
        tables = [{count: ms for count, ms in table.items() if count <= cap} or table for table in tables]
    best = [climbed(table) for table in tables]
    way_ms = [0.0] * len(graph)
    for number in reversed(graph.topological_order):
        after = max((way_ms[reader] for reader in graph.successors[number]), default=0.0)
        way_ms[number] = after + tables[number][best[number]]
    waiting = [len(before) for before in graph.predecessors]
    ready = [(-way_ms[number], number) for number, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    running: list[tuple[float, int]] = []
    threads, order, free, now_ms = [0] * len(graph), [], cores, 0.0
    start_ms, end_ms = [0.0] * len(graph), [0.0] * len(graph)
    while ready or running:
        kept: list[tuple[float, int]] = []
        while ready and free and len(kept) < _LOOKAHEAD:
            rank, number = heapq.heappop(ready)
            count = _threads_now(tables[number], best[number], free, running, now_ms)
            if count is None:
                kept.append((rank, number))
                continue
            threads[number], free = count, free - count
            order.append(number)
            start_ms[number], end_ms[number] = now_ms, now_ms + tables[number][count]
            heapq.heappush(running, (end_ms[number], number))
        for entry in kept:
            heapq.heappush(ready, entry)
        now_ms, number = heapq.heappop(running)
        free += threads[number]
        for reader in graph.successors[number]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, (-way_ms[reader], reader))
    return ThreadPlan(
        threads=tuple(threads), order=tuple(order), start_ms=tuple(start_ms), end_ms=tuple(end_ms), step_ms=now_ms
    )


def _threads_now(
    table: Mapping[int, float], best: int, free: int, running: list[tuple[float, int]], now_ms: float
) -> int | None:
    """The threads to start with now; None where waiting for the next operator to end is better."""
    fitting = [count for count in table if count <= free]
    if not fitting:
        return None
    count = min(fitting, key=lambda each: (table[each], each))
    if count == best or not running:
        return count
    next_end_ms = running[0][0]
    return count if now_ms + table[count] <= next_end_ms + table[best] else None
