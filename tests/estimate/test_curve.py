"""Scaling curves from noisy points."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rota.core.errors import RotaError
from rota.estimate.curve import curves_by_kind, fit_curve
from rota.estimate.observations import observation

PLACES = (1, 2, 4, 8, 16, 32, 64)


@pytest.mark.slow
def test_terms_of_a_clean_curve_are_found() -> None:
    curve = fit_curve([(x, 3 + 2 * x * math.log2(x)) for x in PLACES])

    assert (1.0, 1) in curve.terms
    assert curve.at(128) == pytest.approx(3 + 2 * 128 * 7, rel=0.01)


@pytest.mark.slow
def test_constant_needs_no_terms() -> None:
    rng = np.random.default_rng(3)

    curve = fit_curve([(x, 5 * float(np.exp(0.02 * rng.standard_normal()))) for x in PLACES for _ in range(3)])

    assert curve.at(512) == pytest.approx(5, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 1e-9, 0.02])
@pytest.mark.parametrize("places", [PLACES[:4], PLACES[:6]], ids=len)
def test_flat_curve_stays_flat_far_away(noise: float, places: tuple[int, ...]) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)

        curve = fit_curve([(x, 5 * float(np.exp(noise * rng.standard_normal()))) for x in places])

        assert curve.at(1024) == pytest.approx(5, rel=0.1), curve


@pytest.mark.slow
def test_four_clean_places_are_enough_for_a_term() -> None:
    curve = fit_curve([(x, 1 + 8 / x) for x in PLACES[:4]])

    assert curve.terms == ((-1.0, 0),)
    assert curve.at(64) == pytest.approx(1 + 8 / 64, rel=0.01)


@pytest.mark.slow
def test_one_outlier_in_five_does_not_bend_the_curve() -> None:
    rng = np.random.default_rng(5)
    points = []
    for number, x in enumerate(PLACES * 5):
        noise = float(np.exp(0.05 * rng.standard_normal()))
        points.append((x, (10 + 4 / x) * noise * (6.0 if number % 5 == 0 else 1.0)))

    curve = fit_curve(points)

    assert curve.at(3) == pytest.approx(10 + 4 / 3, rel=0.1)
    assert curve.at(128) == pytest.approx(10, rel=0.1)


@pytest.mark.slow
def test_each_kind_has_its_curve() -> None:
    runs = [
        observation({"model": model, "gpus_asked": x, "step_s": cost / x + 1})
        for model, cost in (("a", 8.0), ("b", 64.0))
        for x in PLACES
    ]

    found = {kind: fit for kind, points, fit in curves_by_kind(runs, "step_s", "gpus_asked") if points == len(PLACES)}

    assert found["model=a"].at(3) == pytest.approx(8 / 3 + 1, rel=0.02)
    assert found["model=b"].at(3) == pytest.approx(64 / 3 + 1, rel=0.02)


def test_attribute_that_no_run_has_is_named() -> None:
    with pytest.raises(RotaError, match="--by is 'nodes': no run has"):
        curves_by_kind([observation({"step_s": 1.0, "model": "a"})], "step_s", "nodes")


def test_few_places_are_refused() -> None:
    with pytest.raises(RotaError, match="4 places or more, not 2"):
        fit_curve([(1, 1.0), (2, 2.0), (2, 2.1)])
