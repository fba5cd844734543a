"""Least total duration (Narayanan et al., section 4.2): all jobs that are here end as soon as can be, together."""

from __future__ import annotations

import numpy as np

from rota.mechanisms.programs import Programmed
from rota.mechanisms.shares import Question, Shares
from rota.policies.gavel.declare import LpParams, PackParams, SizeParams, shares
from rota.policies.gavel.layout import lay_out
from rota.policies.gavel.least import nothing, serve_the_least


class MinTotalDuration(Programmed):
    """sum_j T_ij x_ij >= r_i / H for the least H. Gavel bisects H; with t = 1/H it is one linear program."""

    backfills = True

    def __init__(self, params: LpParams, *, sees_types: bool, packs: bool = False) -> None:
        self.sees_types = sees_types
        super().__init__()
        self.packs = packs
        self._params = params

    def shares(self, question: Question) -> Shares:
        """Jobs alike in what is left to do are one class."""
        speeds = None
        if not self.sees_types:
            fastest = question.speeds.max(axis=1, keepdims=True, initial=0.0)
            speeds = np.repeat(fastest, len(question.types), axis=1)
        left = question.remaining
        layout = lay_out(
            question,
            speeds=speeds,
            packs=self.packs,
            alike=lambda row, job: float(left[row]),
            collapse=self._params.collapse,
        )
        best = serve_the_least(self._solver, layout, np.maximum(layout.first(left), 0.0), spare=self._params.spare)
        return nothing(question) if best is None else layout.split(best.x)


min_total_duration = shares(
    "min_total_duration",
    lambda params, knowledge: MinTotalDuration(params, sees_types=False),
    summary="All present jobs end as soon as can be, all types taken as the fastest.",
    params=LpParams,
    knows="length, speed on the fastest type",
)
min_total_duration_perf = shares(
    "min_total_duration_perf",
    lambda params, knowledge: MinTotalDuration(params, sees_types=True),
    summary="All present jobs end as soon as can be.",
    params=SizeParams,
    knows="length, speed by type",
)
min_total_duration_packed = shares(
    "min_total_duration_packed",
    lambda params, knowledge: MinTotalDuration(params, sees_types=True, packs=True),
    summary="All present jobs end as soon as can be, with two on a device where that helps.",
    params=PackParams,
    knows="length, speed by type",
)
