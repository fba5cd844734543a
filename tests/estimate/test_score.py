"""How good the estimates are: the measures themselves, and the figures on the table that comes with Rota."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rota.estimate import forest, score
from rota.estimate.observations import read_observations
from rota.estimate.score import KINDS, RANDOM, LabelScore, oracle_error, rmsre, scores


def test_relative_errors_are_squared_and_meant() -> None:
    assert rmsre(np.array([10.0, 100.0]), np.array([13.0, 60.0])) == pytest.approx(np.sqrt((0.09 + 0.16) / 2))


def test_no_single_number_beats_the_oracle() -> None:
    truth = np.array([1.0, 2.0, 7.0, 7.0])

    best = oracle_error(["a", "a", "b", "b"], truth)

    tried = [rmsre(truth, np.array([guess, guess, 7.0, 7.0])) for guess in np.linspace(0.5, 3, 2501)]
    assert best == pytest.approx(min(tried), abs=1e-6)


def test_inputs_that_were_tried_once_say_nothing_of_an_oracle() -> None:
    assert oracle_error(["a", "b"], np.array([1.0, 2.0])) is None


@pytest.fixture(scope="module")
def found() -> Iterator[dict[tuple[str, str], LabelScore]]:
    """With fewer trees than usual: the white box does most of the work, and forests alone are not judged here."""
    runs = read_observations(Path("h200"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forest, "TREES", 12)
        patch.setattr(score, "TREES", 12)
        yield {(each.split, each.label): each for each in scores(runs, ["gpu_memory_mb", "step_s"])}


@pytest.mark.slow
@pytest.mark.parametrize(("label", "most"), [("gpu_memory_mb", 0.10), ("step_s", 0.15)])
def test_estimates_of_measured_trainings_are_near(
    found: dict[tuple[str, str], LabelScore], label: str, most: float
) -> None:
    random = found[RANDOM, label]

    assert random.median_error <= most
    assert random.o_err is not None
    assert random.o_err < random.rmsre < random.bom_err
    assert random.runs == 236


@pytest.mark.slow
@pytest.mark.parametrize("label", ["gpu_memory_mb", "step_s"])
@pytest.mark.parametrize("split", [RANDOM, KINDS])
def test_intervals_hold_nine_in_ten(found: dict[tuple[str, str], LabelScore], label: str, split: str) -> None:
    assert 0.85 <= found[split, label].coverage <= 0.95
