"""The published formulas against published and hand-computed values."""

from __future__ import annotations

import math

import pytest

from rota.core.errors import RotaError
from rota.health.checkpoint_interval import (
    daly,
    exact_ettr,
    expected_ettr,
    mean_time_to_failure,
    most_available,
    young,
)

MIN_S = 60.0


@pytest.mark.parametrize(
    ("nodes", "write_min", "interval_min", "ettr"), [(128, 1, 58.8, 0.964), (2048, 5, 32.9, 0.696)]
)
def test_values_of_rsc_1(nodes: int, write_min: float, interval_min: float, ettr: float) -> None:
    mttf_s = mean_time_to_failure(nodes, 6.5)

    best_s = young(write_min * MIN_S, mttf_s)

    assert best_s / MIN_S == pytest.approx(interval_min, abs=0.05)
    assert expected_ettr(best_s, write_min * MIN_S, mttf_s, 5 * MIN_S) == pytest.approx(ettr, abs=0.0005)


@pytest.mark.parametrize(("gpus", "hours"), [(16_384, 1.80), (131_072, 0.225), (1024, 28.8)])
def test_time_to_failure_by_size(gpus: int, hours: float) -> None:
    assert mean_time_to_failure(gpus / 8, 6.5) / 3600 == pytest.approx(hours, rel=0.005)


def test_daly_is_near_the_best_interval_where_young_is_not() -> None:
    write, mttf = 60.0, 600.0

    best = max(range(20, 600), key=lambda interval: exact_ettr(float(interval), write, mttf, 30.0))

    assert daly(write, mttf) == pytest.approx(best, rel=0.01)
    assert young(write, mttf) > 1.15 * best
    assert daly(1200.0, 600.0) == 600.0


def test_first_order_agrees_with_the_exact_value_where_failures_are_rare() -> None:
    assert expected_ettr(600.0, 10.0, 1e6, 60.0) == pytest.approx(exact_ettr(600.0, 10.0, 1e6, 60.0), rel=1e-4)
    for ettr in (expected_ettr, exact_ettr):
        assert ettr(600.0, 10.0, math.inf, 60.0) == pytest.approx(600 / 610)
    assert expected_ettr(7200.0, 10.0, 600.0, 60.0) == 0.0


def test_period_of_highest_availability() -> None:
    assert most_available(2.0, 98.0, 2.0) == pytest.approx(2.0 + math.sqrt(2 * 100 * 2 + 4))


@pytest.mark.parametrize(("write", "mttf"), [(-1.0, 10.0), (1.0, 0.0), (math.inf, 10.0)])
def test_impossible_amounts_are_refused(write: float, mttf: float) -> None:
    with pytest.raises(RotaError, match="must be"):
        young(write, mttf)
