"""Completion of a partially measured table of speeds.

Everything is in logarithms, because speeds multiply: one type is several times as fast as another, more or less so by
model. The error is measured by hiding known figures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_RANKS = (0, 1, 2)
_RIDGES = (0.1, 0.3, 1.0)
_ROUNDS = 60
_SETTLED = 1e-5
_BIAS_RIDGE = 0.02
"""Penalty that draws rows and columns with few known figures to the mean."""
_FOLDS = 5
_LEAST_TO_TEST = 2 * _FOLDS
_BEYOND = math.log(4.0)
"""Largest distance of an estimate from the range of known figures."""
_FEW_IN_COMMON = 0.5
"""Standard deviation assumed for a neighbour that has a single figure in common."""


class Fill(Enum):
    """Method of filling gaps."""

    COMPLETION = "completion"
    """Low-rank matrix completion, rank and penalty by cross-validation."""
    NEAREST = "nearest"
    """From the most similar row."""
    MEAN = "mean"
    """The mean of the known figures of the row."""


@dataclass(frozen=True, slots=True)
class CompletionMethod:
    """A method and its parameters; rank and penalty apply to completion only."""

    fill: Fill
    rank: int = 0
    ridge: float = 0.0

    def __str__(self) -> str:
        return f"{self.fill.value}, rank {self.rank}" if self.fill is Fill.COMPLETION else self.fill.value


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Relative errors on known figures that were held out: |estimate / truth - 1|."""

    median: float
    p90: float
    deviation: float
    """Root mean square error of the logarithm."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A complete table, the method, and the error if enough was known to measure it."""

    values: Floats
    choice: CompletionMethod
    error: HeldOut | None


def fill_gaps(values: Floats, fill: Fill, seed: int) -> Filled:
    """Fill a table of logarithms, NaN where unknown; known figures stay."""
    known = ~np.isnan(values)
    choices = _choices(fill) if known.sum() >= _LEAST_TO_TEST else _choices(fill)[:1]
    tested = [(_test(values, choice, seed), choice) for choice in choices]
    error, choice = min(tested, key=lambda pair: math.inf if pair[0] is None else pair[0].deviation)
    return Filled(fill_as(values, choice, seed), choice, error)


def fill_as(values: Floats, choice: CompletionMethod, seed: int) -> Floats:
    """Fill gaps by a given method."""
    known = ~np.isnan(values)
    if not known.any():
        return np.zeros_like(values)
    guess = _guess(values, known, choice, seed)
    guess = np.clip(guess, values[known].min() - _BEYOND, values[known].max() + _BEYOND)
    return np.where(known, values, guess)


def relative_errors(guess: Floats, truth: Floats) -> HeldOut:
    """Return the errors of estimated logarithms."""
    wrong = np.abs(np.expm1(guess - truth))
    deviation = float(np.sqrt(np.mean((guess - truth) ** 2)))
    return HeldOut(float(np.median(wrong)), float(np.quantile(wrong, 0.9)), deviation)


def _choices(fill: Fill) -> list[CompletionMethod]:
    if fill is not Fill.COMPLETION:
        return [CompletionMethod(fill)]
    return [CompletionMethod(fill)] + [CompletionMethod(fill, rank, ridge) for rank in _RANKS[1:] for ridge in _RIDGES]


def _test(values: Floats, choice: CompletionMethod, seed: int) -> HeldOut | None:
    """Hold out each fifth of the known figures once and estimate it from the rest."""
    rows, columns = np.nonzero(~np.isnan(values))
    if len(rows) < _LEAST_TO_TEST:
        return None
    order = np.random.default_rng(seed).permutation(len(rows))
    guess = np.empty(len(rows))
    for fold in range(_FOLDS):
        hidden = order[fold::_FOLDS]
        rest = values.copy()
        rest[rows[hidden], columns[hidden]] = np.nan
        guess[hidden] = fill_as(rest, choice, seed)[rows[hidden], columns[hidden]]
    return relative_errors(guess, values[rows, columns])


def _guess(values: Floats, known: Mask, choice: CompletionMethod, seed: int) -> Floats:
    match choice.fill:
        case Fill.COMPLETION:
            return _low_rank(values, known, choice.rank, choice.ridge, seed)
        case Fill.NEAREST:
            return _nearest(values, known)
        case Fill.MEAN:
            return _row_means(values, known)


def _low_rank(values: Floats, known: Mask, rank: int, ridge: float, seed: int) -> Floats:
    """Fit mean, row and column offsets and a product of factors by alternating least squares."""
    rng = np.random.default_rng(seed)
    weight = known.astype(np.float64)
    mean = float(values[known].mean())
    target = np.where(known, values - mean, 0.0)
    penalty = np.diag([_BIAS_RIDGE, *([ridge] * rank)])
    of_rows = np.zeros((values.shape[0], 1 + rank))
    of_columns = np.concatenate(
        [np.zeros((values.shape[1], 1)), 0.1 * rng.standard_normal((values.shape[1], rank))], axis=1
    )
    guess = np.full_like(target, np.inf)
    for _ in range(_ROUNDS):
        of_rows = _regress(target - of_columns[:, 0], weight, of_columns, penalty)
        of_columns = _regress((target - of_rows[:, :1]).T, weight.T, of_rows, penalty)
        before, guess = guess, of_rows[:, :1] + of_columns[:, 0] + of_rows[:, 1:] @ of_columns[:, 1:].T
        if np.abs(guess - before).max() < _SETTLED:
            break
    return mean + guess


def _regress(target: Floats, weight: Floats, factors: Floats, penalty: Floats) -> Floats:
    """Return offset and factors of each row of the target, given the factors of the other side."""
    design = factors.copy()
    design[:, 0] = 1.0
    outer = design[:, :, None] * design[:, None, :]
    squares = (weight @ outer.reshape(len(design), -1)).reshape(-1, *penalty.shape) + penalty
    products = (weight * target) @ design
    return np.asarray(np.linalg.solve(squares, products[:, :, None])[:, :, 0], dtype=np.float64)


def _nearest(values: Floats, known: Mask) -> Floats:
    """Fill each gap from the nearest row that has a figure, shifted to agree on common figures."""
    guess = _low_rank(values, known, 0, 0.0, 0)
    zeroed = np.where(known, values, 0.0)
    for row in range(len(values)):
        common = known & known[row]
        count = common.sum(axis=1)
        count[row] = 0
        gap = np.where(common, zeroed[row] - zeroed, 0.0)
        shift = gap.sum(axis=1) / np.maximum(count, 1)
        spread = np.where(common, (gap - shift[:, None]) ** 2, 0.0).sum(axis=1)
        distance = np.where(count > 0, (spread + _FEW_IN_COMMON**2) / np.maximum(count, 1), np.inf)
        ranked = [other for other in np.argsort(distance, kind="stable").tolist() if count[other]]
        for column in np.nonzero(~known[row])[0].tolist():
            alike = next((other for other in ranked if known[other, column]), None)
            if alike is not None:
                guess[row, column] = values[alike, column] + shift[alike]
    return guess


def _row_means(values: Floats, known: Mask) -> Floats:
    """Return the mean of a row's known figures; of its column's, or of all, where a row has none."""
    zeroed = np.where(known, values, 0.0)
    in_row, in_column = known.sum(axis=1), known.sum(axis=0)
    by_column = np.where(in_column > 0, zeroed.sum(axis=0) / np.maximum(in_column, 1), zeroed.sum() / known.sum())
    by_row = zeroed.sum(axis=1) / np.maximum(in_row, 1)
    return np.asarray(np.where(in_row[:, None] > 0, by_row[:, None], by_column[None, :]), dtype=np.float64)
