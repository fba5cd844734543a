"""What a learning curve comes to: an average over shapes of curves, each fitted by Bayesian linear regression.

HyperDrive samples the parameters of Domhan's curve families by MCMC. Here each shape (a power of the step, or an
exponential) fixes the nonlinear parameter, so that level and amplitude have a closed posterior: shapes are weighted by
their evidence, and the value at the last step has a mixture of Student t distributions. It takes well under a
millisecond, and has no random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
POWERS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
RATES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_SHAPE, _SCALE = 1.0, 1e-4
"""The prior of the noise's variance: inverse gamma, for values scaled to a spread of about one."""
_SPREAD = 10.0
"""The prior standard deviation of level and amplitude, in units of the noise's own scale and the values' spread."""


def chance_below(steps: Sequence[int], values: Sequence[float], last: int, target: float) -> float:
    """Return the probability that a curve is at or below `target` at the step `last`."""
    x, y = np.asarray(steps, dtype=float), np.asarray(values, dtype=float)
    finite = np.isfinite(y)
    x, y = x[finite], y[finite]
    if len(y) < 2:
        return 0.0
    middle, spread = float(np.mean(y)), float(np.std(y)) or max(abs(float(np.mean(y))), 1e-12) * 1e-3
    scaled = (y - middle) / spread
    wanted = (target - middle) / spread
    weights, chances = [], []
    for shape in _shapes(x, last):
        evidence, chance = _fit(shape[:-1], scaled, float(shape[-1]), wanted)
        weights.append(evidence)
        chances.append(chance)
    share = np.exp(np.asarray(weights) - max(weights))
    return min(max(float(np.dot(share, chances) / share.sum()), 0.0), 1.0)


def _shapes(x: Floats, last: int) -> list[Floats]:
    """The falling part of each shape at the steps, and at the last step after them; 1 at the first step."""
    at = np.append(x, float(last))
    first = max(float(x[0]), 1.0)
    return [
        *((np.maximum(at, 1.0) / first) ** -power for power in POWERS),
        *(np.exp(-rate * (at - x[0]) / max(last - x[0], 1.0)) for rate in RATES),
    ]


def _fit(falling: Floats, y: Floats, falling_at_last: float, wanted: float) -> tuple[float, float]:
    """Return the log evidence of one shape, and its chance to be at or below `wanted` at the last step."""
    design = np.column_stack((np.ones_like(falling), falling))
    prior = np.eye(2) / _SPREAD**2
    precision = prior + design.T @ design
    mean = np.linalg.solve(precision, design.T @ y)
    shape = _SHAPE + len(y) / 2
    scale = _SCALE + 0.5 * max(float(y @ y - mean @ precision @ mean), 0.0)
    evidence = (
        0.5 * (np.linalg.slogdet(prior)[1] - np.linalg.slogdet(precision)[1])
        + _SHAPE * np.log(_SCALE)
        - shape * np.log(scale)
        + math.lgamma(shape)
    )
    at = np.array([1.0, falling_at_last])
    variance = scale / shape * (1.0 + float(at @ np.linalg.solve(precision, at)))
    return float(evidence), student_t_below(round(2 * shape), (wanted - float(at @ mean)) / math.sqrt(variance))


def student_t_below(freedom: int, value: float) -> float:
    """Return the chance of a Student t variable to be at most `value`: the finite series for whole degrees of freedom.

    SciPy knows it too, but a manager is installed without SciPy.
    """
    angle = math.atan(value / math.sqrt(freedom))
    squared = math.cos(angle) ** 2
    if freedom % 2:
        even = np.arange(2.0, freedom - 2, 2)
        terms = np.cumprod(np.append(1.0, even / (even + 1) * squared)).sum() if freedom > 1 else 0.0
        inside = 2 / math.pi * (angle + math.sin(angle) * math.cos(angle) * terms)
    else:
        odd = np.arange(1.0, freedom - 2, 2)
        inside = math.sin(angle) * np.cumprod(np.append(1.0, odd / (odd + 1) * squared)).sum()
    return min(max(0.5 + 0.5 * float(inside), 0.0), 1.0)
