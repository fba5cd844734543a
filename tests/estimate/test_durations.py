"""Durations learned from jobs that have ended: what the effects come to, and whether they order jobs."""

from __future__ import annotations

import random

import pytest

from builders import job
from rota.core.model.job import Job
from rota.estimate.durations import UNKNOWN_S, Durations

USERS, MODELS = {"ann": 1.0, "bob": 4.0, "eve": 16.0}, {"small": 60.0, "large": 600.0}


def asked(number: int, user: str, model: str, gpus: int = 1) -> Job:
    return job(f"j{number}", name=f"run-{number}", user=user, model=model, gpus=gpus)


def learned(count: int = 300) -> Durations:
    """After so many jobs whose durations are the product of user and model, give or take a fifth."""
    rng, durations = random.Random(2), Durations()
    for number in range(count):
        user, model = rng.choice(list(USERS)), rng.choice(list(MODELS))
        durations.ended(asked(number, user, model), number * 60.0, USERS[user] * MODELS[model] * rng.uniform(0.8, 1.2))
    return durations


def test_effects_of_user_and_model_multiply() -> None:
    durations = learned()

    for user, times in USERS.items():
        for model, base_s in MODELS.items():
            assert durations.estimate_s(asked(999, user, model), 0.0) == pytest.approx(times * base_s, rel=0.25)


def test_unknown_user_is_as_the_mean_of_its_model() -> None:
    durations = learned()

    small, large = (durations.estimate_s(asked(999, "new", model), 0.0) for model in MODELS)

    assert large / small == pytest.approx(10.0, rel=0.3)


def test_nothing_is_known_before_the_first_end_and_one_says_little() -> None:
    durations = Durations()
    assert durations.estimate_s(asked(0, "ann", "small"), 0.0) == pytest.approx(UNKNOWN_S)

    durations.ended(asked(0, "ann", "small"), 0.0, 60.0)

    assert durations.estimate_s(asked(1, "bob", "large"), 0.0) == pytest.approx(60.0)


def test_nothing_that_was_learned_outlives_a_restart_too() -> None:
    durations = Durations()

    durations.recall(Durations().memory)

    assert durations.estimate_s(asked(0, "ann", "small"), 0.0) == pytest.approx(UNKNOWN_S)


def test_what_was_learned_outlives_a_restart() -> None:
    durations, again = learned(40), Durations()

    again.recall(durations.memory)

    assert again.memory == durations.memory
    assert again.estimate_s(asked(7, "eve", "large"), 0.0) > 5.0 * again.estimate_s(asked(7, "ann", "small"), 0.0)


def test_effect_of_a_single_job_is_shrunk() -> None:
    durations, again = Durations(), Durations()
    for number in range(30):
        durations.ended(asked(number, "ann", "small"), 0.0, 60.0)
    durations.ended(asked(99, "rare", "small"), 0.0, 6000.0)

    again.recall(durations.memory)

    assert 100.0 < again.estimate_s(asked(100, "rare", "small"), 0.0) < 4500.0
