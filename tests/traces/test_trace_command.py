from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.cli.main import status
from rota.cli.study.trace import bars
from rota.traces import read_trace
from rota.traces.generators import generate
from traces.trace_samples import GAVEL, PHILLY, PHILLY_JSON, TIRESIAS, write


def test_describe_prints_a_page_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, PHILLY.text)

    assert status(["trace", "describe", str(path)]) == 0

    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert told.err == ""
    assert lines[:4] == [
        f"trace         {path}",
        "format        philly",
        "jobs          3",
        "span          1m 40s",
    ]
    assert "outcomes      succeeded 100.0%" in lines
    assert "   8     1    33.3%        83.0%" in lines
    assert lines[-2:] == [
        "GPUs wanted if every job started at once, 1.7s a bar",
        "██████" + " " * 54 + "  at most 1, at least 0",
    ]


def test_describe_prints_every_number_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [write(tmp_path, PHILLY.text, "a"), write(tmp_path, GAVEL.text, "b")]

    assert status(["trace", "describe", *map(str, paths), "-o", "json"]) == 0

    told = capsys.readouterr()
    first, second = json.loads(told.out)
    assert (first["trace"], first["format"], first["jobs"], first["tenants"]) == (
        str(paths[0]),
        "philly",
        3,
        2,
    )
    assert first["outcomes"] == {"succeeded": 3}
    assert first["sizes"][2] == {
        "gpus": "8",
        "jobs": 1,
        "job_share": pytest.approx(1 / 3),
        "gpu_time_share": pytest.approx(244 / 294),
    }
    assert len(first["load_gpus"]) == 60
    assert (second["work_unit"], second["gpu_hours"], second["work"]["max"]) == ("steps", None, 5000.0)


def test_describe_as_csv_has_a_row_per_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, GAVEL.text)

    assert status(["trace", "describe", str(path), str(path), "-o", "csv"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("trace,format,jobs,span_s,")
    assert len(lines) == 3


def test_notes_on_what_is_missing_go_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, PHILLY_JSON.text.replace("app_1", "app_2"))
    out = tmp_path / "jobs.jsonl"

    assert status(["trace", "convert", str(path), str(out), "--skip-bad-lines"]) == 0

    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        f"note: {path}: 1 bad line skipped",
        f"note: {path}: 2 jobs left out: no whole run",
        f"note: {out}: 1 job written",
    ]


def test_convert_keeps_every_job(tmp_path: Path) -> None:
    path, out = write(tmp_path, TIRESIAS.text), tmp_path / "jobs.parquet"

    assert status(["trace", "convert", str(path), str(out), "--format", "tiresias"]) == 0

    assert read_trace(out).submissions == TIRESIAS.expected


def test_generate_writes_what_the_generator_makes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "jobs.csv"
    wishes = ["--jobs", "50", "--seed", "9", "--gpus", "32", "--load", "1.2"]

    assert status(["trace", "generate", "sweep", str(out), *wishes]) == 0

    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"note: {out}: 50 jobs written\n")
    expected = generate("sweep", jobs=50, seed=9, gpus=32, load=1.2)
    assert read_trace(out).submissions == expected.submissions


MISTAKES = {
    "no file": (["describe", "none.csv"], "error: none.csv: there is no such file\n"),
    "format": (
        ["describe", "x", "--format", "blocks"],
        "error: unknown trace format 'blocks'; did you mean 'blox'?\n",
    ),
    "kind": (
        ["generate", "mixt", "x.csv"],
        "error: unknown kind of workload 'mixt'; did you mean 'mixed'?\n",
    ),
    "extension": (
        ["generate", "mixed", "x.txt"],
        "error: x.txt: the extension '.txt' is unknown; use .parquet, .csv or .jsonl\n",
    ),
}


@pytest.mark.parametrize(("args", "told"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told_in_one_line(args: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["trace", *args]) == 2
    assert capsys.readouterr() == ("", told)


@pytest.mark.parametrize("command", ["describe", "convert", "generate"])
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["trace", command, "--help"]) == 0
    assert f"  rota trace {command} " in capsys.readouterr().out.split("Examples:")[1]


def test_bars_show_the_highest_full_and_only_nothing_blank() -> None:
    assert bars([0.0, 0.001, 4.0, 8.0]) == " ▁▅█"
    assert bars([0.0, 0.0]) == "  "
