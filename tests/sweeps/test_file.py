"""Sweep files: what they may say, and one clear line for what they may not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.errors import RotaError
from rota.sweeps.file import read_sweep_file, sweep_file
from rota.sweeps.log_pattern import compiled, found_in
from rota.sweeps.rules import refuse_many_marks, rule_of
from rota.sweeps.samplers import grid_point, sample
from rota.sweeps.space import ParameterPart
from rota.sweeps.trial import SweepTrial, TrialState
from sweeps.running import JOB, made

MISTAKES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"parameters": {}}, "parameters is {}; it must not be empty"),
    ({"parameters": {"x": {}}}, "parameters.x: it needs one of uniform, log, int, log_int and choice; none is given"),
    ({"parameters": {"x": {"log": [0, 1]}}}, "parameters.x: log begins at 0; a logarithm needs numbers above 0"),
    ({"parameters": {"x": {"int": [0.5, 2]}}}, "parameters.x: int is from 0.5 to 2; both must be whole numbers"),
    ({"parameters": {"x": {"uniform": [2, 1]}}}, "parameters.x: uniform is from 2 to 1; it needs low <= high"),
    ({"parameters": {"1x": [1]}}, "not a parameter: '1x'"),
    ({"parameters": {"x": [1], "X": [1]}}, "two names differ in upper and lower case only"),
    ({"sampler": "grid"}, "parameters.x: a grid needs `points` for a range of numbers"),
    ({"sampler": "grid", "parameters": {"x": [1, 2]}}, "trials is 8 and the grid has 2 points; drop trials"),
    ({"sampler": "tpe", "trials": 10_000, "parameters": {f"x{n}": [1, 2] for n in range(6)}}, "at most 50000 values"),
    ({"parameters": {"x": ["y" * 20_000], "z": ["y" * 20_000]}}, "40000 characters of values; at most 32768"),
    ({"sampler": "bayes"}, "sampler is 'bayes'"),
    ({"early_stop": "asha"}, "early_stop.max_steps is missing; rule 'asha' needs the steps of a whole trial"),
    ({"early_stop": {"rule": "asha", "min_steps": 9, "max_steps": 3}}, "min_steps is 9 and max_steps is 3"),
    ({"early_stop": {"rule": "hyperband", "max_steps": 9}, "job": {"run": "x"}}, "job.checkpoint is missing"),
    ({"job": {"run": "x", "name": "y"}}, "job: name is set by the sweep; drop it here"),
    ({"job": {"runs": "x"}}, "unknown field runs"),
    ({"job": {"run": "x", "gang": False}}, "a trial is one job"),
    ({"objective": {"log": "loss"}}, "{value} is missing"),
    ({"objective": {"log": "{loss}"}}, "unknown field {loss}"),
    ({"trails": 3}, "unknown field trails; did you mean 'trials'?"),
)


@pytest.mark.parametrize(("fields", "words"), MISTAKES, ids=lambda value: str(value)[:40])
def test_mistake_is_one_line_that_names_the_field(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(RotaError) as refused:
        made(**fields)

    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@given(low=st.floats(1e-6, 1e3), width=st.floats(0, 1e3), share=st.floats(0, 1, exclude_max=True))
def test_value_lies_within_its_range(low: float, width: float, share: float) -> None:
    for part in (
        ParameterPart(uniform=(low, low + width)),
        ParameterPart(log=(low, low + width)),
        ParameterPart(int=(int(low), int(low + width))),
        ParameterPart(log_int=(int(low) + 1, int(low + width) + 1)),
        ParameterPart(choice=("a", 2.0, True)),
    ):
        assert part.holds(part.value_at(share))


def test_every_whole_number_is_drawn_equally_often() -> None:
    part = ParameterPart(int=(1, 4))

    drawn = [part.value_at((index + 0.5) / 400) for index in range(400)]

    assert [drawn.count(value) for value in (1, 2, 3, 4)] == [100, 100, 100, 100]


def test_grid_has_every_combination_once() -> None:
    file = made(
        sampler="grid",
        parameters={"x": [1, 2], "y": {"log": [0.01, 1.0], "points": 3}, "z": {"int": [0, 1]}},
        trials=12,
    )

    points = [grid_point(file.parameters, number) for number in range(12)]

    assert len({json.dumps(point) for point in points}) == 12
    assert points[0] == {"x": 1, "y": 0.01, "z": 0}
    assert points[3] == {"x": 1, "y": pytest.approx(0.1), "z": 1}


def test_choice_keeps_the_kind_of_each_value() -> None:
    file = made(parameters={"x": ["1e-3", 3, 0.5, True]}, sampler="grid", trials=4)

    assert [grid_point(file.parameters, number)["x"] for number in range(4)] == ["1e-3", 3, 0.5, True]


def test_trial_gets_its_parameters_as_variables() -> None:
    file = made(job={**JOB, "env": {"A": "b"}}, tenant="nlp")

    job = file.trial_job("s1", "digits", 3, {"lr": 0.5, "kind": "relu", "deep": True}, (1, 4))

    assert job["name"] == "digits-3"
    assert job["tenant"] == "nlp"
    assert job["env"] == {
        "A": "b",
        "ROTA_SWEEP": "s1",
        "ROTA_TRIAL": "3",
        "ROTA_PARAMS": '{"lr": 0.5, "kind": "relu", "deep": true}',
        "ROTA_MARKS": "1,4",
        "ROTA_PARAM_LR": "0.5",
        "ROTA_PARAM_KIND": "relu",
        "ROTA_PARAM_DEEP": "true",
    }


@pytest.mark.parametrize(
    ("stop", "job", "rungs"),
    [
        ({"rule": "asha", "max_steps": 32, "factor": 4}, JOB, (1, 4, 16)),
        ({"rule": "asha", "max_steps": 32, "factor": 4}, {"run": "true"}, ()),
        ({"rule": "hyperband", "max_steps": 27, "factor": 3}, JOB, (1, 3, 9)),
        ({"rule": "median", "min_steps": 4}, JOB, ()),
        ({"rule": "learning-curve", "max_steps": 32}, JOB, ()),
        ("none", JOB, ()),
    ],
)
def test_trial_knows_the_rungs_at_which_it_may_have_to_leave(stop: Any, job: dict[str, Any], rungs: tuple[int]) -> None:
    printed = made(early_stop=stop, job=job, objective={"log": "loss {value}"})
    assert rule_of(printed).rungs(0) == rungs

    plain = made(early_stop=stop, job=job).trial_job("s1", "digits", 0, {}, (), rungs)["env"]
    env = printed.trial_job("s1", "digits", 0, {}, (), rungs)["env"]

    told = ",".join(map(str, rungs)) or None
    assert (plain.get("ROTA_RUNGS"), plain.get("ROTA_RUNG_PATTERN")) == (told, None)
    assert (env.get("ROTA_RUNGS"), env.get("ROTA_RUNG_PATTERN")) == (told, "loss {value}" if rungs else None)


def test_random_trial_depends_on_seed_and_number_only() -> None:
    file = made()

    assert sample(file, 3, []) == sample(file, 3, [SweepTrial(number=0, params={"x": 0.1})])
    assert sample(file, 3, []) != sample(file, 4, [])
    assert sample(file, 3, []) != sample(made(seed=1), 3, [])


def test_tpe_draws_near_the_good_trials() -> None:
    pytest.importorskip("optuna", reason="Optuna is not installed")
    file = made(sampler="tpe", trials=60, parameters={"x": {"uniform": [0.0, 1.0]}, "kind": ["a", "b"]})
    trials: list[SweepTrial] = []
    for number in range(40):
        params = sample(file, number, trials)
        loss = abs(float(params["x"]) - 0.7) + (params["kind"] == "b")
        trials.append(SweepTrial(number=number, params=params, state=TrialState.COMPLETED, curve=((1, loss),)))

    late = trials[25:]

    assert sample(file, 40, trials) == sample(file, 40, trials)
    assert sum(abs(float(trial.params["x"]) - 0.7) < 0.2 for trial in late) > 9
    assert sum(trial.params["kind"] == "a" for trial in late) > 9


@pytest.mark.parametrize(
    ("pattern", "line", "found"),
    [
        ("epoch {step}: loss {value}", "epoch 3:  loss 0.25", [(3, 0.25)]),
        ("epoch {step}: loss {value}", "INFO epoch 12: loss 1e-3 lr 0.1", [(12, 1e-3)]),
        ("loss={value}", "step 7 loss=nan", [(1, float("inf"))]),
        ("step {step}{any}loss={value}", "step 7 | acc 0.9 | loss=.5", [(7, 0.5)]),
        ("loss={value}", "loss=abc", []),
        ("a+b {value}", "aab 3", []),
    ],
)
def test_log_lines(pattern: str, line: str, found: list[tuple[int, float]]) -> None:
    assert list(found_in([line], compiled(pattern))) == found


def test_lines_without_steps_are_counted() -> None:
    assert list(found_in(["loss 3", "-", "loss 2"], compiled("loss {value}"), after=4)) == [(5, 3.0), (6, 2.0)]


@given(st.text(max_size=600), st.text(max_size=60))
def test_any_line_and_pattern_are_dealt_with_quickly(line: str, text: str) -> None:
    try:
        pattern = compiled(text + "{any}{value}")
    except ValueError:
        return
    list(found_in([line], pattern))


@pytest.mark.attack(
    "starts a sweep whose trials are judged a billion times",
    stopped_by="how often a trial is judged is bounded, and marks are never listed beyond that",
)
def test_number_of_decisions_is_bounded(tmp_path: Path) -> None:
    stop = {"rule": "learning-curve", "max_steps": 1 << 40, "every": 1}
    path = tmp_path / "sweep.yaml"
    values = {"parameters": {"x": {"uniform": [0, 1]}}, "trials": 8, "job": {"run": "x"}, "early_stop": stop}
    path.write_text(json.dumps(values))

    with pytest.raises(
        RotaError, match=r"early_stop.every is 1 of 1099511627776 steps; .* at least 1099511628"
    ) as refused:
        read_sweep_file(path)

    assert str(refused.value).count(str(path)) == 1
    assert len(rule_of(made(early_stop=stop)).marks(0)) <= 1000
    refuse_many_marks(made(early_stop={**stop, "every": None}))


def test_schema_file_and_json_agree() -> None:
    values = {"parameters": {"x": {"log": ["1e-5", 1]}}, "job": JOB, "trials": 2}

    assert sweep_file(values).parameters["x"].bounds == (1e-5, 1.0)


def test_unknown_field_of_a_parameter_is_answered_with_those_of_all_forms() -> None:
    values = {"parameters": {"lr": {"from": 1, "to": 2}}, "job": {"run": "x"}}

    with pytest.raises(RotaError, match=r"unknown field parameters.lr.from; known: choice, .*uniform"):
        sweep_file(values)
