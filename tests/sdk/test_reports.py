"""Reports of trials: marks are always kept, a long run writes few lines, and a restart counts on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.core.model.job import JobId
from rota.sdk.reports import ALL_LINES, TrialReports, params, report
from rota.store.run_folder import reports as read_reports
from rota.store.run_folder import reports_changed, shared_folder


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a trial, as its task sees it."""
    folder = shared_folder(tmp_path, JobId("7"))
    folder.mkdir(parents=True)
    for name, value in (("RUN_DIR", str(folder)), ("TRIAL", "3"), ("MARKS", "1,4"), ("PARAMS", '{"lr": 0.5}')):
        monkeypatch.setenv(f"ROTA_{name}", value)
    monkeypatch.delenv("RANK", raising=False)
    return tmp_path


def test_reports_are_read_back_in_order_of_steps(trial: Path) -> None:
    report(loss=3.0, step=1)
    report(loss=2.0, accuracy=0.5, step=4)
    report(loss=float("nan"))
    report(accuracy=0.7, step=6)

    assert read_reports(trial, JobId("7"), "loss") == [(1, 3.0), (4, 2.0), (5, float("inf"))]
    assert read_reports(trial, JobId("7"), "accuracy") == [(4, 0.5), (6, 0.7)]
    assert params() == {"lr": 0.5}


def test_first_report_of_a_step_counts_and_broken_lines_do_not(trial: Path) -> None:
    path = shared_folder(trial, JobId("7")) / "reports.jsonl"
    assert reports_changed(trial, JobId("7")) is None
    path.write_text('{"step": 1, "values": {"loss": 2}}\n{"step": 1, "values": {"loss": 9}}\nnonsense\n{"step": "a"}\n')

    assert read_reports(trial, JobId("7"), "loss") == [(1, 2.0)]
    assert reports_changed(trial, JobId("7")) is not None


def test_link_in_place_of_the_file_is_not_followed(trial: Path) -> None:
    outside = trial / "outside"
    outside.write_text('{"step": 1, "values": {"loss": 2}}\n')
    (shared_folder(trial, JobId("7")) / "reports.jsonl").symlink_to(outside)

    assert read_reports(trial, JobId("7"), "loss") == []


def test_long_run_writes_its_marks_and_its_last_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "reports.jsonl"
    monkeypatch.setattr("time.monotonic", lambda: 5.0)  # no time passes
    made = TrialReports(path, (ALL_LINES + 50, ALL_LINES + 100))

    for step in range(1, ALL_LINES + 201):
        made.add(step, {"loss": 1.0 / step})
    made.flush()

    steps = [json.loads(line)["step"] for line in path.read_text().splitlines()]
    assert steps == [*range(1, ALL_LINES + 1), ALL_LINES + 50, ALL_LINES + 100, ALL_LINES + 200]
    assert TrialReports(path, ()).step == ALL_LINES + 200


def test_reports_outside_of_a_job_do_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ROTA_RUN_DIR", raising=False)
    monkeypatch.delenv("ROTA_PARAMS", raising=False)
    monkeypatch.chdir(tmp_path)

    report(loss=1.0)

    assert params() == {}
    assert list(tmp_path.iterdir()) == []
