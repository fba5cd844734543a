"""Fits a device's constants to measured iterations: robust relative errors, held near what is known beforehand.

Rows on one node and on several weigh the same in sum, so that the many of one kind do not drown the few of the other.
What is known beforehand (slopes of the table on one node, counted bytes, the network's nominal rate) enters as a prior
over each constant's logarithm: a constant that the rows say nothing about stays where it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rota.core.errors import RotaError
from rota.planner.parallel.hardware import Accelerator, KernelRates
from rota.planner.parallel.iteration import iteration_cost
from rota.planner.parallel.plans import ParallelPlan, TrainingSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredIteration:
    """One plan and the time that an iteration of it took."""

    setup: TrainingSetup
    plan: ParallelPlan
    iteration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is known of a constant before the fit: a value, and how many e-folds it may be off."""

    value: float
    spread: float


PRIORS: dict[str, Prior] = {
    "matmul_share": Prior(value=0.8, spread=0.15),
    "short_side": Prior(value=64.0, spread=1.0),
    "activation_passes": Prior(value=2.2, spread=0.3),
    "logit_passes": Prior(value=20.0, spread=0.5),
    "whole_logit_share": Prior(value=0.3, spread=0.5),
    "layer_launch_s": Prior(value=1e-3, spread=0.5),
    "layer_gap_s": Prior(value=4e-4, spread=0.5),
    "accumulate_bytes": Prior(value=8.0, spread=0.3),
    "adam_bytes": Prior(value=41.0, spread=0.1),
}
NETWORK_PRIORS: dict[str, Prior] = {
    "node_bytes_per_s": Prior(value=100e9, spread=0.3),
    "hop_latency_s": Prior(value=15e-6, spread=0.3),
}
_ROW_SPREAD = 0.1  # rows are trusted to about a tenth
_KIND_WEIGHT = 200.0  # rows that each of the two kinds counts for, however many there are


def with_constants(device: Accelerator, logs: Sequence[float]) -> Accelerator:
    """The device with the constants whose logarithms are given, in the order of the priors."""
    values = [math.exp(value) for value in logs]
    kernels = KernelRates(**dict(zip(PRIORS, values, strict=False)))
    node_bytes_per_s, hop_latency_s = values[len(PRIORS) :]
    interconnect = replace(device.interconnect, node_bytes_per_s=node_bytes_per_s, hop_latency_s=hop_latency_s)
    return replace(device, kernels=kernels, interconnect=interconnect)


def unfitted(device: Accelerator) -> Accelerator:
    """The device with the priors' values, as if nothing had been measured."""
    return with_constants(device, [math.log(prior.value) for prior in (*PRIORS.values(), *NETWORK_PRIORS.values())])


def _weights(rows: Sequence[MeasuredIteration]) -> list[float]:
    """The square root of each row's weight: a kind's rows share its weight."""
    spans = [row.setup.gpus > row.setup.per_node for row in rows]
    counts = {kind: spans.count(kind) for kind in (False, True)}
    return [math.sqrt(_KIND_WEIGHT / counts[kind]) for kind in spans]


def fitted(device: Accelerator, rows: Sequence[MeasuredIteration]) -> Accelerator:
    """The device with the constants that explain the rows best; its network stays as it was if no row spans nodes."""
    if not rows:
        raise RotaError("there are no measured iterations to fit to; give at least one")
    import numpy as np
    from scipy.optimize import least_squares

    priors = [*PRIORS.values(), *NETWORK_PRIORS.values()]
    start = np.log([prior.value for prior in priors])
    spread = np.array([prior.spread for prior in priors])
    weights = np.array(_weights(rows))
    measured = np.log([row.iteration_s for row in rows])

    def residuals(logs: np.ndarray) -> np.ndarray:
        tried = with_constants(device, [float(value) for value in logs])
        predicted = np.log([iteration_cost(tried, row.setup, row.plan).iteration_s for row in rows])
        off = (predicted - measured) / _ROW_SPREAD
        soft = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + off * off) - 1))  # linear far out: outliers pull less
        return np.concatenate([weights * soft, (logs - start) / spread])

    found = with_constants(device, [float(value) for value in least_squares(residuals, start).x])
    spans = any(row.setup.gpus > row.setup.per_node for row in rows)
    return found if spans else replace(found, interconnect=device.interconnect)
