"""`baechi`: memory-constrained list scheduling (Jeon et al., SoCC 2020): m-TOPO, m-ETF and m-SCT, the best of them."""

from __future__ import annotations

import time

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from rota.core.errors import RotaError
from rota.planner.description.problem import PlanningProblem
from rota.planner.methods.chains import filled_in_order
from rota.planner.methods.list_schedule import MemoryListScheduler
from rota.planner.options import DEFAULTS, PlannerOptions
from rota.planner.plan import PlacementPlan, PlanObjective, PlanStage, ReportProgress
from rota.planner.simulate.latency import placement_latency_ms, stages_of

_LARGEST_LP = 2000
"""Beyond so many operators, the favourite child is the reader with the longest transfer."""
_FAVOURITE = 0.5


def plan_baechi(
    problem: PlanningProblem, options: PlannerOptions = DEFAULTS, report: ReportProgress | None = None
) -> PlacementPlan:
    """The variant with the least latency."""
    began_s = time.process_time()
    found: list[tuple[float, str, tuple[PlanStage, ...], tuple[int, ...]]] = []
    refused: list[str] = []
    for done, (name, balanced) in enumerate((("m-TOPO", False), ("m-TOPO balanced", True))):
        device_of = filled_in_order(problem, balanced=balanced)
        if device_of is not None:
            stages = stages_of(problem, device_of)
            found.append((placement_latency_ms(problem, stages), name, stages, ()))
        if report is not None:
            report((done + 1) / 4)
    for name in ("m-ETF", "m-SCT"):
        scheduler = MemoryListScheduler(problem, favourite_children(problem) if name == "m-SCT" else {})
        try:
            stages = stages_of(problem, scheduler.run())
        except RotaError as err:
            refused.append(f"{name}: {err}")
            continue
        order = tuple(scheduler.order)
        found.append((placement_latency_ms(problem, stages, order), name, stages, order))
    if not found:
        raise RotaError(refused[0])
    value_ms, _, stages, order = min(found, key=lambda each: each[0])
    return PlacementPlan(
        planner="baechi",
        objective=PlanObjective.LATENCY,
        value_ms=value_ms,
        stages=stages,
        seconds=time.process_time() - began_s,
        notes=(*(f"{each[1]}: {each[0]:.3f} ms" for each in found), *refused),
        order=order,
    )


def favourite_children(problem: PlanningProblem) -> dict[int, int]:
    """The reader of each operator that should follow it on its device; an operator is the favourite of one at most.

    The linear program of SCT, without processors: an edge's transfer is paid unless the edge is a favourite one, and
    each operator has at most one favourite reader and is one of at most one. Edges above a half are rounded up.
    """
    edges = sorted({(source, target) for source, target in problem.graph.edges})
    costs = np.array([_typical_transfer_ms(problem, source) for source, _ in edges])
    if not edges:
        return {}
    values = _by_transfer(edges, costs) if len(problem.graph) > _LARGEST_LP else _by_program(problem, edges, costs)
    found: dict[int, int] = {}
    taken: set[int] = set()
    for place in np.lexsort((np.arange(len(edges)), -values)):
        source, target = edges[place]
        if values[place] > _FAVOURITE and source not in found and target not in taken:
            found[source] = target
            taken.add(target)
    return found


def _by_transfer(edges: list[tuple[int, int]], costs: np.ndarray) -> np.ndarray:
    return np.asarray(np.where(costs > 0, 1.0 + costs / max(float(costs.max()), 1e-12), 0.0))


def _by_program(problem: PlanningProblem, edges: list[tuple[int, int]], costs: np.ndarray) -> np.ndarray:
    """How much each edge is a favourite one, 0 to 1."""
    count, arcs = len(problem.graph), len(edges)
    times = [min(operator.time_ms.values()) for operator in problem.graph.operators]
    # Variables: start of each operator, the makespan, and the share of each edge that is favourite.
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    limits: list[float] = []

    def add(terms: list[tuple[int, float]], limit: float) -> None:
        for column, value in terms:
            rows.append(len(limits))
            columns.append(column)
            values.append(value)
        limits.append(limit)

    outgoing: dict[int, list[int]] = {}
    incoming: dict[int, list[int]] = {}
    for place, (source, target) in enumerate(edges):
        cost = float(costs[place])
        add([(source, 1.0), (target, -1.0), (count + 1 + place, -cost)], -times[source] - cost)
        outgoing.setdefault(source, []).append(place)
        incoming.setdefault(target, []).append(place)
    for number in range(count):
        add([(number, 1.0), (count, -1.0)], -times[number])
    for places in (*outgoing.values(), *incoming.values()):
        if len(places) > 1:
            add([(count + 1 + place, 1.0) for place in places], 1.0)
    target_row = np.zeros(count + 1 + arcs)
    target_row[count] = 1.0
    matrix = coo_matrix((values, (rows, columns)), shape=(len(limits), count + 1 + arcs)).tocsr()
    bounds = [(0, None)] * (count + 1) + [(0, 1)] * arcs
    solved = linprog(target_row, A_ub=matrix, b_ub=limits, bounds=bounds, method="highs")
    return np.asarray(solved.x[count + 1 :]) if solved.x is not None else _by_transfer(edges, costs)


def _typical_transfer_ms(problem: PlanningProblem, number: int) -> float:
    operator = problem.graph.operators[number]
    if operator.transfer_ms is not None:
        return operator.transfer_ms
    return max((link.time_ms(operator.output_bytes) for link in problem.devices.links), default=0.0)
