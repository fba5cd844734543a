"""Max-min fairness over effective throughput (Narayanan et al., section 4.1): the least served as well as can be."""

from __future__ import annotations

import numpy as np

from rota.mechanisms.programs import Programmed
from rota.mechanisms.shares import Floats, Question, Shares
from rota.policies.gavel.declare import LpParams, PackParams, SizeParams, shares
from rota.policies.gavel.layout import Layout, lay_out
from rota.policies.gavel.least import nothing, serve_the_least


def fair_factor(layout: Layout) -> Floats:
    """s_i / (w_i p_i), with p_i the mean speed over all devices: what a job's progress is measured in."""
    devices = layout.question.capacity
    mean = layout.speeds @ devices / max(devices.sum(), 1.0)
    weight = layout.first(layout.question.weight)
    return np.where(mean > 0, layout.scale / (weight * np.where(mean > 0, mean, 1.0)), 0.0)


def fair_need(layout: Layout) -> Floats:
    """The progress that counts as 1 for a job: w_i p_i / s_i."""
    factor = fair_factor(layout)
    return np.where(factor > 0, 1.0 / np.where(factor > 0, factor, 1.0), 0.0)


class MaxMin(Programmed):
    """One program whose columns are the shares; type-agnostic, aware of types, or with pairs as well."""

    backfills = True

    def __init__(self, params: LpParams, *, sees_types: bool, packs: bool = False) -> None:
        self.sees_types = sees_types
        super().__init__()
        self.packs = packs
        self._params = params

    def shares(self, question: Question) -> Shares:
        """The least served as well as can be; nothing for anybody if there is no solution."""
        speeds = None if self.sees_types else np.ones_like(question.speeds)
        layout = lay_out(question, speeds=speeds, packs=self.packs, collapse=self._params.collapse)
        best = serve_the_least(self._solver, layout, fair_need(layout), spare=self._params.spare)
        return nothing(question) if best is None else layout.split(best.x)


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
    params=SizeParams,
)
max_min_fairness_packed = shares(
    "max_min_fairness_packed",
    lambda params, knowledge: MaxMin(params, sees_types=True, packs=True),
    summary="The least effective throughput as large as can be, with two jobs on a device where that helps.",
    params=PackParams,
)
