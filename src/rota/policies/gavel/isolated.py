"""An equal part of every type for everyone: what a partition of the cluster would give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rota.mechanisms.shares import Floats, Question, Shares
from rota.policies.gavel.declare import shares


def isolated_shares(scale: Floats, devices: Floats) -> Floats:
    """x_ij = N_j / (m s_i), a row scaled down where it adds up to more than 1."""
    rows: Floats = devices[None, :] / len(scale) / scale[:, None]
    total = rows.sum(axis=1, keepdims=True)
    return np.where(total > 1, rows / np.where(total > 0, total, 1.0), rows)


class Isolated:
    """Shares by device counts alone."""

    sees_types = False
    packs = False
    backfills = True
    memory: Any = None

    def shares(self, question: Question) -> Shares:
        """The same part for all."""
        rows: Sequence[Sequence[float]] = isolated_shares(question.scale, question.capacity).tolist()
        return {(job.seq,): row for job, row in zip(question.jobs, rows, strict=True)}


isolated = shares(
    "isolated",
    lambda params, knowledge: Isolated(),
    summary="Everyone has the same part of every type.",
    knows="none",
)
