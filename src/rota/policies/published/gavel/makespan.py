"""Minimum makespan (Narayanan et al., section 4.2): the last of the present jobs ends as early as possible."""

from __future__ import annotations

import numpy as np

from rota.mechanisms.rounds.rule import ShareQuestion, Shares
from rota.policies.published.gavel.declare import LpParams, PackParams, SizeParams, gavel
from rota.policies.published.gavel.layout import fastest_everywhere, lay_out
from rota.policies.published.gavel.least import ServesTheLeast


class MinTotalDuration(ServesTheLeast):
    """sum_j T_ij x_ij >= r_i / H for the least H. Gavel bisects H; with t = 1/H it is one linear program."""

    def shares(self, question: ShareQuestion) -> Shares:
        """Jobs of equal remaining work form one class."""
        left = question.remaining
        layout = lay_out(
            question,
            speeds=None if self.sees_types else fastest_everywhere(question),
            packs=self.packs,
            alike=lambda row, job: float(left[row]),
            collapse=self._params.collapse,
        )
        return self._serve(layout, np.maximum(layout.first(left), 0.0))


min_total_duration = gavel(
    "min_total_duration",
    lambda params, knowledge: MinTotalDuration(params, sees_types=False),
    summary="Minimise the makespan of the present jobs, treating all types as the fastest.",
    params=LpParams,
    knows="length, speed on the fastest type",
)
min_total_duration_perf = gavel(
    "min_total_duration_perf",
    lambda params, knowledge: MinTotalDuration(params, sees_types=True),
    summary="Minimise the makespan of the present jobs.",
    params=SizeParams,
    knows="length, speed by type",
)
min_total_duration_packed = gavel(
    "min_total_duration_packed",
    lambda params, knowledge: MinTotalDuration(params, sees_types=True, packs=True),
    summary="Minimise the makespan of the present jobs, with two jobs on a device where that helps.",
    params=PackParams,
    packs=True,
    knows="length, speed by type",
)
