"""`rota experiment` from a file to results: the grid, what is kept, and what is run again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from rota.cli.main import status

STUDY = """
policies: [fifo, {las: {thresholds: [300/1200, 3250/7200]}}]
traces: [gavel-like]
clusters: gpu=8/4
loads: [0.7, 1.1]
seeds: 2
jobs: 30
warm_up: 10%
options: {restart_cost: 30s}
"""
RUNS = 3 * 2 * 2


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(STUDY)
    return tmp_path


def _rows(folder: Path) -> list[dict[str, object]]:
    lines = (folder / "study-results" / "rows.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def _figures(folder: Path) -> list[tuple[object, ...]]:
    table = pl.read_parquet(folder / "study-results" / "results.parquet")
    return table.select("key", "policy", "load", "seed", "avg_jct_s", "p99_ftf_fluid", "allocation").rows()


@pytest.mark.slow
def test_grid_is_run_and_kept_with_its_provenance(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["experiment", "study.yaml"]) == 0

    told = capsys.readouterr()
    assert "Against fifo, on the same jobs" in told.out
    assert "gavel-like, load 1.1" in told.out
    table = pl.read_parquet(folder / "study-results" / "results.parquet")
    assert table.height == RUNS
    assert set(table["policy"]) == {"fifo", "las:thresholds=300/1200", "las:thresholds=3250/7200"}
    assert set(table["jobs"]) == {27}
    assert set(table["rota_version"]) == {"0.1.0"}
    assert json.loads(table["options"][0]) == {"restart_cost": "30s"}
    for name in ("report.html", "tables.md", "tables.tex"):
        assert (folder / "study-results" / name).stat().st_size > 100
    assert r"\begin{tabular}" in (folder / "study-results" / "tables.tex").read_text()


@pytest.mark.slow
def test_figures_show_all_values_whatever_their_size(folder: Path) -> None:
    given = ["--policy", "fifo", "--policy", "srtf", "--trace", "mixed", "--cluster", "gpu=8/4", "--load", "0.8"]

    assert status(["experiment", *given, "--load", "1.2", "--seeds", "2", "--jobs", "80", "--figures"]) == 0

    out = folder / "experiment-results"
    table = (out / "tables.md").read_text()
    assert "intervals over 2 seeds are wide; 5 or more" in table
    assert "[-" not in table.partition("Against fifo")[0], "an interval holds values that can't be"
    page = (out / "report.html").read_text()
    plots = [json.loads(text) for text in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page)]
    plot = {each["layout"]["title"]["text"]: each for each in plots}
    assert "mixed: mean JCT by load" in plot
    points = [trace for trace in plot["mixed, load 1.2"]["data"] if trace.get("mode") == "markers"]
    shown = [trace["y"][0] for trace in points]
    assert max(shown) > 8 * min(shown)
    assert plot["mixed, load 1.2"]["layout"]["yaxis"]["type"] == "log"
    assert all(trace["error_y"]["arrayminus"][0] < trace["y"][0] for trace in points)
    assert {path.name for path in (out / "figures").glob("*.pdf")} >= {"load-mixed.pdf", "pareto-mixed-load-1.2.pdf"}


@pytest.mark.slow
def test_what_is_there_is_not_run_again_and_cut_lines_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["experiment", "study.yaml"]) == 0
    whole = _figures(folder)
    file = folder / "study-results" / "rows.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:7]) + lines[7][:40])
    capsys.readouterr()

    assert status(["experiment", "study.yaml"]) == 0

    assert f"7 of {RUNS} runs were there already" in capsys.readouterr().err
    assert _figures(folder) == whole
    assert len(_rows(folder)) == RUNS


@pytest.mark.slow
def test_killed_experiment_goes_on_without_a_wrong_or_missing_row(folder: Path) -> None:
    command = [sys.executable, "-c", "from rota.cli.main import run; run()", "experiment", "study.yaml"]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = folder / "study-results" / "rows.jsonl"
    for _ in range(600):
        if running.poll() is not None or (rows.exists() and rows.stat().st_size):
            break
        time.sleep(0.05)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    before = rows.read_text().count("\n")

    assert status(["experiment", "study.yaml"]) == 0

    assert before >= 1
    assert len({row["key"] for row in _rows(folder)}) == RUNS
    killed = _figures(folder)
    assert status(["experiment", "study.yaml", "--out", "fresh"]) == 0
    fresh = pl.read_parquet(folder / "fresh" / "results.parquet")
    assert killed == fresh.select("key", "policy", "load", "seed", "avg_jct_s", "p99_ftf_fluid", "allocation").rows()


@pytest.mark.slow
def test_processes_and_options_give_the_same_rows(folder: Path) -> None:
    assert status(["experiment", "study.yaml"]) == 0
    given = ["--policy", "fifo", "--policy", "las:thresholds=300/1200", "--policy", "las:thresholds=3250/7200"]
    given += ["--trace", "gavel-like", "--cluster", "gpu=8/4", "--load", "0.7", "--load", "1.1", "--seeds", "2"]
    given += ["--jobs", "30", "--warm-up", "10%", "--option", "restart_cost=30s"]

    assert status(["experiment", *given, "--processes", "2", "--out", "other"]) == 0

    other = pl.read_parquet(folder / "other" / "results.parquet")
    assert other.select("key", "policy", "load", "seed", "avg_jct_s", "p99_ftf_fluid", "allocation").rows() == _figures(
        folder
    )


@pytest.mark.slow
def test_a_changed_option_gives_new_rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["experiment", "study.yaml", "--policy", "fifo", "--policy", "srtf", "--load", "0.7", "--seeds", "1"]
    assert status(small) == 0
    capsys.readouterr()

    assert status([*small, "--option", "restart_cost=60s"]) == 0

    assert "were there already" not in capsys.readouterr().err
    assert len(_rows(folder)) == 4


@pytest.mark.parametrize(
    ("args", "told"),
    [
        pytest.param(["--trace", "x", "--cluster", "gpu=8/4"], "state the policies of the experiment", id="no policy"),
        pytest.param(["study.yaml", "--policy", "lsa"], "unknown policy 'lsa'; did you mean 'las'?", id="policy"),
        pytest.param(["study.yaml", "--trace", "gavel-lik"], "trace 'gavel-lik' is no file and no kind", id="trace"),
        pytest.param(["study.yaml", "--load", "-1"], "load is -1; it must be a number above 0", id="load"),
        pytest.param(["study.yaml", "--load", "1", "--load", "1"], "load 1.0 is given twice", id="twice"),
        pytest.param(["study.yaml", "--seed", "1", "--seeds", "2"], "give one of them", id="seeds"),
        pytest.param(["study.yaml", "--warm-up", "soon"], "is neither jobs nor time", id="window"),
        pytest.param(["study.yaml", "--warm-up", "20"], "write 20 jobs, 20% or 20s", id="bare window"),
        pytest.param(["study.yaml", "--option", "seed=3"], "write `seeds:` at the top level", id="grid option"),
        pytest.param(["study.yaml", "--option", "restart=3"], "unknown field restart", id="option"),
        pytest.param(["study.yaml", "--metric", "jct"], "unknown metric 'jct'", id="metric"),
        pytest.param(["study.yaml", "--baseline", "srtf"], "is not among the policies", id="baseline"),
        pytest.param(["study.yaml", "--out", "study.yaml"], "it exists and is not a folder", id="out"),
    ],
)
def test_mistakes_are_refused_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], args: list[str], told: str
) -> None:
    assert status(["experiment", *args]) == 2

    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_folder_with_other_files_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.tex").write_text("years of work")

    assert status(["experiment", "study.yaml", "--out", "mine"]) == 2

    assert "it holds other files" in capsys.readouterr().err


def _trace(folder: Path, jobs: int) -> None:
    lines = [f"{number},{number * 40},{100 + 37 * number % 900},1" for number in range(jobs)]
    (folder / "mine.csv").write_text("\n".join(["id,submit_s,work,gpus", *lines]) + "\n")


@pytest.mark.slow
def test_seeds_that_change_nothing_are_no_evidence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _trace(folder, 60)
    command = ["experiment", "--trace", "mine.csv", "--cluster", "gpu=4/4", "--policy", "fifo", "--policy", "srtf"]

    assert status([*command, "--seeds", "8", "--metric", "avg_jct_s", "--out", "whole"]) == 0

    told = capsys.readouterr()
    assert "1 of 1" in told.out
    assert "8 of 8" not in told.out
    assert "seeds have no effect on mine.csv: 7 repetitions" in told.out + told.err


@pytest.mark.slow
def test_windows_that_overlap_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _trace(folder, 60)
    command = ["experiment", "--trace", "mine.csv", "--cluster", "gpu=4/4", "--policy", "fifo", "--seeds", "3"]

    for jobs, overlap in (("25", True), ("15", False)):
        assert status([*command, "--jobs", jobs, "--metric", "avg_jct_s", "--out", f"of{jobs}"]) == 0
        told = capsys.readouterr()
        assert (f"3 windows of {jobs} jobs overlap in mine.csv with 60" in told.out + told.err) is overlap


@pytest.mark.slow
def test_own_metric_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _trace(folder, 20)
    (folder / "own.py").write_text("def longest_run(history):\n    return max(row.run_s for row in history.jobs)\n")
    command = ["experiment", "--trace", "mine.csv", "--cluster", "gpu=4/4", "--policy", "fifo", "--out", "own"]

    assert status([*command, "--metric", "own.py:longest_run"]) == 0

    assert "longest run" in capsys.readouterr().out
    assert "longest run" in (folder / "own" / "tables.md").read_text()


@pytest.mark.slow
def test_run_whose_jobs_are_damaged_is_run_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["experiment", "study.yaml"]) == 0
    before = _figures(folder)
    first = sorted((folder / "study-results" / "jobs").iterdir())[0]
    first.write_bytes(first.read_bytes()[:100])

    assert status(["experiment", "study.yaml", "--metric", "p99_jct_s"]) == 0

    assert _figures(folder) == before
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.slow
def test_caveats_and_what_is_unknown_go_with_tables_and_figures(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--policy", "fifo", "--policy", "gandiva", "--policy", "lucid", "--trace", "alibaba-like", "--seeds", "2"]
    shown = [f"--metric={name}" for name in ("avg_jct_s", "utilisation", "allocation", "cost_usd")]

    assert status(["experiment", *given, *shown, "--cluster", "gpu=8/4", "--jobs", "30"]) == 0

    told, out = capsys.readouterr(), folder / "experiment-results"
    unmeasured = "gandiva, lucid: no pair of jobs on the same devices was measured"
    for text in (told.err, (out / "tables.md").read_text(), (out / "tables.tex").read_text()):
        assert text.count(unmeasured) == 1
        assert "utilisation is not known for any run and left out" in text
        assert text.count("cost assumes 1 USD an hour for device type gpu") == 1
    (note,) = [each for each in told.err.splitlines() if unmeasured in each]
    assert not note.endswith("runs)"), "all runs of these policies carry it"
    (line,) = [each for each in told.out.splitlines() if each.startswith("gandiva*  allocation")]
    assert " points " in line
    assert "%" not in line
    page = (out / "report.html").read_text()
    figures = [json.loads(text) for text in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page)]
    labelled = [plot["layout"]["yaxis"].get("ticktext", []) for plot in figures]
    assert sum("gandiva*" in labels for labels in labelled) == 2, "ratios and ranks"
