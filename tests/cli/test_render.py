from __future__ import annotations

import csv
import io
import json
import math
import os
import pty
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest

from rota.cli import human
from rota.cli.render import Column, OutputFormat, emit, plain, progress
from rota.core.model.job import JobState

COLUMNS = (
    Column(key="policy", title="Policy"),
    Column(key="avg_jct_s", title="JCT", show=human.duration, right=True),
    Column(key="note", title="Note"),
)
ROWS = (
    {"policy": "fifo", "avg_jct_s": 4980.123456789, "note": None, "seed": 1},
    {"policy": "las:thresholds=1/2", "avg_jct_s": math.inf, "note": "[bold]x\x1b[31m", "seed": 1},
)


def emitted(capsys: pytest.CaptureFixture[str], output: OutputFormat, rows: object = ROWS) -> str:
    assert isinstance(rows, tuple)
    emit(rows, COLUMNS, output)
    return capsys.readouterr().out


def test_piped_table_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    assert emitted(capsys, OutputFormat.TABLE) == (
        "Policy                 JCT  Note\n"
        "fifo                1h 23m  -\n"
        "las:thresholds=1/2     inf  [bold]x\\x1b[31m\n"
    )


def test_piped_table_cuts_nothing_off(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    long = "p" * 5000

    text = emitted(capsys, OutputFormat.TABLE, ({"policy": long, "avg_jct_s": 1.0, "note": "n" * 300},))

    assert text.splitlines()[1] == f"{long}   1s  {'n' * 300}"


def test_forced_colour_does_not_reach_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")

    assert "\x1b" not in emitted(capsys, OutputFormat.TABLE)


def test_json_has_every_field_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(emitted(capsys, OutputFormat.JSON)) == [
        {"policy": "fifo", "avg_jct_s": 4980.123456789, "note": None, "seed": 1},
        {"policy": "las:thresholds=1/2", "avg_jct_s": None, "note": "[bold]x\x1b[31m", "seed": 1},
    ]


def test_csv_has_every_field_with_terminal_escapes_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(csv.reader(io.StringIO(emitted(capsys, OutputFormat.CSV)))) == [
        ["policy", "avg_jct_s", "note", "seed"],
        ["fifo", "4980.123456789", "", "1"],
        ["las:thresholds=1/2", "", "[bold]x\\x1b[31m", "1"],
    ]


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (OutputFormat.TABLE, "Policy  JCT  Note\n"),
        (OutputFormat.JSON, "[]\n"),
        (OutputFormat.CSV, "policy,avg_jct_s,note\n"),
    ],
)
def test_no_rows(capsys: pytest.CaptureFixture[str], output: OutputFormat, text: str) -> None:
    assert emitted(capsys, output, ()) == text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (math.nan, None),
        (JobState.RUNNING, "running"),
        (Path("out/demo"), "out/demo"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05Z"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2))), "2026-01-02T01:04:05Z"),
        ({"a": (1, {"b": math.inf})}, {"a": [1, {"b": None}]}),
    ],
)
def test_values_as_json_knows_them(value: object, expected: object) -> None:
    assert plain(value) == expected


def test_value_without_json_form_is_our_bug() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        plain(object())


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (0.25, "0.25s"),
        (3.21, "3.2s"),
        (9.96, "10s"),
        (45, "45s"),
        (59.7, "1m"),
        (61, "1m 1s"),
        (3599.4, "59m 59s"),
        (3599.6, "1h"),
        (4980, "1h 23m"),
        (86_399, "1d"),
        (90_000, "1d 1h"),
        (-90, "-1m 30s"),
        (math.inf, "inf"),
    ],
)
def test_duration(seconds: float, shown: str) -> None:
    assert human.duration(seconds) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (human.percent(0.8734), "87.3%"),
        (human.ratio(1234.5), "1,234.50"),
        (human.count(80_000), "80,000"),
        (human.size(0), "0 B"),
        (human.size(1536), "1.5 KiB"),
        (human.size(40 * 2**30), "40 GiB"),
        (human.size(2**60), "1024 PiB"),
    ],
)
def test_numbers_for_people(text: str, shown: str) -> None:
    assert text == shown


def test_progress_is_silent_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("replaying", total=10, show_after_s=0.0) as bar:
        bar.advance()
        bar.update(5)

    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize(("show_after_s", "shown"), [(0.0, True), (60.0, False)], ids=["long", "short"])
def test_progress_shows_only_on_long_work(show_after_s: float, shown: bool) -> None:
    code = (
        "import sys, time\n"
        "from rota.cli.render import progress\n"
        f"with progress('replaying', total=10, show_after_s={show_after_s}) as bar:\n"
        "    bar.advance()\n"
        "    time.sleep(0.5)\n"
        "    bar.update(5)\n"
        "print('done', file=sys.stderr)\n"
    )
    ours, theirs = pty.openpty()
    try:
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "80"}
        subprocess.run([sys.executable, "-c", code], env=environment, stderr=theirs, check=True)
        text = os.read(ours, 100_000).decode()
    finally:
        os.close(theirs)
        os.close(ours)

    assert "done" in text
    assert ("replaying" in text) is shown


@pytest.mark.parametrize(
    ("output", "rows", "noted"),
    [
        (OutputFormat.TABLE, [], True),
        (OutputFormat.WIDE, [], True),
        (OutputFormat.TABLE, [{"a": 1}], False),
        (OutputFormat.JSON, [], False),
        (OutputFormat.CSV, [], False),
    ],
)
def test_table_without_rows_teaches_the_next_step(
    output: OutputFormat, rows: list[dict[str, int]], noted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    emit(rows, [Column(key="a")], output, nothing="no jobs; submit one")

    assert (capsys.readouterr().err == "note: no jobs; submit one\n") is noted
