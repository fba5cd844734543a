"""The program behind most of Gavel's policies: every job's progress relative to its need is at least t."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rota.mechanisms.arrays import Floats
from rota.mechanisms.rounds.rule import ShareQuestion, Shares
from rota.mechanisms.solvers.lp import Program, Programmed, Solution, Solver
from rota.policies.published.gavel.declare import LpParams
from rota.policies.published.gavel.layout import ProgramLayout

_SLACK = 1e-9
"""The relative loss of t that the second program may accept."""


@dataclass(frozen=True, slots=True)
class LeastOptimum:
    """The columns, their t, and by class the price of its need; prices add up to 1."""

    x: Floats
    t: float
    cost: Floats


def nothing(question: ShareQuestion) -> Shares:
    """Zero shares for all jobs: the defined outcome when a program has no solution."""
    return {(job.seq,): [0.0] * len(question.types) for job in question.jobs}


def inverse(amounts: Floats) -> Floats:
    """1 over each amount; 0 for 0."""
    above = amounts > 0
    return np.where(above, 1.0 / np.where(above, amounts, 1.0), 0.0)


def least_program(layout: ProgramLayout, need: Floats) -> Program:
    """Maximise t with (progress of one job of class k) >= need_k t; a class without need has an empty row."""
    program = layout.program(extra=1)
    column = layout.columns
    program.gain[column] = 1.0
    rows, columns, speeds = layout.progress()
    scale = inverse(need)
    needy = np.nonzero(need > 0)[0]
    program.add_rows(
        np.concatenate([rows, needy]),
        np.concatenate([columns, np.full(len(needy), column)]),
        np.concatenate([speeds * scale[rows], -layout.count[needy]]),
        np.zeros(len(layout.count)),
        np.full(len(layout.count), np.inf),
        [("served", key) for key in layout.keys],
    )
    return program


def serve_the_least(solver: Solver, layout: ProgramLayout, need: Floats, *, spare: bool) -> LeastOptimum | None:
    """The largest t, or None if there is none; with `spare`, of all such optima one with the most total progress.

    A class that can't run anywhere is left out: it would hold t at 0. Needs are scaled by the largest, so that t is not
    below the solver's tolerance.
    """
    need = np.where(layout.speeds.max(axis=1, initial=0.0) > 0, need, 0.0)
    if not layout.columns or not (need > 0).any():
        return None
    unit = float(need.max())
    program = least_program(layout, need / unit)
    last = len(program.row_lower)
    found = solver.solve(program)
    if not isinstance(found, Solution):
        return None
    cost = found.dual[last - len(need) : last] * np.where(need > 0, layout.count, 0.0)
    best = LeastOptimum(found.x[: layout.columns], found.objective / unit, cost)
    if not spare:
        return best
    rows, columns, speeds = layout.progress()
    column = layout.columns
    program.lower[column] = found.objective * (1 - _SLACK)
    program.gain[column] = 0.0
    scale = inverse(need / unit)
    np.add.at(program.gain, columns, speeds * scale[rows])
    better = solver.solve(program)
    return replace(best, x=better.x[: layout.columns]) if isinstance(better, Solution) else best


class ServesTheLeast(Programmed):
    """Rules of one program that maximises the least relative progress; they differ in the needs.

    Type-agnostic, aware of types, or with pairs as well.
    """

    backfills = True

    def __init__(self, params: LpParams, *, sees_types: bool, packs: bool = False) -> None:
        self.sees_types = sees_types
        super().__init__()
        self.packs = packs
        self._params = params

    def _serve(self, layout: ProgramLayout, need: Floats) -> Shares:
        """Shares that maximise the least progress relative to these needs; zeros if there is no solution."""
        best = serve_the_least(self._solver, layout, need, spare=self._params.spare)
        return nothing(layout.question) if best is None else layout.split(best.x)
