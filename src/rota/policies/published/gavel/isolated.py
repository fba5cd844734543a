"""An equal share of every type for every job: what a partition of the cluster would give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rota.mechanisms.arrays import Floats
from rota.mechanisms.rounds.rule import Memoryless, ShareQuestion, Shares
from rota.policies.published.gavel.declare import gavel


def isolated_shares(question: ShareQuestion, scale: Floats) -> Floats:
    """x_ij = N_j / (m s_i), a row scaled down where it adds up to more than 1.

    Types are added up by name: which of two equal claims goes first depends on the last bit of these sums, which
    must not depend on the order in which a cluster's types are listed.
    """
    rows: Floats = question.capacity[None, :] / max(len(scale), 1) / scale[:, None]
    total = np.zeros((len(scale), 1))
    for at in question.by_name():
        total[:, 0] += rows[:, at]
    return rows / np.maximum(total, 1.0)


class Isolated(Memoryless):
    """Shares by device counts alone."""

    sees_types = False
    packs = False
    backfills = True

    def shares(self, question: ShareQuestion) -> Shares:
        """Equal shares for all jobs."""
        rows: Sequence[Sequence[float]] = isolated_shares(question, question.scale).tolist()
        return {(job.seq,): row for job, row in zip(question.jobs, rows, strict=True)}


isolated = gavel(
    "isolated",
    lambda params, knowledge: Isolated(),
    summary="Every job has the same share of every type.",
    knows="none",
)
