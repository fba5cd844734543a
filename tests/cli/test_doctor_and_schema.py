"""`rota doctor` names what is missing; `rota schema` describes what the files may say."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from pydantic import BaseModel, ValidationError

from docs.pages import ROOT, File, all_pages, examples, fences, name_of
from rota.cli.file_schemas import KINDS as FILE_KINDS
from rota.cli.file_schemas import FileKind, file_schema
from rota.cli.main import status
from rota.cli.manager import machine_report
from rota.cli.manager.machine_report import Standing
from rota.core.errors import RotaError
from rota.core.model.job import Level
from rota.files.templates.template_file import LIBRARY, library

_LINE = re.compile(r"# yaml-language-server: \$schema=schemas/(\w+)\.schema\.json\n")
ALL_KINDS = (
    *FILE_KINDS,
    FileKind(name="experiment", target="rota.experiments.experiment_file:ExperimentFile", about=""),
)
KINDS = tuple(each.name for each in ALL_KINDS)


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


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(part, (*path, key))
    yield path


def _put(value: Any, path: tuple[Any, ...], new: object) -> Any:
    if not path:
        return new
    made = value.copy()
    made[path[0]] = _put(value[path[0]], path[1:], new)
    return made


def _documented() -> list[Any]:
    """Every piece of YAML in the pages, whether a file of an example or a part of one."""
    found = []
    for page in all_pages():
        lines = page.read_text(encoding="utf-8").splitlines()
        found += ["\n".join(lines[a:b]) for _, language, a, b in fences(lines) if language.split()[:1] == ["yaml"]]
    return [value for text in found if "---" not in text and isinstance(value := yaml.safe_load(text), dict)]


UNDOCUMENTED = (
    {
        "run": ["python", "train.py"],
        "image": "docker.io/pytorch/pytorch",
        "volumes": ["/data:/data:ro"],
        "data": ["imagenet"],
        "interactive": {"tty": True},
        "notify": ["end", "fail"],
        "notify_to": ["email", "team"],
        "env": {"EPOCHS": "3", "KEY": {"secret": "x"}},
        "deadline": "2026-12-01T08:00",
    },
    {
        "containers": {"runtime": "podman", "pull": "missing", "images": ["store"], "volumes": ["/data"]},
        "gpu": {"idle": {"below": 5, "for": "30m", "then": "suspend"}, "mig": {"gpus": [6], "profiles": ["1g.18gb"]}},
        "notifications": {"channels": {"ops": {"email": ["ops@example.org"]}}},
        "alerts": {"to": ["ops"], "rules": [{"name": "slow", "when": "rota_queue_wait_seconds > 2h", "for": "10m"}]},
        "proxy_domain": "jobs.example.org",
        "default_cpus": "share",
        "default_memory": "8Gi",
    },
    {"gpus": {"a100": 4}, "limit": 8, "weight": 2, "parent": "lab"},
)
OTHER_FORMS = (7, 0.5, "2h", "16Gi", "auto", ["a"], {"a": "b"}, {"a": 1})


def test_schema_takes_whatever_the_reader_takes() -> None:
    """Of all that the pages show, and of it with every value in other forms; editors must not refuse what works."""
    refused, taken = set(), set()
    for kind in ALL_KINDS:
        module, _, name = kind.target.partition(":")
        reader = getattr(importlib.import_module(module), name)
        validator = jsonschema_rs.Draft202012Validator(file_schema(kind.name, ALL_KINDS))
        for file in (*_documented(), *UNDOCUMENTED):
            if not _is_taken(reader, file):
                continue
            taken.add(kind.name)
            paths = [
                path for path in _leaves(file) if kind.name != "template" or path[:1] not in (("job",), ("sweep",))
            ]
            changed = (_put(file, path, form) for path in paths for form in OTHER_FORMS)
            for each in (file, *(made for made in changed if not validator.is_valid(made))):
                if _is_taken(reader, each) and not validator.is_valid(each):
                    refused |= {f"{kind.name}: {error.message}" for error in validator.iter_errors(each)}

    assert refused == set()
    assert taken == set(KINDS)


def _is_taken(reader: type[BaseModel], file: object) -> bool:
    try:
        reader.model_validate(file)
    except (ValidationError, RotaError):
        return False
    return True


def test_no_schema_demands_a_format_that_the_reader_does_not() -> None:
    """Editors check the format of a moment, by which `2026-12-01T08:00` would be wrong."""
    found = json.dumps([file_schema(kind, ALL_KINDS) for kind in KINDS])

    assert set(re.findall(r'"format": "([^"]+)"', found)) <= {"path"}


@pytest.mark.parametrize("name", sorted(library()))
def test_schema_takes_the_templates_that_come_with_rota(name: str) -> None:
    validator = jsonschema_rs.Draft202012Validator(file_schema("template"))

    errors = validator.iter_errors(yaml.safe_load((LIBRARY / f"{name}.yaml").read_text(encoding="utf-8")))

    assert [error.message for error in errors] == []


@pytest.mark.parametrize(
    ("part", "is_good"),
    [
        ({"resources": {"gpus": "{{ n }}"}, "gang": "{{ together }}", "notify": "{{ events }}"}, True),
        ({"env": {"A": "{{ a }}"}, "volumes": ["{{ folder }}:/data"], "checkpoint": {"signal": "{{ signal }}"}}, True),
        ({"workers": "many"}, False),
        ({"resources": {"gpuz": "{{ n }}"}}, False),
    ],
)
def test_parameters_stand_for_values_of_a_template_only(part: dict[str, Any], is_good: bool) -> None:
    validator = jsonschema_rs.Draft202012Validator(file_schema("template"))

    assert validator.is_valid({"description": "x", "job": {"run": "true", **part}}) is is_good


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
