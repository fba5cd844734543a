"""Finish-time fairness (Themis, Mahajan et al., NSDI 2020, as in Narayanan et al., section 4.2).

rho_i is the time that a job takes in the shared cluster over the time in an isolated 1/n share; the worst rho is
minimised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rota.mechanisms.arrays import Floats
from rota.mechanisms.rounds.rule import ShareQuestion, Shares
from rota.mechanisms.solvers.lp import Solver
from rota.policies.published.gavel.declare import LpParams, PackParams, SizeParams, gavel
from rota.policies.published.gavel.isolated import isolated_shares
from rota.policies.published.gavel.layout import ProgramLayout, fastest_everywhere, lay_out
from rota.policies.published.gavel.least import LeastOptimum, nothing, serve_the_least

_CLOSE = 1e-9
_STEPS = 60


@dataclass(frozen=True, slots=True)
class RhoNeeds:
    """The progress that jobs need for a rho: left / (rho alone_s - age); 0 for jobs that need or can make none."""

    age_s: Floats
    left: Floats
    alone_s: Floats
    runs: NDArray[np.bool_]

    def least_rho(self, fastest: Floats) -> float:
        """The worst rho at full speed."""
        end_s = self.age_s + self.left / np.where(self.runs, fastest, 1.0)
        return float((end_s / self.alone_s)[self.runs].max())

    def at(self, rho: float) -> Floats:
        """The progress that each job needs."""
        return np.where(self.runs, self.left / np.maximum(rho * self.alone_s - self.age_s, 1e-300), 0.0)

    def larger_rho(self, rho: float, best: LeastOptimum) -> float:
        """The rho from which all needs can be met, at their costs under the optimal shares for a smaller rho.

        That cost is convex and falls with rho, so that Newton's method approaches it from below.
        """
        cost, alone_s = best.cost[self.runs], self.alone_s[self.runs]
        was_s = rho * alone_s - self.age_s[self.runs]
        larger = rho
        for _ in range(_STEPS):
            left_s = larger * alone_s - self.age_s[self.runs]
            costs = cost * was_s / left_s
            step = (costs.sum() - best.t * cost.sum()) / (costs * alone_s / left_s).sum()
            if not step > _CLOSE * larger:
                break
            larger += float(step)
        return larger


def least_rho(
    solver: Solver, layout: ProgramLayout, age_s: Floats, left: Floats, alone_s: Floats, *, spare: bool
) -> tuple[LeastOptimum | None, float]:
    """Shares with the least worst (age + left / progress) / alone_s, and that rho.

    For a given rho, a program finds by which factor the needs of all can be met, and what each need costs; from the
    costs follows how large rho must be at least, which is the next one. It rises to the optimum as Newton's method
    does, where bisection would take thirty programs.
    """
    rows, _, speeds = layout.progress()
    fastest = np.zeros(len(left))
    np.maximum.at(fastest, rows, speeds)
    needs = RhoNeeds(age_s, left, alone_s, (layout.speeds.max(axis=1, initial=0.0) > 0) & (left > 0))
    if not needs.runs.any():
        return None, np.inf
    rho = needs.least_rho(fastest)
    best = serve_the_least(solver, layout, needs.at(rho), spare=False)
    for _ in range(_STEPS):
        if best is None:
            return None, np.inf
        larger = needs.larger_rho(rho, best)
        if larger <= rho * (1 + _CLOSE):
            break
        rho = larger
        best = serve_the_least(solver, layout, needs.at(rho), spare=False)
    if spare:
        best = serve_the_least(solver, layout, needs.at(rho), spare=True) or best
    return best, rho


class FinishTimeFairness:
    """Tracks what every job would have done by now in an isolated share of the cluster."""

    backfills = True

    def __init__(self, params: LpParams, *, sees_types: bool, packs: bool = False) -> None:
        self.sees_types = sees_types
        self.packs = packs
        self._params = params
        self._solver = Solver()
        self._isolated: dict[int, tuple[float, float, float]] = {}

    @property
    def memory(self) -> Any:
        """By job: isolated seconds for its past work, work left then, isolated speed then."""
        return {"alone": [[seq, *kept] for seq, kept in self._isolated.items()], "solver": self._solver.memory}

    def recall(self, memory: Any) -> None:
        """Restore the past of all jobs."""
        self._isolated = {seq: (past_s, left, speed) for seq, past_s, left, speed in memory["alone"]}
        self._solver.recall(memory["solver"])

    def shares(self, question: ShareQuestion) -> Shares:
        """Jobs differ in age and past, so that hardly any two are equivalent."""
        alone = self._alone_s(question)
        age, left = question.age_s, question.remaining
        layout = lay_out(
            question,
            speeds=None if self.sees_types else fastest_everywhere(question),
            packs=self.packs,
            alike=lambda row, job: (float(left[row]), float(age[row]), float(alone[row])),
            collapse=self._params.collapse,
        )
        if not layout.columns:
            return nothing(question)
        first = layout.first
        best, _ = least_rho(self._solver, layout, first(age), first(left), first(alone), spare=self._params.spare)
        return nothing(question) if best is None else layout.split(best.x)

    def _alone_s(self, question: ShareQuestion) -> Floats:
        """c_i + r_i / iso_i: the total time of each job in an isolated share of the cluster."""
        rows = isolated_shares(question, question.scale)
        speed = (rows * question.speeds).sum(axis=1)
        alone = np.ones(len(question.jobs))
        kept: dict[int, tuple[float, float, float]] = {}
        for row, job in enumerate(question.jobs):
            left, now = float(question.remaining[row]), float(speed[row])
            past_s, last_left, last_speed = self._isolated.get(job.seq, (0.0, left, now))
            past_s += (last_left - left) / last_speed if last_speed > 0 else 0.0
            kept[job.seq] = (past_s, left, now)
            if now > 0:
                alone[row] = max(past_s + left / now, 1e-9)
        self._isolated = kept
        return alone


finish_time_fairness = gavel(
    "finish_time_fairness",
    lambda params, knowledge: FinishTimeFairness(params, sees_types=False),
    summary="Minimise the worst ratio of shared to isolated completion time, ignoring differences between types.",
    params=LpParams,
    cites="Mahajan et al., NSDI 2020; Narayanan et al., OSDI 2020",
    knows="length, speed on the fastest type",
)
finish_time_fairness_perf = gavel(
    "finish_time_fairness_perf",
    lambda params, knowledge: FinishTimeFairness(params, sees_types=True),
    summary="Minimise the worst ratio of shared to isolated completion time.",
    params=SizeParams,
    cites="Mahajan et al., NSDI 2020; Narayanan et al., OSDI 2020",
    knows="length, speed by type",
)
finish_time_fairness_packed = gavel(
    "finish_time_fairness_packed",
    lambda params, knowledge: FinishTimeFairness(params, sees_types=True, packs=True),
    summary="Minimise the worst ratio of shared to isolated completion time, with pairs.",
    params=PackParams,
    packs=True,
    cites="Mahajan et al., NSDI 2020; Narayanan et al., OSDI 2020",
    knows="length, speed by type",
)
