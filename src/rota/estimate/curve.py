"""Scaling curves from few and noisy points: terms are selected by cross-validation, outliers count little.

A curve is a constant and up to two terms `x^a log2(x)^b` with non-negative costs, as performance models of parallel
programs have; the more a point deviates from the majority, the less weight it gets (Tukey's biweight).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rota.core.errors import RotaError
from rota.estimate.observations import Floats, Observation, with_label

TERMS: tuple[tuple[float, int], ...] = tuple(
    (power, logs)
    for power in (-1.0, -0.5, 0.0, 1 / 3, 0.5, 2 / 3, 1.0, 1.5, 2.0)
    for logs in (0, 1)
    if (power, logs) != (0.0, 0)
)
"""Powers of x and of its logarithm."""
MOST_TERMS = 2
PLACES_PER_TERM = 3
ROUNDS = 8
FEWEST = 4
WIDTH = 4.685
"""Cut-off of Tukey's weight in standard deviations: 95% of the efficiency of least squares on normal noise."""
WORTH = 0.95
"""Factor by which another term must lower the held-out error, however many points there are."""
SAME = 1e-6
"""Relative errors below this are rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingCurve:
    """A fitted curve; `error` is the typical relative error on held-out points."""

    constant: float
    terms: tuple[tuple[float, int], ...]
    costs: tuple[float, ...]
    error: float

    def at(self, x: float) -> float:
        """Return the value at x."""
        return float(_basis(np.array([x]), self.terms)[0] @ np.array([self.constant, *self.costs]))

    def __str__(self) -> str:
        parts = [f"{self.constant:.4g}"]
        for (power, logs), cost in zip(self.terms, self.costs, strict=True):
            parts.append(f"{cost:.4g}" + (f" x^{power:.3g}" if power else "") + (" log2(x)" if logs else ""))
        return " + ".join(parts)


def fit_curve(points: Sequence[tuple[float, float]]) -> ScalingCurve:
    """Fit a curve to points (x of 1 or more, y above 0) by the terms with the lowest held-out error."""
    if len({x for x, _ in points}) < FEWEST:
        raise RotaError(f"a curve needs points at {FEWEST} places or more, not {len({x for x, _ in points})}")
    if any(x < 1 or not y > 0 for x, y in points):
        raise RotaError("a curve's points need x of 1 or more and y above 0")
    x, y = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
    best: tuple[float, tuple[tuple[float, int], ...]] = (_left_out(x, y, ()), ())
    for count in range(1, min(MOST_TERMS, (len(set(x.tolist())) - 1) // PLACES_PER_TERM) + 1):
        choices = list(itertools.combinations(TERMS, count))
        tried = min((_left_out(x, y, terms), terms) for terms in choices)
        if best[0] > SAME and tried[0] < _worth(len(x), len(choices)) * best[0]:
            best = tried
    error, terms = best
    costs = _robust(x, y, terms)
    return ScalingCurve(
        constant=float(costs[0]), terms=terms, costs=tuple(float(cost) for cost in costs[1:]), error=error
    )


def _worth(points: int, choices: int) -> float:
    """Return the factor by which another term must lower the error: among many choices a gain on few points is chance.

    It is the criterion of the extended BIC (Chen and Chen, Biometrika 2008), of errors instead of their squares.
    """
    return min(WORTH, math.exp(-(math.log(points) + 2 * math.log(choices)) / (2 * points)))


def curves_by_kind(runs: Sequence[Observation], label: str, by: str) -> list[tuple[str, int, ScalingCurve]]:
    """Return, for each kind of run with points at enough places, the number of points and the curve."""
    points: dict[str, list[tuple[float, float]]] = {}
    for run in with_label(runs, label):
        x = run.attributes.get(by)
        if isinstance(x, float) and x >= 1:
            points.setdefault(run.kind, []).append((x, run.labels[label]))
    if not points:
        raise RotaError(f"--by is {by!r}: no run has a number of 1 or more under that name")
    found = [
        (kind, len(mine), fit_curve(mine))
        for kind, mine in sorted(points.items())
        if len({x for x, _ in mine}) >= FEWEST
    ]
    if not found:
        raise RotaError(f"--by is {by!r}: no kind of run has points at {FEWEST} places or more")
    return found


def _basis(x: Floats, terms: Sequence[tuple[float, int]]) -> Floats:
    return np.column_stack([np.ones(len(x)), *(x**power * np.log2(x) ** logs for power, logs in terms)])


def _left_out(x: Floats, y: Floats, terms: tuple[tuple[float, int], ...]) -> float:
    """Return the median relative error at held-out places; all points of a place are held out together."""
    errors: list[float] = []
    for place in np.unique(x):
        seen = x != place
        costs = _robust(x[seen], y[seen], terms)
        estimated = _basis(x[~seen], terms) @ costs
        errors.extend(np.abs(estimated - y[~seen]) / y[~seen])
    return float(np.median(errors))


def _robust(x: Floats, y: Floats, terms: tuple[tuple[float, int], ...]) -> Floats:
    """Return non-negative costs by least squares of relative deviations, reweighted until outliers count little."""
    from scipy.optimize import nnls

    basis = _basis(x, terms) / y[:, None]
    weight = np.ones(len(x))
    costs = np.zeros(basis.shape[1])
    for _ in range(ROUNDS):
        root = np.sqrt(weight)
        costs, _ = nnls(basis * root[:, None], root)
        gap = np.abs(basis @ costs - 1)
        spread = max(1.4826 * float(np.median(gap)), 1e-6)
        weight = np.maximum(1 - (gap / (WIDTH * spread)) ** 2, 0.0) ** 2
    return costs
