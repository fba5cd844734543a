"""What jobs may say of how they share devices, and that nonsense is refused where jobs come in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.files.job import apart, read_job_file
from rota.perf.speed.sharing_labels import SHARING_LABELS, fault_in_labels
from rota.traces import read_trace

GOOD = {
    "utilization": ("0", "0.5", "1", "1e-3"),
    "limit": ("0.5", "0.75", "1"),
    "affinity": ("x", "team a"),
    "anti-affinity": ("x",),
    "exclusion": ("x",),
    "persistent": ("0", "0.2", "1"),
    "weight": ("0.001", "3", "1000"),
    "stages": ("1/0/0/0", "0.4/0.2/0.3/0.1"),
}
NO_NUMBER = ("abc", "", "nan", "inf", "-inf", "1e400", "-1")
BAD = {
    "utilization": (*NO_NUMBER, "1.5", "50%"),
    "limit": (*NO_NUMBER, "0.4", "1.1"),
    "affinity": ("", "  "),
    "anti-affinity": ("",),
    "exclusion": ("",),
    "persistent": (*NO_NUMBER, "2"),
    "weight": (*NO_NUMBER, "0", "1001"),
    "stages": (*NO_NUMBER, "1/2/3", "0/0/0/0", "1/1/1/nan", "1/1/1/-1"),
}
good = [(name, text) for name, texts in GOOD.items() for text in texts]
bad = [(name, text) for name, texts in BAD.items() for text in texts]


def test_all_labels_are_tried() -> None:
    names = [label.name for label in SHARING_LABELS]

    assert names == list(GOOD) == list(BAD)


@pytest.mark.parametrize(("name", "text"), [*good, ("team", "-1"), ("weights", "abc"), ("Limit", "nan")])
def test_labels_that_can_be_read_pass_and_so_do_those_of_others(name: str, text: str) -> None:
    assert fault_in_labels([("owner", "me"), (name, text)], 500) is None


@pytest.mark.parametrize(("name", "text"), bad)
def test_nonsense_is_named_with_what_is_accepted(name: str, text: str) -> None:
    fault = fault_in_labels([("owner", "me"), (name, text)], 500)

    assert fault is not None
    assert fault.startswith(f"labels.{name} is {text!r}; it must be ")


def test_limit_may_not_be_below_the_request() -> None:
    fault = fault_in_labels([("limit", "0.2")], 500)

    assert fault == "labels.limit is '0.2'; it must be a number from 0.5, the request of a task, to 1"


JOB = {"name": "serve", "run": "true", "resources": {"gpus": 0.5}, "labels": {"limit": "0.2"}}
SAID = r"job serve: labels\.limit is '0\.2'; it must be a number from 0\.5"


def test_job_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(JOB))

    with pytest.raises(RotaError, match=SAID):
        read_job_file(path)


def test_submission_is_refused() -> None:
    with pytest.raises(RotaError, match=SAID):
        list(apart(JOB))


@pytest.mark.parametrize("more", [{}, {"priority": -1}], ids=["plain", "any"])
def test_trace_is_refused_with_its_line_unless_bad_lines_are_skipped(tmp_path: Path, more: dict[str, int]) -> None:
    path = tmp_path / "jobs.jsonl"
    rows = [
        {"id": name, "submit_s": 0, "work": 10, "labels": {"weight": said}} for name, said in (("a", "2"), ("b", "x"))
    ]
    path.write_text("\n".join(json.dumps(row | more) for row in rows))

    with pytest.raises(
        RotaError, match=r"jobs\.jsonl:2: job b: labels\.weight is 'x'; it must be a number from 0\.001"
    ):
        read_trace(path)
    assert [each.job.id for each in read_trace(path, skip_bad_lines=True).submissions] == ["a"]
