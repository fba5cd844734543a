"""Max-min fairness over effective throughput (Narayanan et al., section 4.1): the least served as well as can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rota.mechanisms.programs import Program, Solution, Solver
from rota.mechanisms.shares import Floats, Question, Shares
from rota.policies.gavel.declare import RoundParams, shares
from rota.policies.gavel.layout import Layout, lay_out

_SLACK = 1e-9
"""How far below the optimum a second look may go, as a part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LpParams(RoundParams):
    """As all of the family; `collapse` solves alike jobs as one, `spare` shares out what the least served leave."""

    collapse: bool = True
    spare: bool = True


def fair_factor(layout: Layout) -> Floats:
    """s_i / (w_i p_i), with p_i the mean speed over all devices: what a job's progress is measured in."""
    devices = layout.question.capacity
    mean = layout.speeds @ devices / max(devices.sum(), 1.0)
    weight = layout.first(layout.question.weight)
    return np.where(mean > 0, layout.scale / (weight * np.where(mean > 0, mean, 1.0)), 0.0)


def max_min_program(layout: Layout) -> Program:
    """Maximise z with factor_k * (progress of one job of class k) >= z for all that can run at all."""
    program = layout.program(extra=1)
    factor = fair_factor(layout)
    z = layout.columns
    program.gain[z] = 1.0
    rows, columns, speeds = layout.progress()
    able = np.nonzero(factor > 0)[0]
    program.add_rows(
        np.concatenate([rows, able]),
        np.concatenate([columns, np.full(len(able), z)]),
        np.concatenate([speeds * factor[rows], -layout.count[able]]),
        np.zeros(len(layout.count)),
        np.full(len(layout.count), np.inf),
        [("served", key) for key in layout.keys],
    )
    return program


class MaxMin:
    """One program whose columns are the shares; type-agnostic, aware of types, or with pairs as well."""

    backfills = True
    memory: Any = None

    def __init__(self, params: LpParams, *, sees_types: bool, packs: bool = False) -> None:
        self.sees_types = sees_types
        self.packs = packs
        self._params = params
        self._solver = Solver()

    def shares(self, question: Question) -> Shares:
        """The least served as well as can be; nothing for anybody if there is no solution."""
        speeds = None if self.sees_types else np.ones_like(question.speeds)
        layout = lay_out(question, speeds=speeds, packs=self.packs, collapse=self._params.collapse)
        if not layout.columns:
            return {(job.seq,): [0.0] * len(question.types) for job in question.jobs}
        program = max_min_program(layout)
        found = self._solver.solve(program)
        if not isinstance(found, Solution):
            return layout.split(np.zeros(layout.columns))
        if self._params.spare:
            found = self._use_what_is_left(layout, program, found)
        return layout.split(found.x)

    def _use_what_is_left(self, layout: Layout, program: Program, found: Solution) -> Solution:
        """Of all optima, one with the most progress in all: the least served are not the only ones who count."""
        factor = fair_factor(layout)
        rows, columns, speeds = layout.progress()
        z = layout.columns
        program.lower[z] = found.objective * (1 - _SLACK)
        program.gain[z] = 0.0
        np.add.at(program.gain, columns, speeds * factor[rows])
        better = self._solver.solve(program)
        return better if isinstance(better, Solution) else found


max_min_fairness = shares(
    "max_min_fairness",
    lambda params, knowledge: MaxMin(params, sees_types=False),
    summary="The least share as large as can be, all types taken as one.",
    params=LpParams,
    knows="none",
)
max_min_fairness_perf = shares(
    "max_min_fairness_perf",
    lambda params, knowledge: MaxMin(params, sees_types=True),
    summary="The least effective throughput as large as can be.",
    params=LpParams,
)
max_min_fairness_packed = shares(
    "max_min_fairness_packed",
    lambda params, knowledge: MaxMin(params, sees_types=True, packs=True),
    summary="The least effective throughput as large as can be, with two jobs on a device where that helps.",
    params=LpParams,
)
