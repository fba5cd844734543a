"""`rota plan parallel`, as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.cli.main import status

MODEL = ("--model", "gpt", "--hidden", "3072", "--layers", "30", "--heads", "32", "--seq", "2048")
SHAPE = (*MODEL, "--vocab", "51200", "--batch", "512", "--gpu", "a100")


def run(*words: str) -> int:
    return status(["plan", "parallel", *words])


def test_given_plan_is_costed(capsys: pytest.CaptureFixture[str]) -> None:
    plan = ["--gpus", "64", "--per-node", "8", "--tensor", "1", "--pipeline", "1", "--data", "64", "--micro-batch", "8"]
    assert run(*SHAPE, *plan, "-o", "json") == 0

    found = json.loads(capsys.readouterr().out)
    assert found["iteration_s"] == pytest.approx(3.567, rel=0.1)  # as vTrain measured
    assert found["fits"] is True
    assert 64 * 2**30 < found["memory_bytes"] < 80 * 2**30
    assert found["planner"] == "given"
    assert sum(found["parts_s"].values()) == pytest.approx(found["iteration_s"])


def test_what_is_left_out_is_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*SHAPE, "--gpus", "64", "--tensor", "2", "-o", "json") == 0

    found = json.loads(capsys.readouterr().out)
    plan = found["plan"]
    assert plan["tensor"] == 2
    assert plan["tensor"] * plan["pipeline"] * plan["data"] == 64
    assert found["planner"] == "ptd-p"


def test_plan_that_does_not_fit_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--model gpt-76b --gpus 8 --tensor 8 --pipeline 1 --data 1 --micro-batch 1 -o json"
    assert run(*words.split(" ")) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["fits"] is False


@pytest.mark.slow
def test_constants_are_fitted_to_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    table = Path(__file__).parents[2] / "bench" / "parallel_h200.csv"
    plan = (
        "--gpus",
        "1",
        "--tensor",
        "1",
        "--pipeline",
        "1",
        "--data",
        "1",
        "--micro-batch",
        "8",
        "--recompute",
        "full",
    )
    shape = ("--hidden", "4096", "--layers", "8", "--heads", "32", "--seq", "2048", "--vocab", "51200", "--batch", "32")
    found = []
    for more in ((), ("--measured", str(table))):
        assert run(*shape, *plan, "--gpu", "h200", *more, "-o", "json") == 0
        found.append(json.loads(capsys.readouterr().out)["iteration_s"])

    assert found[1] == pytest.approx(2.279, rel=0.1)  # the row of the table
    assert found[0] == pytest.approx(found[1], rel=0.01)  # the type's constants come from it


@pytest.mark.slow
@pytest.mark.parametrize("planner", ["ptd-p", "ptd-p-rule", "alpa-like", "galvatron-like"])
def test_every_planner_answers_in_one_form(capsys: pytest.CaptureFixture[str], planner: str) -> None:
    assert run(*SHAPE, "--gpus", "8", "--planner", planner, "-o", "json") == 0

    found = json.loads(capsys.readouterr().out)
    assert found["planner"] == planner
    assert found["fits"] is True
    assert 20 < found["iteration_s"] < 40
    assert found["plan"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param([*SHAPE, "--gpus", "96", "--tensor", "3"], "--tensor 3 does not divide --heads 32", id="heads"),
        pytest.param([*SHAPE, "--gpus", "-8"], "--gpus -8 is below 1", id="negative"),
        pytest.param(["--gpus", "8"], "--model gpt needs --hidden", id="no shape"),
        pytest.param(["--model", "gtp-39b", "--gpus", "8"], "did you mean 'gpt-39b'?", id="unknown model"),
        pytest.param(["--model", "gpt-1t", "--gpus", "8"], "no plan fits the 76 usable GiB of one a100", id="memory"),
        pytest.param([*SHAPE, "--gpus", "8", "--gpu", "a10"], "unknown --gpu 'a10'", id="unknown type"),
        pytest.param([*SHAPE, "--gpus", "8", "--planner", "alpa"], "unknown --planner 'alpa'", id="unknown planner"),
        pytest.param(
            [*SHAPE, "--gpus", "8", "--planner", "alpa-like", "--tensor", "2"],
            "--tensor 2 cannot be given to --planner alpa-like",
            id="planner without given",
        ),
        pytest.param(
            [*SHAPE, "--gpus", "8", "--measured", "none.csv"], "--measured none.csv: No such file", id="no rows"
        ),
        pytest.param([*SHAPE, "--gpus", "8", "--network-gb-s", "0"], "--network-gb-s 0 is not above 0", id="network"),
    ],
)
def test_mistakes_are_named_on_one_line(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert run(*words) == 2

    printed = capsys.readouterr().err
    assert said in printed
    assert printed.count("\n") == 1
