"""Chances of learning curves: high for one that falls below the target, low for one that levels off above it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtr

from rota.sweeps.curve_fit import chance_below, student_t_below
from rota.sweeps.importance import importance
from rota.sweeps.rules.learning_curve import promising_from
from rota.sweeps.trial import SweepTrial, TrialState, thinned
from sweeps.running import made

STEPS = list(range(1, 21))


def curve(level: float, amplitude: float, power: float) -> list[float]:
    return [level + amplitude * step**-power for step in STEPS]


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_curve_above_the_target_has_hardly_a_chance(power: float) -> None:
    assert chance_below(STEPS, curve(0.5, 1.0, power), 100, 0.3) < 0.05


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_curve_that_falls_below_the_target_is_likely_to(power: float) -> None:
    assert chance_below(STEPS, curve(0.1, 1.0, power), 100, 0.35) > 0.9


@given(st.floats(0, 1), st.floats(0.1, 2), st.floats(0.3, 2), st.floats(-1, 3))
def test_chance_is_a_probability_that_grows_with_the_target(
    level: float, amplitude: float, power: float, target: float
) -> None:
    values = curve(level, amplitude, power)
    low, high = (chance_below(STEPS, values, 100, target + more) for more in (0.0, 0.5))

    assert 0.0 <= low <= high + 1e-9 <= 1.0 + 1e-9


@given(st.integers(1, 2000), st.floats(-1e3, 1e3))
def test_students_t_is_what_scipy_finds(freedom: int, value: float) -> None:
    assert student_t_below(freedom, value) == pytest.approx(float(stdtr(freedom, value)), abs=1e-11)


def test_flat_or_infinite_curve_is_no_fault() -> None:
    assert chance_below([1, 2, 3, 4], [1.0, 1.0, 1.0, 1.0], 10, 0.5) < 0.5
    assert chance_below([1, 2], [float("inf"), 1.0], 10, 0.5) == 0.0


def test_promising_trials_are_as_many_as_their_chances_deserve() -> None:
    assert promising_from([0.9, 0.8, 0.1, 0.1], places=2) == 0.8
    assert promising_from([], places=4) == 1.0


def test_importance_finds_the_parameter_that_matters() -> None:
    file = made(parameters={"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}, "kind": ["a", "b"]}, trials=40)
    trials = [
        SweepTrial(
            number=number,
            params={"x": number / 40, "y": (number * 17 % 40) / 40, "kind": "ab"[number % 2]},
            state=TrialState.COMPLETED,
            curve=((1, (number / 40) ** 2),),
        )
        for number in range(40)
    ]

    found = importance(file, trials)["by_parameter"]

    assert found["x"] == pytest.approx(1.0)
    assert found["y"] < 0.4
    assert found["kind"] < 0.4
    assert importance(file, trials[:3]) == {"method": None, "by_parameter": {}}


def test_thinned_curve_keeps_what_matters() -> None:
    points = [(step, abs(step - 777) / 1000) for step in range(1, 2001)]

    kept = thinned(points, keep=(123,))

    assert len(kept) <= 203
    assert {1, 123, 777, 2000} <= {step for step, _ in kept}
    assert thinned(points[:10]) == tuple(points[:10])
