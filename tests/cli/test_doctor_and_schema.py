"""`rota doctor` names what is missing; `rota schema` describes what the files may say."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from docs.pages import ROOT, File, all_pages, examples, fences, name_of
from rota.cli.file_schemas import KINDS as FILE_KINDS
from rota.cli.file_schemas import FileKind
from rota.cli.main import status
from rota.cli.manager import machine_report
from rota.cli.manager.machine_report import Standing
from rota.core.model.job import Level

_LINE = re.compile(r"# yaml-language-server: \$schema=schemas/(\w+)\.schema\.json\n")
ALL_KINDS = (
    *FILE_KINDS,
    FileKind(name="experiment", target="rota.experiments.experiment_file:ExperimentFile", about=""),
)
KINDS = ("job", "sweep", "cluster", "tenant", "settings", "scenario", "network", "experiment")


def _schema(kind: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert status(["schema", kind]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("kind", KINDS)
def test_schemas_are_valid(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert jsonschema_rs.meta.is_valid(_schema(kind, capsys))


def test_schema_takes_the_documented_job_files(capsys: pytest.CaptureFixture[str]) -> None:
    validator = jsonschema_rs.Draft202012Validator(_schema("job", capsys))
    page = ROOT / "docs/reference/job-file.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    files = [yaml.safe_load("\n".join(lines[a:b])) for _, language, a, b in fences(lines) if language == "yaml"]

    assert any("resources" in file for file in files)
    assert [error.message for file in files if "run" in file for error in validator.iter_errors(file)] == []


def test_each_example_names_a_schema_that_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    """But for HiveD's files, whose form is HiveD's, and one that shows what is wrong."""
    validators = {kind: jsonschema_rs.Draft202012Validator(_schema(kind, capsys)) for kind in KINDS}
    found = []
    for page in all_pages():
        for file in examples(page):
            if not isinstance(file, File) or not file.name.endswith(".yaml") or "physicalCluster" in file.text:
                continue
            if file.name == "wrong.yaml":
                continue
            where = f"{name_of(page)}: {file.name}"
            named = _LINE.match(file.text)
            assert named is not None, f"{where} names no schema"
            errors = validators[named[1]].iter_errors(yaml.safe_load(file.text))
            found.append(named[1])
            assert [error.message for error in errors] == [], where

    assert set(found) == {"job", "cluster", "settings", "scenario", "experiment"}


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("job", {"run": "true", "name": 7}),
        ("job", {"run": ["true"], "resources": {"gpus": 2, "gpu": ["a100", "h100"]}, "deadline": "2026-12-01T08:00"}),
        *(("job", {"run": "true", "locality": {"level": level.name.lower()}}) for level in Level),
        ("tenant", {"gpus": 4, "limit": {"a100": 2}}),
        ("cluster", {"nodes": [{"name": "a1", "gpus": 4, "memory": "1Ti"}], "tenants": {"nlp": {"gpus": 4}}}),
        ("settings", {"tenants": "nlp,vision", "max_priority": "member=0,nlp=5", "cgroups": True, "task_env": ["A=b"]}),
        ("settings", {"tenants": ["nlp"], "max_priority": {"member": 0}, "cgroups": "on", "task_env": {"A": "b"}}),
        ("scenario", {"policy": "las", "restart_cost": "30s", "change": ["2h=after.yaml"], "type_speed": "a100=2"}),
        ("scenario", {"policy": ["las"], "restart_cost": 30, "spread": {"rack": 0.9}, "type_speed": {"a100": 2}}),
        ("experiment", {"policies": "las", "traces": "mixed", "clusters": "gpu=8/8", "loads": 1.0, "seeds": 3}),
        (
            "experiment",
            {"policies": {"las": {"n": [1, 2]}}, "traces": ["mixed"], "clusters": ["gpu=8/8"], "seeds": [1]},
        ),
    ],
)
def test_schema_and_reader_take_the_short_forms(kind: str, file: object, capsys: pytest.CaptureFixture[str]) -> None:
    (module, _, name), *_ = [each.target.partition(":") for each in ALL_KINDS if each.name == kind]
    getattr(importlib.import_module(module), name).model_validate(file)

    errors = jsonschema_rs.Draft202012Validator(_schema(kind, capsys)).iter_errors(file)

    assert [error.message for error in errors] == []


@pytest.mark.parametrize(
    ("file", "is_good"),
    [
        ({"run": "true", "resources": {"gpus": 0.5, "memory": "16Gi"}, "time_limit": "2h"}, True),
        ({"run": "true", "resources": {"gpus": "auto"}}, True),
        ({"run": "true", "recources": {}}, False),
        ({"run": "true", "workers": "many"}, False),
    ],
)
def test_schema_takes_what_users_write(file: object, is_good: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert jsonschema_rs.Draft202012Validator(_schema("job", capsys)).is_valid(file) is is_good


def test_all_schemas_are_written(tmp_path: Path) -> None:
    assert status(["schema", "--out", str(tmp_path)]) == 0

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{kind}.schema.json" for kind in KINDS)


def test_unknown_kind_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["schema", "jop"]) == 2
    assert "did you mean 'job'" in capsys.readouterr().err


def test_doctor_says_what_each_thing_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["doctor", "--port", "0", "-o", "json"]) == 0

    rows = {row["what"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["Python"]["standing"] == "good"
    assert all(row["needed_for"] for row in rows.values())
    assert all(row["way_out"] for row in rows.values() if row["standing"] == "missing" and row["what"] != "memory")


def test_doctor_fails_only_where_no_manager_can_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine_report, "OLDEST_PYTHON", (9, 9))

    assert status(["doctor", "--port", "0"]) == 1
    assert "can't run here: Python" in capsys.readouterr().err


def test_doctor_finds_a_port_that_is_taken(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        found = {each.what: each for each in machine_report.machine_report(tmp_path, taken.getsockname()[1])}

    port = next(each for what, each in found.items() if what.startswith("port"))
    assert port.standing is Standing.MISSING
