"""What `rota sim` refuses or says of options and folders that would give other results than users expect."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from rota.cli.main import status

TRACE = "id,submit_s,work,gpus\na,0,10,1\nb,1,20,1\n"


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.csv").write_text(TRACE)
    return ["sim", "--trace", "jobs.csv", "--cluster", "gpu=1/1", "--policy", "fifo"]


@pytest.mark.parametrize(
    ("twice", "told"),
    [
        (["--restart-cost", "30", "--restart-cost", "60"], "--restart-cost is given 2 times (30, 60)"),
        (["--seed=1", "--seed", "2"], "--seed is given 2 times (1, 2)"),
        (["-o", "json", "--output", "csv"], "--output is given 2 times (json, csv)"),
    ],
)
def test_option_of_one_value_that_is_repeated_is_refused(
    given: list[str], capsys: pytest.CaptureFixture[str], twice: list[str], told: str
) -> None:
    assert status([*given, *twice]) == 2

    assert told in capsys.readouterr().err


def test_option_of_several_values_may_be_repeated(given: list[str]) -> None:
    assert status([*given, "--policy", "srtf"]) == 0


def test_seed_without_effect_is_said(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert status([*given, "--seed", "3", "-o", "json"]) == 0

    told = capsys.readouterr()
    assert "--seed 3 has no effect" in told.err
    assert any("--seed 3 has no effect" in note for note in json.loads(told.out)[0]["notes"])


@pytest.mark.parametrize("more", [["--policy", "themis"], ["--mttf", "1d"]])
def test_seed_with_effect_is_not(given: list[str], capsys: pytest.CaptureFixture[str], more: list[str]) -> None:
    assert status([*given, "--seed", "3", *more]) == 0

    assert "no effect" not in capsys.readouterr().err


def test_results_of_an_earlier_run_are_not_replaced_in_silence(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert status([*given, "--out", "results"]) == 0
    assert "replaces" not in capsys.readouterr().err

    assert status([*given, "--out", "results"]) == 0

    assert "note: --out results: replaces the results of an earlier run" in capsys.readouterr().err


def test_two_runs_do_not_write_into_one_folder(
    given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results").mkdir()
    with (tmp_path / "results" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        assert status([*given, "--out", "results"]) == 2

    assert "--out results: another run writes into it now" in capsys.readouterr().err


def test_journal_of_an_interrupted_run_says_so(
    given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rota.cli.study.runs.simulate", interrupted)
    assert status([*given, "--out", "results"]) == 130
    assert not (tmp_path / "results" / "journal.jsonl").exists()

    assert status(["sim", "--replay", "results/journal.jsonl.partial"]) == 2

    assert "the run was interrupted, and its journal lacks the end" in capsys.readouterr().err
