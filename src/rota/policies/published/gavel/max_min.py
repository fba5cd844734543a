"""Max-min fairness over effective throughput (Narayanan et al., section 4.1)."""

from __future__ import annotations

import numpy as np

from rota.mechanisms.arrays import Floats
from rota.mechanisms.rounds.rule import ShareQuestion, Shares
from rota.policies.published.gavel.declare import LpParams, PackParams, SizeParams, gavel
from rota.policies.published.gavel.layout import ProgramLayout, lay_out
from rota.policies.published.gavel.least import ServesTheLeast, inverse


def fair_factor(layout: ProgramLayout) -> Floats:
    """s_i / (w_i p_i), with p_i the mean speed over all devices: the unit of a job's progress."""
    devices = layout.question.capacity
    mean = layout.speeds @ devices / max(devices.sum(), 1.0)
    weight = layout.first(layout.question.weight)
    return np.where(mean > 0, layout.scale / (weight * np.where(mean > 0, mean, 1.0)), 0.0)


def fair_need(layout: ProgramLayout) -> Floats:
    """The progress that counts as 1 for a job: w_i p_i / s_i."""
    return inverse(fair_factor(layout))


class MaxMin(ServesTheLeast):
    """Progress counts relative to that of an equal share of all devices."""

    def shares(self, question: ShareQuestion) -> Shares:
        """Jobs of equal profile, size and weight form one class."""
        speeds = None if self.sees_types else np.ones_like(question.speeds)
        layout = lay_out(question, speeds=speeds, packs=self.packs, collapse=self._params.collapse)
        return self._serve(layout, fair_need(layout))


max_min_fairness = gavel(
    "max_min_fairness",
    lambda params, knowledge: MaxMin(params, sees_types=False),
    summary="Maximise the least share, ignoring differences between types.",
    params=LpParams,
    knows="none",
)
max_min_fairness_perf = gavel(
    "max_min_fairness_perf",
    lambda params, knowledge: MaxMin(params, sees_types=True),
    summary="Maximise the least effective throughput.",
    params=SizeParams,
)
max_min_fairness_packed = gavel(
    "max_min_fairness_packed",
    lambda params, knowledge: MaxMin(params, sees_types=True, packs=True),
    summary="Maximise the least effective throughput, with two jobs on a device where that helps.",
    params=PackParams,
    packs=True,
)
