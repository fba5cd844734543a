"""`abacus`: which operators of several queries overlap on one device, so that every query meets its bound.

Cui et al. (SC 2021): the query with the least headroom runs; operators of other queries join it as long as the
predicted time of the group leaves the headroom. Prediction: a group takes as long as its longest operator, or as all
of its work at the occupancy that it asks of the device, whichever is more; `slowdown` widens it as measured.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rota.core.errors import RotaError
from rota.planner.description.problem import PlanningProblem
from rota.planner.options import DEFAULTS, PlannerOptions
from rota.planner.plan import PlacementPlan, PlanObjective, PlanStage, ReportProgress
from rota.planner.simulate.tasks import side_by_side

_LOOKAHEAD = 32
"""The most urgent queries, of which operators may join a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapPredictor:
    """Predicted time of operators that run at once."""

    slowdown: float = 1.0

    def group_ms(self, members: Sequence[tuple[float, float]]) -> float:
        """Of (time alone, occupancy) pairs that run side by side."""
        longest = max(time_ms for time_ms, _ in members)
        if len(members) == 1:
            return longest
        work = sum(time_ms * occupancy for time_ms, occupancy in members)
        return max(longest, work) * self.slowdown


@dataclass(slots=True, kw_only=True)
class OverlapQuery:
    """Operators of one query in order, as (number, time alone, occupancy), and when it must be done."""

    operators: list[tuple[int, float, float]]
    deadline_ms: float
    done_ms: float | None = None
    next: int = 0
    _after_ms: list[float] = field(default_factory=list)
    """What is left before each operator; summed up once."""

    def left_ms(self) -> float:
        """What is left of it, alone."""
        if len(self._after_ms) != len(self.operators) + 1:
            self._after_ms = [0.0]
            for _, time_ms, _ in reversed(self.operators):
                self._after_ms.append(self._after_ms[-1] + time_ms)
            self._after_ms.reverse()
        return self._after_ms[self.next]

    def headroom_ms(self) -> float:
        """How late it can begin with the rest and still meet its bound, alone."""
        return self.deadline_ms - self.left_ms()

    def is_lost(self, now_ms: float) -> bool:
        """Whether it can no longer meet its bound, even alone."""
        return now_ms + self.left_ms() > self.deadline_ms + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapPlan:
    """Groups of operators that run at once, in order; when each query is done."""

    groups: tuple[tuple[int, ...], ...]
    ends_ms: tuple[float, ...]
    """When each group is done."""
    done_ms: tuple[float, ...]
    step_ms: float


@dataclass(slots=True)
class OverlapScheduler:
    """Forms groups until all queries are done."""

    queries: list[OverlapQuery]
    predictor: OverlapPredictor = field(default_factory=OverlapPredictor)

    def run(self) -> OverlapPlan:
        """Group after group, the most urgent query's next operator in each.

        The least headroom is first; queries that are lost already are last. A query's headroom changes only when one
        of its operators runs, so that queries wait in a heap.
        """
        now_ms, groups, ends_ms = 0.0, [], []
        open_ones = [(query.headroom_ms(), place) for place, query in enumerate(self.queries)]
        lost: list[tuple[float, int]] = []
        heapq.heapify(open_ones)
        while open_ones or lost:
            while open_ones and self.queries[open_ones[0][1]].is_lost(now_ms):
                heapq.heappush(lost, heapq.heappop(open_ones))
            urgent = [
                heapq.heappop(heap)[1]
                for heap, count in ((open_ones, _LOOKAHEAD), (lost, max(_LOOKAHEAD - len(open_ones), 0)))
                for _ in range(min(count, len(heap)))
            ]
            group = self._group([self.queries[place] for place in urgent], now_ms)
            now_ms += self.predictor.group_ms([(ms, share) for _, (_, ms, share) in group])
            groups.append(tuple(number for _, (number, _, _) in group))
            ends_ms.append(now_ms)
            for query, _ in group:
                query.next += 1
                if query.next == len(query.operators):
                    query.done_ms = now_ms
            for place in urgent:
                if self.queries[place].done_ms is None:
                    heapq.heappush(open_ones, (self.queries[place].headroom_ms(), place))
        done_ms = tuple(query.done_ms or 0.0 for query in self.queries)
        return OverlapPlan(groups=tuple(groups), ends_ms=tuple(ends_ms), done_ms=done_ms, step_ms=now_ms)

    def _group(self, urgent: list[OverlapQuery], now_ms: float) -> list[tuple[OverlapQuery, tuple[int, float, float]]]:
        """The urgent query's operator and those of others that shorten the whole and break no bound."""
        group = [(urgent[0], urgent[0].operators[urgent[0].next])]
        for query in urgent[1:]:
            candidate = [*group, (query, query.operators[query.next])]
            together = self.predictor.group_ms([(ms, share) for _, (_, ms, share) in candidate])
            before = self.predictor.group_ms([(ms, share) for _, (_, ms, share) in group])
            gains = together < before + candidate[-1][1][1]
            if gains and all(self._stays_timely(other, now_ms, now_ms + together) for other, _ in candidate):
                group = candidate
        return group

    def _stays_timely(self, query: OverlapQuery, now_ms: float, then_ms: float) -> bool:
        """Whether a query can still meet its bound after a group; one that is lost already does not count."""
        rest_ms = query.left_ms() - query.operators[query.next][1]
        return query.is_lost(now_ms) or then_ms + rest_ms <= query.deadline_ms + 1e-9


def plan_overlap(
    problem: PlanningProblem, options: PlannerOptions = DEFAULTS, report: ReportProgress | None = None
) -> PlacementPlan:
    """Groups for the queries of a problem: the parts of its graph that no edge connects."""
    began_s = time.process_time()
    device = problem.devices.devices[0]
    queries = graph_queries(problem, options.deadline_ms)
    alone_ms = sum(query.left_ms() for query in queries)
    found = OverlapScheduler(queries).run()
    late = sum(done > query.deadline_ms for done, query in zip(found.done_ms, queries, strict=True))
    stage = PlanStage(
        devices=(device.name,),
        operators=tuple(range(len(problem.graph))),
        compute_ms=found.step_ms,
        memory_bytes=sum(operator.weight_bytes for operator in problem.graph.operators),
    )
    return PlacementPlan(
        planner="abacus",
        objective=PlanObjective.LATENCY,
        value_ms=found.step_ms,
        stages=(stage,),
        seconds=time.process_time() - began_s,
        notes=(
            f"{len(queries)} queries in {len(found.groups)} groups, {late} late",
            f"one after the other: {alone_ms:.3f} ms",
        ),
        order=tuple(number for group in found.groups for number in group),
        timeline=side_by_side(
            device.name,
            stage.memory_bytes,
            [
                (problem.graph.operators[number].name, start_ms, end_ms)
                for group, (start_ms, end_ms) in zip(found.groups, pairwise((0.0, *found.ends_ms)), strict=True)
                for number in group
            ],
        ),
    )


def graph_queries(problem: PlanningProblem, deadline_ms: float | None) -> list[OverlapQuery]:
    """The connected parts of a graph, each in topological order."""
    device_type = problem.devices.devices[0].type
    part = list(range(len(problem.graph)))

    def find(number: int) -> int:
        while part[number] != number:
            part[number] = part[part[number]]
            number = part[number]
        return number

    for source, target in problem.graph.edges:
        part[find(source)] = find(target)
    found: dict[int, OverlapQuery] = {}
    for number in problem.graph.topological_order:
        operator = problem.graph.operators[number]
        if device_type not in operator.time_ms:
            raise RotaError(f"operator {operator.name!r} has no time on {device_type}, the device of all queries")
        query = found.setdefault(find(number), OverlapQuery(operators=[], deadline_ms=deadline_ms or float("inf")))
        query.operators.append((number, operator.time_ms[device_type], operator.occupancy))
    return list(found.values())
