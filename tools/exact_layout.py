"""The optimal layout of a small batch by an integer program, to measure the gap of the heuristics.

Distances are by level, so the distance of a pair is the farthest one less the savings of sharing a domain, a rack or a
node. For a job with servers, the pairs within a cell are counted by its number of servers. For a ring only the entered
cells matter; if there is only one at a level, entering it is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from rota.core.model.cluster import Node
from rota.mechanisms.network.layout import PlacementBatch
from rota.mechanisms.solvers.lp import NoSolution, Program, Solution, Solver
from rota.perf.speed.network import Weighting

_Terms = dict[int, float]
"""Coefficients by column."""


def optimum(batch: PlacementBatch, nodes: Sequence[Node], weighting: Weighting, *, gap: float = 1e-6) -> float | None:
    """Return the minimum score of all layouts; None if there is no layout. Weightings by count are not supported."""
    assert not weighting.by_count
    model = _Model(batch, nodes, weighting)
    answer = Solver().solve(model.program(gap))
    if isinstance(answer, NoSolution):
        return None
    assert isinstance(answer, Solution)
    return model.fixed - answer.objective


@dataclass(slots=True)
class _Model:
    """Columns and rows from which the program is built."""

    batch: PlacementBatch
    nodes: Sequence[Node]
    weighting: Weighting
    gains: list[float] = field(default_factory=list)
    uppers: list[float] = field(default_factory=list)
    wholes: list[bool] = field(default_factory=list)
    rows: list[tuple[_Terms, float]] = field(default_factory=list)
    """Rows, each with its upper bound."""
    fixed: float = 0.0
    """The constant part of the cost, against which gains are counted."""

    def column(self, gain: float, upper: float, *, whole: bool = True) -> int:
        self.gains.append(gain)
        self.uppers.append(upper)
        self.wholes.append(whole)
        return len(self.gains) - 1

    def at_most(self, terms: _Terms, high: float) -> None:
        self.rows.append((terms, high))

    def program(self, gap: float) -> Program:
        used = [self.column(-1.0 / len(self.batch.tasks), 1.0) for _ in self.nodes]
        loads: list[list[_Terms]] = [[{} for _ in range(4)] for _ in self.nodes]
        for job in range(len(self.batch.jobs)):
            self._job(job, used, loads)
        for node, terms in enumerate(loads):
            for amount, each in zip(self.batch.free[node], terms, strict=True):
                if each:
                    self.at_most(each, amount)
        program = Program(
            gain=np.array(self.gains),
            lower=np.zeros(len(self.gains)),
            upper=np.array(self.uppers),
            whole=np.array(self.wholes),
            gap=gap,
        )
        for row, high in self.rows:
            program.add_row(np.array(list(row)), np.array(list(row.values())), high=high)
        return program

    def _job(self, job: int, used: list[int], loads: list[list[_Terms]]) -> None:
        """Add columns for the number of tasks of each role on each node, and their cost."""
        tasks = [self.batch.tasks[number] for number in self.batch.by_job[job]]
        servers: dict[int, _Terms] = {}
        others: dict[int, _Terms] = {}
        for role in sorted({task.role for task in tasks}):
            alike = [task for task in tasks if task.role == role]
            here: _Terms = {}
            for node in alike[0].nodes:
                column = self.column(0.0, len(alike))
                here[column] = 1.0
                (servers if alike[0].serves else others).setdefault(node, {})[column] = 1.0
                self.at_most({column: 1.0, used[node]: -float(len(alike))}, 0.0)
                for load, need in zip(loads[node], alike[0].needs, strict=True):
                    if need:
                        load[column] = float(need)
            self.at_most(here, len(alike))
            self.at_most(dict.fromkeys(here, -1.0), -len(alike))
        if self.batch.is_served[job]:
            self._pairs(job, servers, others, sum(task.serves for task in tasks), len(tasks))
        else:
            self._ring(job, others, len(tasks))

    def _levels(self, traffic: float) -> Iterable[tuple[list[list[int]], float]]:
        """Yield nodes, racks and domains as sets of nodes, with the savings of being within one."""
        by = self.weighting
        racks: dict[str, list[int]] = {}
        domains: dict[str, list[int]] = {}
        for index, node in enumerate(self.nodes):
            racks.setdefault(node.rack, []).append(index)
            domains.setdefault(node.domain, []).append(index)
        yield [[index] for index in range(len(self.nodes))], traffic * by.rack
        yield list(racks.values()), traffic * (by.domain - by.rack)
        yield list(domains.values()), traffic * (by.cluster - by.domain)

    def _pairs(self, job: int, servers: dict[int, _Terms], others: dict[int, _Terms], serving: int, tasks: int) -> None:
        """Limit, in each cell and for its first, second... server, the pairs to the number of workers."""
        traffic, workers = self.batch.traffic[job], tasks - serving
        self.fixed += traffic * self.weighting.cluster * serving * workers
        for cells, saved in self._levels(traffic):
            for cell in cells:
                inside = _together(servers, cell)
                working = _together(others, cell)
                if not inside or not working:
                    continue
                present: _Terms = {}
                for _ in range(serving):
                    has = self.column(0.0, 1.0)
                    present[has] = 1.0
                    pairs = self.column(saved, workers, whole=False)
                    self.at_most({pairs: 1.0, has: -float(workers)}, 0.0)
                    self.at_most({pairs: 1.0, **dict.fromkeys(working, -1.0)}, 0.0)
                self.at_most({**present, **dict.fromkeys(inside, -1.0)}, 0.0)

    def _ring(self, job: int, others: dict[int, _Terms], tasks: int) -> None:
        """Charge for each entered cell, except at a level with only one."""
        for cells, cost in self._levels(self.batch.traffic[job]):
            entered: _Terms = {}
            for cell in cells:
                inside = _together(others, cell)
                if inside:
                    column = self.column(-cost, 1.0)
                    entered[column] = 1.0
                    for each in inside:
                        self.at_most({each: 1.0, column: -float(tasks)}, 0.0)
            only = self.column(cost, 1.0)
            most = min(len(entered), tasks)
            self.at_most({**entered, only: float(most - 1)}, most)


def _together(by_node: dict[int, _Terms], cell: list[int]) -> _Terms:
    return {column: value for node in cell for column, value in by_node.get(node, {}).items()}
