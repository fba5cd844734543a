"""Intervals, paired differences and ranks against values known from elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rota.experiments.number_format import log_ticks, shown
from rota.experiments.statistics import Interval, compare_ranks, holm, mean_interval, paired, tail_interval


def test_interval_of_a_mean_is_students() -> None:
    found = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])

    assert found.value == 3.0
    assert found.low == pytest.approx(3.0 - 2.776445 * math.sqrt(2.5 / 5), abs=1e-5)
    assert found.half_width == pytest.approx(1.963243, abs=1e-5)


def test_interval_holds_no_value_that_can_not_be() -> None:
    found = mean_interval([0.2, 0.9])

    assert found.low is not None
    assert found.low < 0.0
    kept = found.within(0.0, 1.0)
    assert (kept.value, kept.low, kept.high) == (found.value, 0.0, 1.0)
    assert mean_interval([7.0]).within(0.0, 1.0).low is None
    beyond = mean_interval([1.3, 1.5]).within(0.0, 1.0)
    assert beyond.high == beyond.value, "the value itself is always inside"


def test_one_value_has_no_interval() -> None:
    found = mean_interval([7.0])

    assert (found.value, found.low, found.high) == (7.0, None, None)


def test_differences_are_taken_pair_by_pair() -> None:
    baseline = [10.0, 100.0, 1000.0, 20.0, 300.0]

    found = paired([0.5 * value for value in baseline], baseline)

    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(0.5)
    assert found.ratio.half_width == pytest.approx(0.0, abs=1e-12)
    assert (found.lower, found.pairs) == (5, 5)
    assert found.p_value == pytest.approx(0.0625)


def test_ratio_of_values_that_may_be_zero_is_not_stated() -> None:
    assert paired([0.0, 1.0], [1.0, 1.0]).ratio is None


def test_tail_interval_holds_the_true_quantile_in_most_samples() -> None:
    rng = np.random.default_rng(3)
    true = -math.log(0.1)

    inside = 0
    for trial in range(60):
        found = tail_interval([rng.exponential(size=200) for _ in range(5)], 0.9, seed=trial)
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= true <= found.high

    assert 48 <= inside <= 60


def test_values_that_are_missing_do_not_count_in_a_tail() -> None:
    found = tail_interval([np.array([1.0, math.nan, 3.0]), np.array([math.nan])], 0.5)

    assert found.value == 2.0


def test_ranks_tell_apart_what_is_always_in_one_order() -> None:
    rng = np.random.default_rng(1)
    base = rng.uniform(1, 100, 30)
    found = compare_ranks(
        {"best": base.tolist(), "same": (base + 0.1).tolist(), "worst": (9 * base).tolist()}, low_is_best=True
    )

    assert found.ranks == {"best": 1.0, "same": 2.0, "worst": 3.0}
    assert found.critical_difference == pytest.approx(3.314493 / math.sqrt(2) * math.sqrt(12 / 180), abs=1e-4)
    assert found.p_value is not None
    assert found.p_value < 1e-6
    assert found.indistinct() == ()


def test_ranks_of_equal_policies_are_not_told_apart() -> None:
    found = compare_ranks({"a": [1.0, 2.0], "b": [2.0, 1.0], "c": [1.5, 1.5]}, low_is_best=False)

    assert found.indistinct() == (("a", "b", "c"),)


def test_correction_grows_with_the_number_of_comparisons() -> None:
    assert holm([0.01, None, 0.04, 0.03]) == [pytest.approx(0.03), None, pytest.approx(0.06), pytest.approx(0.06)]


def test_bound_above_zero_is_not_shown_as_zero() -> None:
    assert shown(Interval(value=0.31, low=0.03, high=2.6), 1.0) == "0.31 [0.03, 2.60]"
    assert shown(Interval(value=3.0, low=0.0, high=190.0), 1.0).endswith("[0, 190]")


def test_marks_of_a_logarithmic_axis_are_whole() -> None:
    assert log_ticks(0.17, 2.0)["ticktext"] == ["0.1", "0.2", "0.5", "1", "2", "5", "10", "20", "50"]
    assert log_ticks(0.9, 4000.0)["ticktext"] == ["0.1", "1", "10", "100", "1,000", "10,000"]
