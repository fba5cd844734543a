"""Estimates, their intervals, and when they are trusted."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rota.core.errors import RotaError
from rota.estimate.analytic_model import MEMORY, FittedLaw
from rota.estimate.estimator import Estimator
from rota.estimate.forest import LabelFit, folds_by, reach
from rota.estimate.model_file import read_estimator, write_estimator
from rota.estimate.observations import Observation, Value, observation, read_observations

pytestmark = pytest.mark.slow


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


@pytest.fixture(scope="module")
def grid() -> Estimator:
    return Estimator.learn(_grid(noise=0.03), ["gpu_memory_mb"])


@pytest.mark.slow
def test_estimate_of_a_known_model_is_near_and_trusted(grid: Estimator) -> None:
    asked = _trained("small", 32.0, "adam")
    found = grid.predict("gpu_memory_mb", asked.attributes)

    assert found.value == pytest.approx(asked.labels["gpu_memory_mb"], rel=0.15)
    assert found.low < asked.labels["gpu_memory_mb"] < found.high
    assert found.is_trusted(0.25)
    assert not found.is_trusted(0.0)


@pytest.mark.slow
def test_counts_are_taken_from_a_run_of_the_same_model(grid: Estimator) -> None:
    flags: dict[str, Value] = {"model": "large", "batch": 256.0, "optimizer": "adam", "precision": "fp32"}

    found = grid.predict("gpu_memory_mb", flags)

    assert found.value == pytest.approx(_trained("large", 256.0, "adam").labels["gpu_memory_mb"], rel=0.2)
    assert found.error is not None


def test_interval_of_an_unknown_model_is_that_of_models_left_out(grid: Estimator) -> None:
    counted = {**_trained("large", 16.0, "adam").attributes, "model": "huge"}
    flags: dict[str, Value] = {"model": "huge", "batch": 4.0, "optimizer": "adam"}

    seen = grid.predict("gpu_memory_mb", _trained("large", 16.0, "adam").attributes)
    unseen = grid.predict("gpu_memory_mb", counted)
    uncounted = grid.predict("gpu_memory_mb", flags)

    assert seen.high / seen.low < unseen.high / unseen.low < uncounted.high / uncounted.low
    assert seen.doubt(0.0) == f"its measured error is {seen.error:.0%}, above 0%"
    assert unseen.doubt(10.0) == "too few kinds were seen to know the error of one that was not"


@pytest.mark.slow
@pytest.mark.parametrize(("apart", "trusted"), [(1.02, True), (3.0, False)], ids=["alike", "not alike"])
def test_unknown_model_is_trusted_if_models_left_out_were_estimated_well(apart: float, trusted: bool) -> None:
    runs = [
        observation({"model": f"m{model}", "batch": batch, "host_memory_mb": (100 + batch) * apart**model})
        for model in range(6)
        for batch in (10, 20, 30)
    ]
    estimator = Estimator.learn(runs, ["host_memory_mb"])

    known = estimator.predict("host_memory_mb", {"model": "m3", "batch": 20.0})
    unknown = estimator.predict("host_memory_mb", {"model": "new", "batch": 20.0})

    left_out = estimator.trust["host_memory_mb"].unseen
    assert left_out is not None
    assert known.error != unknown.error == left_out.error
    assert unknown.is_trusted(0.25) is trusted
    assert trusted or "runs of an unknown kind or model have a measured error of" in str(unknown.doubt(0.25))


@pytest.mark.slow
def test_of_one_kind_alone_nobody_knows_how_others_do() -> None:
    runs = [run for run in _grid(noise=0.03) if run.attributes["model"] == "small"]

    found = Estimator.learn(runs, ["gpu_memory_mb"]).predict("gpu_memory_mb", {"model": "huge", "batch": 4.0})

    assert found.error is None
    assert not found.is_trusted(10.0)


@pytest.mark.slow
def test_family_is_that_of_the_model() -> None:
    runs = [
        Observation(attributes={**run.attributes, "family": f"the {run.attributes['model']} ones"}, labels=run.labels)
        for run in _grid(noise=0.03)
    ]
    estimator = Estimator.learn(runs, ["gpu_memory_mb"])
    flags: dict[str, Value] = {"model": "large", "batch": 32.0, "optimizer": "adam", "precision": "fp32"}

    found = estimator.predict("gpu_memory_mb", flags)

    assert found == estimator.predict("gpu_memory_mb", {**flags, "family": "the large ones"})
    assert found.is_trusted(0.25)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"batch": 100000.0}, "batch is 100000; known runs of model=large have 1 to 128"),
        ({"batch": 0.5}, "batch is 0.5; known runs of model=large have 1 to 128"),
        ({"batch": "many"}, "batch is 'many'; known runs of model=large have 1 to 128"),
        ({"optimizer": "lion"}, "optimizer is 'lion'; known runs of model=large have 'adam', 'sgd'"),
        (
            {"optimizer": None},
            "optimizer is not given; known runs of model=large have 'adam', 'sgd'",
        ),
    ],
    ids=["far above", "below", "no number", "new word", "left out"],
)
def test_what_lies_beyond_the_runs_is_not_trusted_and_named(
    grid: Estimator, changed: dict[str, Value | None], said: str
) -> None:
    told = {**_trained("large", 32.0, "adam").attributes, **changed}

    found = grid.predict("gpu_memory_mb", {name: value for name, value in told.items() if value is not None})

    assert found.doubt(10.0) == said
    assert not found.is_trusted(10.0)


@pytest.mark.parametrize(
    "changed",
    [{"batch": 150.0}, {"user": "somebody"}, {"data": "/any/where"}, {}],
    ids=["margin", "whose", "flag", "same"],
)
def test_what_lies_within_or_near_the_runs_is_trusted(grid: Estimator, changed: dict[str, Value]) -> None:
    assert grid.predict("gpu_memory_mb", {**_trained("large", 32.0, "adam").attributes, **changed}).is_trusted(0.25)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (-5.0, "batch is -5; it must not be negative: past runs have 1 to 128"),
        (float("inf"), "batch is inf; it must be"),
    ],
    ids=["negative", "infinite"],
)
def test_nonsense_is_refused(grid: Estimator, batch: float, said: str) -> None:
    with pytest.raises(RotaError, match=said):
        grid.predict("gpu_memory_mb", {**_trained("large", 32.0, "adam").attributes, "batch": batch})


@pytest.mark.slow
def test_no_gpu_is_more_than_busy() -> None:
    rng = np.random.default_rng(4)
    runs = [
        observation({"model": "m", "batch": batch, "gpu_util_mean": min(97 * float(np.exp(rng.normal(0, 0.3))), 99.0)})
        for batch in range(1, 13)
    ]

    found = Estimator.learn(runs, ["gpu_util_mean"]).predict("gpu_util_mean", {"model": "m", "batch": 6.0})

    assert found.low < found.value < found.high == 100.0


def test_label_without_runs_has_the_usual_value() -> None:
    found = Estimator((), {}).predict("host_memory_mb", {"model": "small"})

    assert (found.value, found.error) == (4096.0, None)


def test_forest_alone_learns_flags_without_counts() -> None:
    runs = [
        observation({"program": "a.py", "epochs": epochs, "duration_s": 10.0 * epochs, "user": f"u{epochs % 3}"})
        for epochs in range(1, 40)
    ]

    fit = LabelFit("duration_s", runs)

    assert fit.predict([observation({"program": "a.py", "epochs": 20, "user": "u0"})])[0] == pytest.approx(200, rel=0.2)


def test_repeats_of_a_configuration_share_a_fold() -> None:
    keys = ["a", "b", "a", "c", "d", "b"] * 3

    folds = folds_by(keys, 3)

    assert all(len({fold for fold, key in zip(folds, keys, strict=True) if key == name}) == 1 for name in "abcd")
    assert len(set(folds)) == 3


def test_reach_holds_nine_of_ten() -> None:
    assert reach(np.linspace(-1, 1, 1999)) == pytest.approx(0.9, abs=0.01)


def test_file_says_the_same_as_what_was_written(grid: Estimator, tmp_path: Path) -> None:
    write_estimator(grid, tmp_path / "model.json")
    asked = _trained("small", 48.0, "sgd").attributes

    read = read_estimator(tmp_path / "model.json")

    assert read.predict("gpu_memory_mb", asked) == grid.predict("gpu_memory_mb", asked)
    assert read.trust == grid.trust


@pytest.mark.parametrize("text", ["", "{}", '{"form": "rota estimator 2", "trust": {"x": 1}, "runs": []}', "[1]"])
def test_file_that_is_no_estimator_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.json").write_text(text)

    with pytest.raises(RotaError, match=r"model\.json: not an estimator"):
        read_estimator(tmp_path / "model.json")


def test_table_without_a_label_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("model,batch\na,1\n")

    with pytest.raises(RotaError, match=r"runs\.csv: no column to learn"):
        read_observations(tmp_path / "runs.csv")


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(
        RotaError, match="gpu_memory_mb: 3 different runs with a value above 0 are too few; at least 8 are needed"
    ):
        Estimator.learn(_grid()[:3], ["gpu_memory_mb"])


@pytest.mark.slow
def test_nothing_heavy_is_loaded_before_something_is_learned() -> None:
    code = "import sys, rota.cli.learned.estimate, rota.estimate.estimator; sys.exit('sklearn' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
