"""Strategy-proof shares: Nash welfare with discounts (Cole, Gkatzelis and Goel, EC 2013).

The product of all jobs' throughputs is maximised; then each share is reduced to the fraction that the job's presence
leaves to the others. Gavel's strategy-proof policy.
"""

from __future__ import annotations

import numpy as np

from rota.mechanisms.arrays import Floats
from rota.mechanisms.rounds.rule import Memoryless, ShareQuestion, Shares
from rota.policies.published.gavel.declare import LpParams, gavel
from rota.policies.published.gavel.layout import ProgramLayout, lay_out
from rota.policies.published.gavel.least import nothing
from rota.policies.published.gavel.nash import most_welfare

_AT_ONCE = 20_000
"""The limit on classes times questions that are solved together, for memory."""


def proportional(layout: ProgramLayout, counts: Floats) -> Floats:
    """By row of counts, the shares of one job of each class that maximise the product of throughputs."""
    fastest = layout.speeds.max(axis=1, keepdims=True, initial=0.0)
    speeds = layout.speeds / np.where(fastest > 0, fastest, 1.0)
    rows = max(_AT_ONCE // max(len(speeds), 1), 1)
    parts = [
        most_welfare(speeds, layout.scale, layout.question.capacity, counts[first : first + rows])
        for first in range(0, len(counts), rows)
    ]
    return np.concatenate(parts)


def without_one(count: Floats) -> Floats:
    """The counts of classes, and below that one row for each class with one job less."""
    return np.concatenate([count[None], np.maximum(count[None] - np.eye(len(count)), 0.0)])


def discounts(layout: ProgramLayout, counts: Floats, answers: Floats) -> Floats:
    """By class, the others' product with one job of it, over their product without it."""
    done = np.maximum((layout.speeds[None] * answers).sum(axis=2), 1e-300)
    lost = np.where(counts[1:] > 0, counts[1:] * (np.log(done[:1]) - np.log(done[1:])), 0.0)
    left: Floats = np.exp(np.minimum(lost.sum(axis=1), 0.0))
    return left


class StrategyProof(Memoryless):
    """Partial allocation: reporting true speeds is optimal for every job."""

    sees_types = True
    packs = False
    backfills = True

    def __init__(self, params: LpParams) -> None:
        self._params = params

    def shares(self, question: ShareQuestion) -> Shares:
        """Proportionally fair shares, each reduced by its discount."""
        layout = lay_out(question, collapse=self._params.collapse)
        if not layout.columns:
            return nothing(question)
        runs = layout.speeds.max(axis=1, initial=0.0) > 0
        counts = without_one(np.where(runs, layout.count, 0.0))
        answers = proportional(layout, counts)
        kept = (answers[0] * discounts(layout, counts, answers)[:, None]).tolist()
        return {(question.jobs[row].seq,): kept[k] for k, rows in enumerate(layout.members) for row in rows}


max_min_fairness_strategy_proof_perf = gavel(
    "max_min_fairness_strategy_proof_perf",
    lambda params, knowledge: StrategyProof(params),
    summary="Proportionally fair shares with discounts, so that no job gains by reporting false speeds.",
    params=LpParams,
    cites="Cole, Gkatzelis and Goel, EC 2013; Narayanan et al., OSDI 2020",
)
