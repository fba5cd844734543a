"""Calibration: the share beyond each end becomes the wanted one, under drift too, and a restart changes nothing."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from live.truth.seeded import stored
from rota.live.truth.calibration import (
    BEYOND,
    LEAST_STEP,
    MOST,
    Calibration,
    EndFactor,
    RangeCalibration,
    score_of,
    stretched,
)
from rota.store.forecasts import StoredForecast, StoredRange

FINITE = st.floats(0.0, 1e6, allow_nan=False)


def predicted(median_s: float = 100.0, low_s: float = 90.0, high_s: float | None = 110.0) -> StoredRange:
    return StoredRange(median_s=median_s, low_s=low_s, high_s=high_s, given_low_s=low_s, given_high_s=high_s)


def kept(
    actual_s: float, *, made_s: float = 0.0, policy: str = "fifo", span: StoredRange | None = None
) -> StoredForecast:
    start = span or predicted(made_s + 100.0, made_s + 90.0, made_s + 110.0)
    return stored(start=start, made_s=made_s, policy=policy, started_s=actual_s)


@given(st.lists(st.floats(0.0, MOST / 2), min_size=1, max_size=400))
@settings(max_examples=60, deadline=None)
def test_share_beyond_an_end_is_the_wanted_one_for_any_sequence(scores: list[float]) -> None:
    """The logarithm stays bounded, so hits and misses must balance: the bound of online conformal prediction."""
    factor = EndFactor()
    for score in scores:
        factor.see(score)
    reach = (math.log(MOST) - math.log(0.2) + 1.0) / LEAST_STEP + 20.0

    assert factor.beyond - BEYOND * len(scores) <= reach
    assert math.log(0.2) <= factor.log <= math.log(MOST)


@pytest.mark.parametrize("spread", [0.3, 1.0, 5.0], ids=["too wide", "right", "too narrow"])
def test_ranges_cover_ninety_percent_after_a_drift(spread: float) -> None:
    """Moments are first as predicted, then `spread` times as uncertain; the last thousand are covered as wanted."""
    rng, calibration, held = random.Random(7), RangeCalibration(), []
    for number in range(2400):
        sigma_s = 10.0 / 1.645 * (1.0 if number < 1200 else spread)
        actual_s = max(rng.gauss(100.0, sigma_s), 0.0)
        given_range = calibration.stretch(0.0, 100.0, 90.0, 110.0)
        assert given_range.low_s is not None
        assert given_range.high_s is not None
        held.append(given_range.low_s <= actual_s <= given_range.high_s)
        calibration.see(0.0, predicted(), actual_s)

    assert sum(held[-1000:]) / 1000 == pytest.approx(0.9, abs=0.03)


def test_constant_lateness_moves_the_upper_end_only() -> None:
    calibration = RangeCalibration()
    for _ in range(60):
        calibration.see(0.0, predicted(), 150.0)

    found = calibration.stretch(0.0, 100.0, 90.0, 110.0)

    assert found.high_s is not None
    assert found.high_s >= 149.0
    assert calibration.below.value < 1.0


def test_range_of_no_width_grows_by_what_was_seen() -> None:
    calibration = RangeCalibration()
    exact = predicted(100.0, 100.0, 100.0)
    for _ in range(40):
        calibration.see(0.0, exact, 103.0)

    found = calibration.stretch(0.0, 100.0, 100.0, 100.0)

    assert found.high_s is not None
    assert 102.5 <= found.high_s <= 112.0


def test_first_range_is_given_as_it_was_computed() -> None:
    found = RangeCalibration().stretch(0.0, 100.0, 90.0, 110.0)

    assert (found.low_s, found.high_s) == (90.0, 110.0)


def test_range_never_begins_before_it_is_made() -> None:
    calibration = RangeCalibration()
    for _ in range(50):
        calibration.see(0.0, predicted(), 1.0)

    assert calibration.stretch(95.0, 100.0, 98.0, 110.0).low_s == 95.0


def test_end_beyond_the_horizon_stays_open() -> None:
    calibration = RangeCalibration()
    calibration.see(0.0, predicted(high_s=None), 5000.0)

    assert calibration.above.seen == 0
    assert calibration.stretch(0.0, 100.0, 90.0, None).high_s is None


@given(FINITE, st.floats(0.0, 1e5), st.floats(0.01, 1e4))
def test_score_is_the_factor_that_just_reaches_the_moment(beyond_s: float, width_s: float, margin_s: float) -> None:
    factor = score_of(beyond_s, width_s, margin_s)

    assert stretched(width_s, factor, margin_s) >= beyond_s * (1 - 1e-6) - 1e-6


def test_restart_rebuilds_the_same_factors_from_the_database() -> None:
    rng, running = random.Random(3), Calibration()
    seen = []
    for number in range(300):
        each = kept(number + 100.0 + rng.gauss(0.0, 30.0), made_s=float(number), policy=rng.choice(("fifo", "las")))
        seen.append(each)
    seen.sort(key=lambda each: each.started_s or 0.0)
    for each in seen:
        running.see_start(each)

    again = Calibration(seen)

    for policy in ("fifo", "las"):
        assert again.starts(policy).above.value == running.starts(policy).above.value
        assert again.starts(policy).below.value == running.starts(policy).below.value
    assert again.starts("fifo").above.value != again.starts("las").above.value


def test_job_that_had_started_before_says_nothing() -> None:
    calibration = Calibration([kept(5.0, made_s=50.0)])

    assert calibration.starts("fifo").above.seen == 0
