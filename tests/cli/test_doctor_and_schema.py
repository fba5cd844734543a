"""`rota doctor` names what is missing; `rota schema` describes what the files may say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from docs.pages import ROOT, fences
from rota.cli.main import status
from rota.cli.manager import machine_report
from rota.cli.manager.machine_report import Standing

KINDS = ("job", "cluster", "settings", "scenario", "network", "experiment")


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
