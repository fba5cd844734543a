"""Chances of learning curves: high for one that falls below the target, low for one that levels off above it."""

from __future__ import annotations

import math
import random
from typing import Any

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


@given(seed=st.integers(0, 10**6), count=st.integers(20, 60))
def test_importance_finds_a_best_value_within_a_range(seed: int, count: int) -> None:
    rng = random.Random(seed)
    file = made(parameters={"lr": {"log": [1e-4, 1.0]}, "noise": {"uniform": [0, 1]}}, trials=count)
    trials = []
    for number in range(count):
        params: dict[str, Any] = {"lr": 10.0 ** rng.uniform(-4, 0), "noise": rng.random()}
        loss = (math.log10(params["lr"]) + 2) ** 2 + rng.gauss(0, 0.05)
        state = TrialState.COMPLETED
        trials.append(SweepTrial(number=number, params=params, state=state, curve=((1, loss),)))

    found = importance(file, trials)["by_parameter"]

    assert found["lr"] > 0.8
    assert found["lr"] > found["noise"]


@given(seed=st.integers(0, 10**6))
def test_importance_is_not_misled_by_trials_that_were_stopped_early(seed: int) -> None:
    rng = random.Random(seed)
    file = made(parameters={"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}}, trials=32)
    trials = []
    for number in range(32):
        params: dict[str, Any] = {"x": number / 32, "y": rng.random()}
        gone_on = (
            params["x"] < 0.25
        )  # promoted: its loss at step 1 was among the best, and at step 9 it is twice as large
        values = {1: params["x"], 9: 2.0 + params["x"]} if gone_on else {1: params["x"]}
        state = TrialState.COMPLETED if gone_on else TrialState.STOPPED
        trials.append(SweepTrial(number=number, params=params, state=state, values=values, curve=tuple(values.items())))

    assert importance(file, trials)["by_parameter"]["x"] > 0.95


@pytest.mark.parametrize("values", [[1.0] * 8, [1.0, 2.0] * 4])
def test_importance_of_what_does_not_vary_is_none(values: list[float]) -> None:
    file = made(parameters={"x": {"uniform": [0, 9]}, "kind": ["a", "b"]}, trials=8)
    trials = [
        SweepTrial(number=at, params={"x": 1.0, "kind": "a"}, state=TrialState.COMPLETED, curve=((1, value),))
        for at, value in enumerate(values)
    ]

    assert importance(file, trials)["by_parameter"] == {"x": 0.0, "kind": 0.0}


def test_thinned_curve_keeps_what_matters() -> None:
    points = [(step, abs(step - 777) / 1000) for step in range(1, 2001)]

    kept = thinned(points, keep=(123,))

    assert len(kept) <= 203
    assert {1, 123, 777, 2000} <= {step for step, _ in kept}
    assert thinned(points[:10]) == tuple(points[:10])
