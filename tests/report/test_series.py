from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.report.series import Series, cdf, from_intervals, means, thin


def points(series: Series) -> list[tuple[float, float]]:
    return list(zip(series.times_s.tolist(), series.values.tolist(), strict=True))


def test_open_intervals_are_counted_once_per_moment() -> None:
    series = from_intervals(np.array([0.0, 5.0, 10.0]), np.array([10.0, 10.0, 12.0]))

    assert points(series) == [(0.0, 1.0), (5.0, 2.0), (10.0, 1.0), (12.0, 0.0)]
    assert [series.at(t) for t in (-1.0, 0.0, 7.0, 11.9, 50.0)] == [0.0, 1.0, 2.0, 1.0, 0.0]


def test_weights_are_summed() -> None:
    series = from_intervals(np.array([0.0, 5.0]), np.array([10.0, 10.0]), np.array([3.0, 0.5]))

    assert points(series) == [(0.0, 3.0), (5.0, 3.5), (10.0, 0.0)]


def test_mean_is_over_time() -> None:
    assert from_intervals(np.array([0.0, 5.0]), np.array([10.0, 10.0])).mean() == 1.5


def test_short_series_stays_as_it_is() -> None:
    series = from_intervals(np.array([0.0, 5.0]), np.array([10.0, 10.0]))

    assert thin(series, 3) is series


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0.1, 1e5)), min_size=20, max_size=80))
def test_thinned_series_has_the_same_mean(spans: list[tuple[float, float]]) -> None:
    start = np.array([begin for begin, _ in spans])
    series = from_intervals(start, start + np.array([length for _, length in spans]))

    few = thin(series, 10)

    assert few.times_s.size <= 10
    assert few.mean() == pytest.approx(series.mean(), rel=1e-6)


def test_means_are_zero_outside_the_series() -> None:
    series = from_intervals(np.array([10.0]), np.array([20.0]))

    assert means(series, np.array([0.0, 10.0, 15.0, 25.0, 30.0])).tolist() == [0.0, 1.0, 0.5, 0.0]


def test_cdf_keeps_both_ends() -> None:
    values, part = cdf(np.arange(5000, 0, -1.0), 1000)

    assert len(values) <= 1000
    assert (values[0], values[-1], part[0], part[-1]) == (1.0, 5000.0, 1 / 5000, 1.0)
    assert (np.diff(values) > 0).all()
    assert part * 5000 == pytest.approx(values)


def test_cdf_of_nothing_is_empty() -> None:
    values, part = cdf(np.array([]), 1000)

    assert (values.size, part.size) == (0, 0)
