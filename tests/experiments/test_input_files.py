"""What a result is known by: every file that a run reads, however an option names it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.experiments.experiment_file import experiment_from
from rota.experiments.points import points_of

TASK = "j1,worker,1,Terminated,100.0,160.0,600.0,29.3,50.0,T4\n"
NETWORK = "topology: links\ninside: {2: table.csv}\n"


def _keys(**fields: Any) -> set[str]:
    given = {"name": "x", "policies": "fifo", "traces": "mixed", "clusters": "gpu=8/4", **fields}
    return {point.key for point in points_of(experiment_from(given, Path("x")))}


@pytest.mark.parametrize(
    ("file", "fields"),
    [
        pytest.param("mine.csv", {"traces": "mine.csv"}, id="trace"),
        pytest.param("pai_job_table.csv", {"traces": "pai_task_table.csv"}, id="table beside a trace"),
        pytest.param("nodes.yaml", {"clusters": "nodes.yaml"}, id="cluster"),
        pytest.param("links.yaml", {"clusters": "nodes.yaml"}, id="network of a cluster"),
        pytest.param("table.csv", {"options": {"network": "links.yaml"}}, id="table of a network"),
        pytest.param("own.py", {"policies": "own.py:mine"}, id="policy"),
        pytest.param("weights.npz", {"policies": "harmony:weights=weights.npz"}, id="parameter of a policy"),
        pytest.param("own.py", {"own_metrics": "own.py:mine"}, id="metric"),
        pytest.param("own.py", {"options": {"placement": "own.py:mine"}}, id="placement"),
        pytest.param("links.yaml", {"options": {"placement": "cassini:links.yaml"}}, id="network of a placement"),
        pytest.param("own.py", {"options": {"speed_factor": "own.py:mine"}}, id="speed"),
        pytest.param("own.py", {"options": {"format": "own.py:mine"}}, id="reader"),
        pytest.param("faults.csv", {"options": {"faults": "faults.csv"}}, id="faults"),
        pytest.param("after.yaml", {"options": {"change": ["2h=after.yaml"]}}, id="change of the cluster"),
        pytest.param("own.py", {"variants": {"a": {"speed_factor": "own.py:mine"}}}, id="variant"),
    ],
)
def test_run_is_another_when_a_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, fields: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pai_task_table.csv").write_text(TASK)
    (tmp_path / "links.yaml").write_text(NETWORK)
    (tmp_path / "nodes.yaml").write_text("network: links.yaml\n")
    for name in (file, "table.csv"):
        if not (tmp_path / name).exists():
            (tmp_path / name).write_text("before\n")
    before = _keys(**fields)

    assert _keys(**fields) == before
    (tmp_path / file).write_bytes((tmp_path / file).read_bytes() + b"# and more\n")
    assert not _keys(**fields) & before


def test_jobs_left_out_in_a_variant_depend_on_all_policies() -> None:
    """A job is left out if any policy can't place it: the runs of one policy differ with the others."""
    variants = {"all": {}, "fitting": {"skip_oversized": True}}

    alone, beside = (_keys(policies=names, variants=variants) for names in (["fifo"], ["fifo", "sia"]))

    assert len(alone & beside) == 1


def test_trace_that_was_edited_is_read_again_in_the_same_session(tmp_path: Path) -> None:
    trace, own = tmp_path / "mine.csv", tmp_path / "own.py"

    def mean(work: int, factor: int) -> tuple[float, float]:
        trace.write_text(f"id,submit_s,work,gpus\na,0,{work},1\n")
        own.write_text(f"def longest(history):\n    return {factor} * max(row.run_s for row in history.jobs)\n")
        for file in (trace, own):  # a clock of the file system that is too coarse to tell
            os.utime(file, ns=(work, work))
        found = rota.experiment(
            policies="fifo", traces=str(trace), clusters="gpu=1/1", own_metrics=f"{own}:longest", out=tmp_path / "out"
        )
        (row,) = found.rows.to_dicts()
        return row["avg_jct_s"], row["longest"]

    assert mean(100, 1) == (100.0, 100.0)
    assert mean(200, 3) == (200.0, 600.0)


def test_notes_on_a_comparison_are_those_of_the_policies_compared(tmp_path: Path) -> None:
    """Rows are kept: what was said of them beside one policy is not true beside another."""

    def placements_told(*policies: str) -> list[bool]:
        given: dict[str, Any] = {"traces": "gavel-like", "clusters": "gpu=8/4", "jobs": 12, "out": tmp_path}
        return ["different placements" in notes for notes in rota.experiment(policies=policies, **given).rows["notes"]]

    assert placements_told("fifo", "tiresias") == [True, True]
    assert placements_told("fifo", "srtf") == [False, False]
    assert placements_told("fifo", "tiresias") == [True, True]
