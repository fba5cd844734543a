"""The value of a forecast: ranges, their widening, and the way through JSON."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from rota.forecast.value import (
    Basis,
    Forecast,
    NoForecast,
    TimeRange,
    Widening,
    decode_forecast,
    encode_forecast,
    time_range,
    widened,
)

FOUND = Forecast(
    made_s=100.0,
    position=2,
    start=TimeRange(low_s=110.0, median_s=120.0, high_s=140.0),
    end=TimeRange(low_s=130.0, median_s=150.0, high_s=None),
    basis=Basis(runs=40, declared=3, history=1, past_runs=12, arrivals_per_hour=6.0),
)


def test_range_of_many_runs_leaves_a_twentieth_on_each_side() -> None:
    found = time_range([float(at) for at in range(1, 100)])

    assert found == TimeRange(low_s=5.0, median_s=50.0, high_s=95.0)


@pytest.mark.parametrize("runs", [4, 8, 12, 18])
def test_range_of_few_runs_holds_nine_of_ten_more(runs: int) -> None:
    chance = random.Random(runs)
    held = 0
    for _ in range(2000):
        found = time_range([chance.gauss(0.0, 1.0) for _ in range(runs)])
        assert found is not None
        held += found.holds(chance.gauss(0.0, 1.0))

    assert 0.86 < held / 2000 < 0.93


def test_range_of_equal_runs_has_no_width() -> None:
    assert time_range([7.5] * 4) == TimeRange(low_s=7.5, median_s=7.5, high_s=7.5)


def test_range_of_few_runs_is_wider_than_the_runs() -> None:
    found = time_range([10.0, 20.0, 30.0])

    assert found is not None
    assert found.low_s is not None
    assert found.high_s is not None
    assert found.low_s < 10.0
    assert found.high_s > 30.0
    assert found.median_s == 20.0


def test_runs_beyond_the_horizon_leave_the_end_of_the_range_open() -> None:
    assert time_range([1.0, 2.0, math.inf]) == TimeRange(low_s=1.0, median_s=2.0, high_s=None)
    assert time_range([]) is None


def test_widening_stretches_each_side_and_never_begins_before_the_forecast() -> None:
    found = widened(FOUND, start=Widening(below=3.0, above=2.0, slack_s=1.0), end=Widening(below=2.0))

    assert found.start == TimeRange(low_s=100.0, median_s=120.0, high_s=161.0)
    assert found.end == TimeRange(low_s=110.0, median_s=150.0, high_s=None)


@pytest.mark.parametrize("found", [FOUND, replace(FOUND, start=None, end=None, reason=NoForecast.HELD)])
def test_forecast_survives_json(found: Forecast) -> None:
    assert decode_forecast(encode_forecast(found)) == found


def test_basis_in_words() -> None:
    assert FOUND.basis.sentence() == (
        "run times of 3 by declared estimate, 1 by past runs; 40 forward runs, 6 later arrivals per hour"
    )
    assert FOUND.known
    assert not Basis(guessed=3, history=1).known
