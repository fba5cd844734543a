"""Filling in tables: what is known stays, guesses are sane, and more knowledge means less error."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.perf.profiles.matrix_completion import Fill, Floats, fill_as, fill_gaps, relative_errors

FILLS = pytest.mark.parametrize("fill", list(Fill), ids=lambda fill: fill.value)


def low_rank(rows: int, columns: int, rank: int, seed: int) -> Floats:
    """Row and column effects, and factors: what speeds of models on types are taken to be."""
    rng = np.random.default_rng(seed)
    effects = rng.normal(0, 2, (rows, 1)) + rng.normal(0, 0.8, (1, columns))
    return np.asarray(effects + 0.4 * rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, columns)))


def hidden(values: Floats, part: float, seed: int) -> Floats:
    gone = np.random.default_rng(seed).random(values.shape) < part
    return np.where(gone, np.nan, values)


@st.composite
def tables(draw: st.DrawFn) -> Floats:
    rows, columns = draw(st.integers(1, 9)), draw(st.integers(1, 7))
    cell = st.one_of(st.just(float("nan")), st.floats(-12, 12))
    cells = draw(st.lists(cell, min_size=rows * columns, max_size=rows * columns))
    return np.array(cells).reshape(rows, columns)


@pytest.mark.slow
@settings(deadline=None)
@given(values=tables(), fill=st.sampled_from(Fill), seed=st.integers(0, 5))
def test_no_gap_is_left_and_nothing_known_is_changed(values: Floats, fill: Fill, seed: int) -> None:
    filled = fill_gaps(values, fill, seed)

    known = ~np.isnan(values)
    assert np.isfinite(filled.values).all()
    assert (np.exp(filled.values) > 0).all()
    assert (filled.values[known] == values[known]).all()


@pytest.mark.slow
@settings(deadline=None)
@given(values=tables(), fill=st.sampled_from(Fill), seed=st.integers(0, 5))
def test_same_seed_same_guesses(values: Floats, fill: Fill, seed: int) -> None:
    one, other = fill_gaps(values, fill, seed), fill_gaps(values, fill, seed)

    assert (one.values == other.values).all()
    assert one.choice == other.choice
    assert one.error == other.error


@pytest.mark.slow
def test_error_falls_as_more_is_known() -> None:
    by_part = {part: _mean_error(Fill.COMPLETION, part) for part in (0.8, 0.5, 0.2)}

    assert by_part[0.8] > 1.3 * by_part[0.5] > 1.3 * by_part[0.2]
    assert by_part[0.2] < 0.1


@pytest.mark.slow
def test_completion_beats_the_nearest_row_which_beats_the_mean() -> None:
    errors = {fill: _mean_error(fill, 0.5) for fill in Fill}

    assert errors[Fill.COMPLETION] < 0.8 * errors[Fill.NEAREST]
    assert errors[Fill.NEAREST] < 0.5 * errors[Fill.MEAN]


def _mean_error(fill: Fill, part: float) -> float:
    """Over ten tables of rank one, the mean of the median errors on what was hidden."""
    errors = []
    for seed in range(10):
        truth = low_rank(24, 12, 1, seed)
        seen = hidden(truth, part, seed)
        guess = fill_gaps(seen, fill, seed).values
        errors.append(relative_errors(guess[np.isnan(seen)], truth[np.isnan(seen)]).median)
    return float(np.mean(errors))


@pytest.mark.slow
def test_rank_of_a_table_is_found_out() -> None:
    plain, twisted = hidden(low_rank(30, 14, 0, 1), 0.3, 1), hidden(low_rank(30, 14, 2, 1), 0.3, 1)

    assert fill_gaps(plain, Fill.COMPLETION, 0).error is not None
    assert _error(plain) < 0.01
    assert fill_gaps(twisted, Fill.COMPLETION, 0).choice.rank == 2


def _error(values: Floats) -> float:
    error = fill_gaps(values, Fill.COMPLETION, 0).error
    assert error is not None
    return error.median


@pytest.mark.slow
def test_held_out_error_is_near_the_true_one() -> None:
    truth = low_rank(40, 20, 1, 3) + np.random.default_rng(3).normal(0, 0.2, (40, 20))
    seen = hidden(truth, 0.5, 3)

    filled = fill_gaps(seen, Fill.COMPLETION, 0)

    true = relative_errors(filled.values[np.isnan(seen)], truth[np.isnan(seen)])
    assert filled.error is not None
    assert filled.error.median == pytest.approx(true.median, rel=0.25)


@FILLS
def test_too_little_to_test_says_so(fill: Fill) -> None:
    assert fill_gaps(np.array([[1.0, np.nan], [np.nan, np.nan]]), fill, 0).error is None


@FILLS
def test_nothing_known_gives_something_finite(fill: Fill) -> None:
    assert (fill_gaps(np.full((2, 3), np.nan), fill, 0).values == 0).all()


def test_nearest_copies_the_shape_of_its_likest() -> None:
    values = np.array([[0.0, 1.0, 5.0], [3.0, 4.0, np.nan], [0.0, -1.0, 9.0]])

    assert fill_gaps(values, Fill.NEAREST, 0).values[1, 2] == pytest.approx(8.0)


@FILLS
def test_guess_stays_near_what_is_known(fill: Fill) -> None:
    """Fast model, fast type: the sum of both would be far beyond anything that was ever seen."""
    values = np.array([[0.0, 10.0], [10.0, np.nan]])

    assert fill_gaps(values, fill, 0).values[1, 1] <= 10 + np.log(4) + 1e-9


def test_mean_is_that_of_the_row() -> None:
    values = np.array([[1.0, 3.0, np.nan], [np.nan, np.nan, np.nan], [np.nan, 5.0, np.nan]])

    filled = fill_as(values, fill_gaps(values, Fill.MEAN, 0).choice, 0)

    assert filled[0, 2] == 2.0
    assert filled[1].tolist() == [1.0, 4.0, 3.0]
