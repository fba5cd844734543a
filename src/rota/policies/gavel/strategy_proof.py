"""Shares that nobody gains by lying about: Nash welfare with discounts (Cole, Gkatzelis and Goel, EC 2013).

The product of all jobs' throughputs is made as large as can be; then everyone's share is cut to the part that
its presence leaves to the others. Used by Gavel as its strategy-proof policy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rota.mechanisms.programs import NoSolution, Solver
from rota.mechanisms.shares import Floats, Memoryless, Question, Shares
from rota.policies.gavel.declare import LpParams, shares
from rota.policies.gavel.layout import Layout, lay_out
from rota.policies.gavel.least import nothing, serve_the_least
from rota.policies.gavel.max_min import fair_need

_CLOSE = 1e-7
_CUTS = 80
"""Rounds of tangents before an answer is taken as good enough."""


def nash_welfare(layout: Layout, need: Floats, count: Floats) -> Floats | None:
    """Columns that maximise sum_k count_k log(progress_k / need_k), by Kelley's cutting planes.

    log u <= log u0 + (u - u0) / u0: each solution adds the tangents at its own point, until model and truth
    agree. `count` is how often each class enters the product; 0 leaves it out.
    """
    solver = Solver()
    first = serve_the_least(solver, layout, np.where(count > 0, need, 0.0), spare=True)
    if first is None:
        return None
    active = np.nonzero((count > 0) & (need > 0))[0]
    points = [np.maximum(layout.done(first.x)[active] / need[active], 1e-12)]
    x: Floats = first.x
    for _ in range(_CUTS):
        found = solver.solve(_tangents(layout, need, count, active, points))
        if isinstance(found, NoSolution):
            return x
        x = found.x[: layout.columns]
        reached = np.maximum(layout.done(x)[active] / need[active], 1e-12)
        truth = float(count[active] @ np.log(reached))
        if found.objective - truth <= _CLOSE * max(1.0, float(count[active].sum())):
            return x
        points.append(reached)
    return x


def _tangents(layout: Layout, need: Floats, count: Floats, active: NDArray[np.int64], points: list[Floats]) -> Any:
    program = layout.program(extra=len(active))
    at = layout.columns + np.arange(len(active))
    program.gain[at] = count[active]
    program.upper[at] = 60.0
    rows, columns, speeds = layout.progress()
    place = np.full(len(need), -1)
    place[active] = np.arange(len(active))
    mine = place[rows] >= 0
    rows, columns, speeds = place[rows[mine]], columns[mine], speeds[mine]
    own = np.arange(len(active))
    for number, point in enumerate(points):
        slope = 1.0 / (point * need[active] * layout.count[active])
        program.add_rows(
            np.concatenate([rows, own]),
            np.concatenate([columns, at]),
            np.concatenate([-speeds * slope[rows], np.ones(len(own))]),
            np.full(len(own), -np.inf),
            np.log(point) - 1.0,
            [(number, layout.keys[k]) for k in active.tolist()],
        )
    return program


def discounts(layout: Layout, need: Floats, x: Floats) -> Floats:
    """Of each class, what its one job leaves of the others' product, over what they would have without it."""
    done = np.maximum(layout.done(x), 1e-300)
    left = np.ones(len(need))
    for k in np.nonzero(need > 0)[0].tolist():
        count = layout.count.copy()
        count[k] -= 1
        without = nash_welfare(replace(layout, count=np.maximum(count, 1e-9)), need, count)
        if without is None:
            continue
        others = np.where(need > 0, count, 0.0)
        rows, columns, speeds = layout.progress()
        totals = np.bincount(rows, weights=speeds * without[columns], minlength=len(need)).astype(np.float64)
        alone = np.maximum(totals / np.maximum(count, 1e-9), 1e-300)
        here = others > 0
        left[k] = np.exp(min(float((others[here] * (np.log(done[here]) - np.log(alone[here]))).sum()), 0.0))
    return left


class StrategyProof(Memoryless):
    """Partial allocation: telling the truth about one's speeds is best for everybody."""

    sees_types = True
    packs = False
    backfills = True

    def __init__(self, params: LpParams) -> None:
        self._params = params

    def shares(self, question: Question) -> Shares:
        """Proportionally fair shares, each cut by its discount."""
        layout = lay_out(question, collapse=self._params.collapse)
        need = np.where(layout.speeds.max(axis=1, initial=0.0) > 0, fair_need(layout), 0.0)
        if not layout.columns:
            return nothing(question)
        x = nash_welfare(layout, need, np.where(need > 0, layout.count, 0.0))
        if x is None:
            return nothing(question)
        return layout.split(x * discounts(layout, need, x)[layout.one])


max_min_fairness_strategy_proof_perf = shares(
    "max_min_fairness_strategy_proof_perf",
    lambda params, knowledge: StrategyProof(params),
    summary="Proportionally fair shares with discounts, so that nobody gains by lying about speeds.",
    params=LpParams,
    cites="Cole, Gkatzelis and Goel, EC 2013; Narayanan et al., OSDI 2020",
)
