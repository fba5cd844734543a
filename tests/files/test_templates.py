"""Templates: typed parameters, quoted where a shell reads them, and a library whose examples hold."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rota.core.errors import RotaError
from rota.files.job import submitted_job
from rota.files.templates.template_file import library, template_file
from rota.sweeps.file import sweep_file

Json = dict[str, Any]
TEMPLATE = """
description: a training
parameters:
  lr: {type: number, default: 0.1, min: 0, max: 1}
  workers: {type: integer, default: 2, min: 1}
  amp: {type: boolean, default: true}
  size: {type: choice, choices: [small, large], default: small}
  note: {}
job:
  workers: "{{ workers }}"
  run: train --lr {{ lr }} --amp {{amp}} --size {{ size }} {{ note }}
  env: {NOTE: "<{{ note }}>", AMP: "{{ amp }}"}
"""


def template(**changes: Any) -> Json:
    values: Json = yaml.safe_load(TEMPLATE)
    return {**values, **changes}


def test_values_take_their_places_with_their_types() -> None:
    found = template_file(template()).filled({"note": "a b", "lr": "0.5", "workers": "3", "amp": "no"})

    (job,) = found["jobs"]
    assert job == {
        "workers": 3,
        "run": "train --lr 0.5 --amp false --size small 'a b'",
        "env": {"NOTE": "<a b>", "AMP": "false"},
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "template: parameter note has no value; give it with -p note=VALUE"),
        ({"note": "x", "lr": "fast"}, "template: lr is 'fast'; it must be a number"),
        ({"note": "x", "lr": "nan"}, "template: lr is 'nan'; it must be a number"),
        ({"note": "x", "lr": 2}, "template: lr is 2; it must be at most 1"),
        ({"note": "x", "workers": "1.5"}, "template: workers is '1.5'; it must be a whole number"),
        ({"note": "x", "workers": 0}, "template: workers is 0; it must be at least 1"),
        ({"note": "x", "workers": True}, "template: workers is True; it must be a whole number"),
        ({"note": "x", "amp": "maybe"}, "template: amp is 'maybe'; it must be true or false"),
        ({"note": "x", "size": "smal"}, "template: size: unknown choice 'smal'; did you mean 'small'?"),
        ({"note": "x", "lrr": 1}, "template: no parameter 'lrr'; did you mean 'lr'?"),
        ({"note": "a\0b"}, "template: note: it holds a NUL character, or more than 65536 others"),
    ],
)
def test_wrong_value_is_named_with_the_way_out(values: Json, message: str) -> None:
    with pytest.raises(RotaError) as caught:
        template_file(template()).filled(values)

    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sweep": {"job": {}}}, "a template has either a job or a sweep; give one of them"),
        ({"job": None}, "a template has either a job or a sweep; give one of them"),
        ({"job": {"run": "x {{ lrr }}"}}, "{{ lrr }} is no parameter; did you mean 'lr'?"),
        ({"job": {"run": "true"}}, "parameters.amp is used nowhere; drop it, or write {{ amp }} where it belongs"),
        ({"parameters": {"a b": {}}}, "parameters: 'a b' is no name; use letters, digits and underscores"),
        ({"parameters": {"lr": {"min": 1}}}, "parameters.lr: min and max are for an integer or a number"),
        ({"parameters": {"lr": {"type": "choice"}}}, "parameters.lr: choices are for a parameter of the type choice"),
        ({"parameters": {"lr": {"type": "integer", "default": 0.5}}}, "default is 0.5; it must be a whole number"),
        ({"job": {"rum": "{{ lr }} {{ workers }} {{ amp }} {{ size }} {{ note }}"}}, "unknown field rum"),
        ({"descriptoin": "x"}, "unknown field descriptoin; did you mean 'description'?"),
    ],
)
def test_wrong_template_is_refused(changes: Json, message: str) -> None:
    with pytest.raises(RotaError) as caught:
        template_file(template(**changes), "t.yaml")

    assert str(caught.value).startswith("t.yaml: ")
    assert message in str(caught.value)


@given(note=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40))
def test_value_stays_one_word_of_the_shell_whatever_it_holds(note: str) -> None:
    (job,) = template_file(template()).filled({"note": note})["jobs"]

    assert shlex.split(job["run"])[-1] == note
    assert job["env"]["NOTE"] == f"<{note}>"


def test_shell_runs_no_part_of_a_value() -> None:
    command = template(parameters={"note": {}}, job={"run": "printf %s {{ note }}"})
    for note in ("$(echo hacked)", "`echo hacked`", "'; echo hacked; '", '" && echo hacked "', "a\necho hacked"):
        (job,) = template_file(command).filled({"note": note})["jobs"]
        done = subprocess.run(["/bin/sh", "-c", job["run"]], capture_output=True, text=True, check=True)
        assert done.stdout == note


def test_value_that_looks_like_a_place_is_not_filled_again() -> None:
    (job,) = template_file(template()).filled({"note": "{{ lr }}"})["jobs"]

    assert job["env"]["NOTE"] == "<{{ lr }}>"


def test_array_stands_for_several_jobs() -> None:
    parts = template(parameters={"parts": {"type": "integer", "default": 3}}, job={"run": "x"}, array="{{ parts }}")

    assert [job["array"] for job in template_file(parts).filled({"parts": 4})["jobs"]] == [0, 1, 2, 3]
    limited = template_file({**parts, "array": "{{ parts }}%2"}).filled({"parts": 4})["jobs"]
    assert [(job["array"], job["array_limit"]) for job in limited] == [(number, 2) for number in range(4)]
    for wrong in ("{{ parts }}%0", "{{ parts }}%", "{{ parts }}%x", "%{{ parts }}", "{{ parts }}%1%1"):
        with pytest.raises(RotaError, match="how many of them may run at once"):
            template_file({**parts, "array": wrong})
    with pytest.raises(RotaError, match="array is 5000; it must be a number of jobs from 1 to 1000"):
        template_file(parts).filled({"parts": 5000})


@pytest.mark.parametrize("name", ["evaluation-array", "huggingface-finetune", "notebook", "pytorch-ddp", "sweep"])
def test_library_holds(name: str) -> None:
    found = library()[name].filled({})

    for job in found.get("jobs", []):
        submitted_job(job)
        if isinstance(job["run"], str):
            subprocess.run(["/bin/sh", "-n", "-c", job["run"]], check=True)
    if "sweep" in found:
        sweep_file(found["sweep"])


def test_finetuning_passes_the_precision_only_where_there_is_an_option_for_it() -> None:
    for precision, expected in (("bf16", True), ("fp32", False)):
        (job,) = library()["huggingface-finetune"].filled({"precision": precision, "model": "my model"})["jobs"]
        shown = job["run"].replace("exec torchrun", "printf '%s\\n'")
        env = {**job["env"], "ROTA_RUN_DIR": "/run", "PATH": "/usr/bin:/bin"}
        words = subprocess.run(
            ["/bin/sh", "-c", shown], env=env, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        assert ("--bf16" in words) is expected
        assert words[words.index("--model_name_or_path") + 1] == "my model"
