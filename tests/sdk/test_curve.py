"""The curve of a training loop stays small, covers the whole run, and continues after a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rota.core.model.job import JobId
from rota.sdk.curve import MAX_POINTS, MetricCurve
from rota.sdk.training import steps
from rota.store.run_folder import curve, progress, shared_folder


@pytest.mark.slow
def test_a_long_run_has_few_points(tmp_path: Path) -> None:
    told = MetricCurve(tmp_path / "curve-0.json")
    for second in range(10_000):
        told.add(float(second), 10 * second, {"loss": 1 / (1 + second)})

    at = [step for _, step, _ in told.points]

    assert MAX_POINTS // 2 <= len(at) <= MAX_POINTS
    assert at[0] == 0
    assert at[-1] > 99_000
    assert at == sorted(at)


def test_a_restart_continues_the_curve(tmp_path: Path) -> None:
    path = tmp_path / "curve-0.json"
    text = MetricCurve(path).add(100.0, 1, {"loss": 2.0})
    assert text is not None
    path.write_text(text)

    again = MetricCurve(path)
    assert again.add(100.5, 2, {"loss": 1.9}) is None
    again.add(101.5, 3, {"loss": 1.8})

    assert [step for _, step, _ in again.points] == [1, 3]


def test_only_numbers_are_taken_from_a_job_s_files(tmp_path: Path) -> None:
    folder = shared_folder(tmp_path, JobId("1"))
    folder.mkdir(parents=True)
    point = [1.0, 5, {"loss": float("nan"), "accuracy": 0.5}]
    (folder / "curve-0.json").write_text(json.dumps({"every_s": 1, "points": [point]}))
    (folder / "progress-0.json").write_text(json.dumps({"step": 5, "steps_per_s": 2, "values": point[2]}))

    assert curve(tmp_path, JobId("1")) == [(1.0, 5, {"accuracy": 0.5})]
    assert progress(tmp_path, JobId("1")) == {"step": 5, "steps_per_s": 2.0, "values": {"accuracy": 0.5}}

    for junk in ("[]", '{"points": 7}', '{"points": [[1]]}', '{"points": [["<b>", 1, {}]]}', "[" * 100_000):
        (folder / "curve-0.json").write_text(junk)
        assert curve(tmp_path, JobId("1")) == []
    (folder / "curve-0.json").unlink()
    (folder / "curve-0.json").symlink_to("/etc/passwd")
    assert curve(tmp_path, JobId("1")) == []


@pytest.mark.parametrize(
    ("given", "known"), [({"steps": 7}, 7), ({}, 3), ({"plain": True}, 0)], ids=["said", "counted", "unknown"]
)
def test_progress_says_how_many_steps_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], known: int
) -> None:
    """A loader that is made from the first step on is counted; any other may be one epoch of several."""
    monkeypatch.setenv("ROTA_RUN_DIR", str(tmp_path))
    loader = [1, 2, 3]
    run = steps(loader if given.get("plain") else lambda first: loader[first:], steps=given.get("steps"))

    assert list(run) == [1, 2, 3]

    assert json.loads((tmp_path / "progress-0.json").read_text())["steps"] == known
