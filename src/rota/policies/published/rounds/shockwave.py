"""Shockwave (Zheng et al., NSDI 2023): a market in which jobs buy rounds of a window of the future.

All jobs have the same budget in every window, and the market is cleared where the product of the jobs' progress is
largest (Eisenberg and Gale). Jobs that will end later than in a fair share of the cluster weigh more, and the longest
remaining time is penalised. Progress counts by its logarithm, approximated piecewise linearly.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rota.core.engine.protocols import Policy
from rota.core.errors import RotaError
from rota.mechanisms.arrays import Floats
from rota.mechanisms.declare import Knowledge, Traits
from rota.mechanisms.family import Build
from rota.mechanisms.rounds.declare import rounds
from rota.mechanisms.rounds.lease_rules import LeaseRules
from rota.mechanisms.rounds.rule import ShareQuestion, ShareRule, Shares
from rota.mechanisms.rounds.scheduler import RoundScheduler
from rota.mechanisms.solvers.lp import Ints, Program, Programmed, Solution

_POINTS = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
"""The points of the piecewise linear logarithm, as fractions of a job."""
_ORIGIN = 1e-6
"""Stands for no progress at all, whose logarithm is not finite."""
_SLOPES = np.diff(np.log(np.maximum(_POINTS, _ORIGIN))) / np.diff(_POINTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShockwaveParams:
    """The window is `future_rounds` rounds of `round_s`.

    `priority_power` is the exponent by which jobs below their fair share weigh more, `regularizer` the weight of the
    longest remaining time. The defaults are those of the published code on 32 GPUs, where they are `lambda` and `k`.
    """

    round_s: float = 120.0
    future_rounds: int = 20
    priority_power: float = 12.0
    regularizer: float = 1e-3

    def __post_init__(self) -> None:
        if not 0 < self.round_s < math.inf:
            raise RotaError(f"round_s is {self.round_s:g}; it must be a finite number above 0")
        if self.future_rounds < 1:
            raise RotaError(f"future_rounds is {self.future_rounds}; it must be 1 or more")
        if not (0 <= self.priority_power < math.inf and 0 <= self.regularizer < math.inf):
            raise RotaError("priority_power and regularizer must be numbers of 0 or more")

    @property
    def window_s(self) -> float:
        """How far the market looks ahead."""
        return self.round_s * self.future_rounds


@dataclass(frozen=True, slots=True)
class Outlook:
    """The state of jobs at their best speed: the fraction done, the seconds left and in total, and their weight."""

    done: Floats
    left_s: Floats
    total_s: Floats
    weight: Floats


def outlook(question: ShareQuestion, power: float) -> Outlook:
    """Predicted finish-time fairness: age plus remaining time, over total time, both under the present contention."""
    best = np.maximum(question.speeds.max(axis=1, initial=0.0), 1e-300)
    left_s = question.remaining / best
    did_s = np.array([job.live.work_done(question.now_s) for job in question.jobs]) / best
    total_s = np.maximum(did_s + left_s, 1e-9)
    contention = max(float(question.scale.sum()) / max(sum(question.devices), 1), 1.0)
    rho = (question.age_s + left_s * contention) / (total_s * contention)
    return Outlook(did_s / total_s, left_s, total_s, (rho / rho.max(initial=1e-300)) ** power)


class Shockwave(Programmed):
    """Clears the market of a window; what a job buys is its share of the window's time on each type."""

    sees_types = True
    packs = False
    backfills = True

    def __init__(self, params: ShockwaveParams) -> None:
        super().__init__()
        self._params = params

    def shares(self, question: ShareQuestion) -> Shares:
        """The fraction of the window that each job runs, by type."""
        runs = np.argwhere((question.speeds > 0) & (question.remaining > 0)[:, None]).astype(np.int64)
        jobs, kinds = runs[:, 0], runs[:, 1]
        rows: list[list[float]] = [[0.0] * len(question.types) for _ in question.jobs]
        if len(jobs):
            found = self._solver.solve(self._program(question, jobs, kinds))
            if isinstance(found, Solution):
                for job, kind, part in zip(jobs.tolist(), kinds.tolist(), found.x.tolist(), strict=False):
                    rows[job][kind] = min(part, 1.0)
        shares: dict[tuple[int, ...], Sequence[float]] = {
            (job.seq,): row for job, row in zip(question.jobs, rows, strict=True)
        }
        return shares

    def _program(self, question: ShareQuestion, jobs: Ints, kinds: Ints) -> Program:
        """Columns: time on a type as a fraction of the window; progress by segment; the longest remaining time."""
        view = outlook(question, self._params.priority_power)
        many, width, window_s = len(question.jobs), len(jobs), self._params.window_s
        room = np.maximum(_POINTS[1:] - np.maximum(view.done[:, None], _POINTS[:-1]), 0.0)
        of, segment = np.nonzero(room > 0)
        names = [job.seq for job in question.jobs]
        worth = view.weight[of] * _SLOPES[segment] / (many * self._params.future_rounds)
        scale = max(float(worth.max(initial=0.0)), 1e-300)
        program = Program(
            gain=np.concatenate([np.zeros(width), worth / scale, [-self._params.regularizer / scale]]),
            lower=np.zeros(width + len(of) + 1),
            upper=np.concatenate([np.ones(width), room[of, segment], [np.inf]]),
            columns=[
                *(("time", names[j], k) for j, k in zip(jobs.tolist(), kinds.tolist(), strict=True)),
                *(("done", names[j], s) for j, s in zip(of.tolist(), segment.tolist(), strict=True)),
                "rest",
            ],
        )
        none = np.full(len(question.types), -np.inf)
        time = np.arange(width)
        program.add_rows(
            kinds, time, question.scale[jobs], none, question.capacity, [("on", k) for k in question.types]
        )
        free = np.full(many, -np.inf)
        program.add_rows(jobs, time, np.ones(width), free, np.ones(many), [("job", name) for name in names])
        best = np.maximum(question.speeds.max(axis=1, initial=0.0), 1e-300)
        runs_s = question.speeds[jobs, kinds] / best[jobs] * window_s
        program.add_rows(
            np.concatenate([jobs, of]),
            np.concatenate([time, width + np.arange(len(of))]),
            np.concatenate([-runs_s / view.total_s[jobs], np.ones(len(of))]),
            np.zeros(many),
            np.zeros(many),
            [("progress", name) for name in names],
        )
        rest = np.full(many, width + len(of))
        program.add_rows(
            np.concatenate([jobs, np.arange(many)]),
            np.concatenate([time, rest]),
            np.concatenate([runs_s, np.ones(many)]),
            np.where(question.speeds.max(axis=1, initial=0.0) > 0, view.left_s, 0.0),
            np.full(many, np.inf),
            [("rest", name) for name in names],
        )
        return program


def _rule(values: ShockwaveParams, knowledge: Knowledge) -> Shockwave:
    return Shockwave(values)


def _schedule(rule: ShareRule, build: Build) -> Policy:
    return RoundScheduler(
        rule,
        build.knowledge.speed,
        name=build.name,
        round_s=build.values.round_s,
        lease_rules=LeaseRules(build.knowledge.restart_s),
        rng=random.Random(build.knowledge.seed),
        valid_s=build.values.window_s,
    )


shockwave = replace(rounds, schedule=_schedule)(
    "shockwave",
    _rule,
    cites="Zheng et al., NSDI 2023",
    summary="Jobs buy rounds of a window of the future, so that the product of their progress is largest.",
    traits=Traits(
        prior_knowledge="length, speed by type",
        scheduling_input="progress, predicted finish-time fairness",
        dimensions="time and space",
        priority="share bought over time served",
        preemption="at the end of rounds",
        starvation="no",
        placement="any",
        intrusiveness="checkpoint",
    ),
    params=ShockwaveParams,
    differs=(
        "jobs do not change their batch size, so that there are no changes of speed to foresee; the "
        "market is cleared by a linear program over fractions of the window, and rounds follow these."
    ),
)
