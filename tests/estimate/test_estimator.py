"""Estimates, their intervals, and when they are trusted."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rota.core.errors import RotaError
from rota.estimate.estimator import Estimator, Fit, Way, folds_by, reach
from rota.estimate.law import MEMORY, FittedLaw
from rota.estimate.model_file import read_estimator, write_estimator
from rota.estimate.observations import Observation, Value, observation, read_observations


def _trained(model: str, batch: float, optimizer: str, noise: float = 1.0) -> Observation:
    """A run whose memory follows the law exactly but for noise."""
    weights, kept = {"small": (5e6, 4e6), "large": (9e7, 3e7)}[model]
    states = {"sgd": 2, "adam": 4}[optimizer]
    memory = (100 + weights * 4 * states / 2**20 + kept * batch / 2**20) * noise
    attributes: dict[str, Value] = {
        "model": model,
        "batch": batch,
        "optimizer": optimizer,
        "precision": "fp32",
        "params": weights,
        "activation_bytes_per_sample": kept,
        "flops_per_sample": 1e9,
        "input_bytes_per_sample": 0.0,
    }
    return Observation(attributes=attributes, labels={"gpu_memory_mb": memory})


def _grid(noise: float = 0.0) -> list[Observation]:
    rng = np.random.default_rng(1)
    cases = itertools.product(("small", "large"), (1.0, 4.0, 8.0, 16.0, 64.0, 128.0), ("sgd", "adam"))
    return [_trained(*case, noise=float(np.exp(noise * rng.standard_normal()))) for case in cases]


def test_law_is_found_again_beyond_the_batches_that_were_seen() -> None:
    law = FittedLaw(MEMORY, _grid())

    asked = _trained("large", 256.0, "adam")

    assert law.predict([asked])[0] == pytest.approx(asked.labels["gpu_memory_mb"], rel=0.03)


def test_law_does_not_follow_an_outlier() -> None:
    runs = [*_grid(), _trained("large", 32.0, "adam", noise=30.0)]

    law = FittedLaw(MEMORY, runs)

    asked = _trained("large", 32.0, "sgd")
    assert law.predict([asked])[0] == pytest.approx(asked.labels["gpu_memory_mb"], rel=0.1)


def test_estimate_of_a_known_model_is_near_and_trusted() -> None:
    estimator = Estimator.learn(_grid(noise=0.03), ["gpu_memory_mb"])

    asked = _trained("small", 32.0, "adam")
    found = estimator.predict("gpu_memory_mb", asked.attributes)

    assert found.value == pytest.approx(asked.labels["gpu_memory_mb"], rel=0.15)
    assert found.low < asked.labels["gpu_memory_mb"] < found.high
    assert found.is_trusted(0.25)
    assert not found.is_trusted(0.0)


def test_counts_are_taken_from_a_run_of_the_same_model() -> None:
    estimator = Estimator.learn(_grid(noise=0.03), ["gpu_memory_mb"])
    flags: dict[str, Value] = {"model": "large", "batch": 256.0, "optimizer": "adam", "precision": "fp32"}

    found = estimator.predict("gpu_memory_mb", flags)

    assert found.value == pytest.approx(_trained("large", 256.0, "adam").labels["gpu_memory_mb"], rel=0.2)
    assert found.error is not None


def test_unknown_model_is_estimated_but_not_trusted() -> None:
    estimator = Estimator.learn(_grid(), ["gpu_memory_mb"])

    found = estimator.predict("gpu_memory_mb", {"model": "huge", "batch": 4.0})

    assert found.error is None
    assert not found.is_trusted(10.0)


def test_label_without_runs_has_the_usual_value() -> None:
    found = Estimator((), {}).predict("host_memory_mb", {"model": "small"})

    assert (found.value, found.error) == (4096.0, None)


def test_forest_alone_learns_flags_without_counts() -> None:
    runs = [
        observation({"program": "a.py", "epochs": epochs, "duration_s": 10.0 * epochs, "user": f"u{epochs % 3}"})
        for epochs in range(1, 40)
    ]

    fit = Fit("duration_s", runs, Way.BEST)

    assert fit.predict([observation({"program": "a.py", "epochs": 20, "user": "u0"})])[0] == pytest.approx(200, rel=0.2)


def test_white_box_needs_counts() -> None:
    with pytest.raises(RotaError, match="no white box for step_s"):
        Fit("step_s", [observation({"model": "a", "step_s": 1.0})], Way.WHITE_BOX)


def test_repeats_of_a_configuration_share_a_fold() -> None:
    keys = ["a", "b", "a", "c", "d", "b"] * 3

    folds = folds_by(keys, 3)

    assert all(len({fold for fold, key in zip(folds, keys, strict=True) if key == name}) == 1 for name in "abcd")
    assert len(set(folds)) == 3


def test_reach_holds_nine_of_ten() -> None:
    assert reach(np.linspace(-1, 1, 1999)) == pytest.approx(0.9, abs=0.01)


def test_file_says_the_same_as_what_was_written(tmp_path: Path) -> None:
    estimator = Estimator.learn(_grid(noise=0.1), ["gpu_memory_mb"])
    write_estimator(estimator, tmp_path / "model.json")
    asked = _trained("small", 48.0, "sgd").attributes

    read = read_estimator(tmp_path / "model.json")

    assert read.predict("gpu_memory_mb", asked) == estimator.predict("gpu_memory_mb", asked)


@pytest.mark.parametrize("text", ["", "{}", '{"form": "rota estimator 1", "trust": {"x": 1}, "runs": []}', "[1]"])
def test_file_that_is_no_estimator_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.json").write_text(text)

    with pytest.raises(RotaError, match=r"model\.json: it is no estimator"):
        read_estimator(tmp_path / "model.json")


def test_table_without_a_label_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("model,batch\na,1\n")

    with pytest.raises(RotaError, match=r"runs\.csv: it has no column to learn"):
        read_observations(tmp_path / "runs.csv")


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(RotaError, match="gpu_memory_mb: 3 runs are too few"):
        Estimator.learn(_grid()[:3], ["gpu_memory_mb"])


def test_nothing_heavy_is_loaded_before_something_is_learned() -> None:
    code = "import sys, rota.cli.estimate, rota.estimate.estimator; sys.exit('sklearn' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
