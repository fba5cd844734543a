"""Any value of any input of `rota plan`: a plan, or one line that says what is wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from planner.hostile_inputs import parallel, placing
from rota.cli.main import status

LIMIT_S = 12.0
"""What one call may take of the CPU: the planners' own limit is a second here."""


def refused_or_planned(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    began_s = time.process_time()
    code = status(arguments)
    spent_s = time.process_time() - began_s
    out, err = capsys.readouterr()
    assert spent_s < LIMIT_S, f"{arguments}: {spent_s:.1f} s"
    lines = [line for line in err.splitlines() if not line.startswith(("note: ", "hint: "))]
    if code == 0:
        assert not lines, arguments
        if arguments[-1] == "json":
            json.loads(out, parse_constant=lambda word: pytest.fail(f"{arguments}: {word} in the answer"))
        return
    assert code in (1, 2), arguments
    assert len(lines) == 1, arguments
    assert lines[0].startswith("error: "), arguments
    assert len(lines[0]) > len("error: ") + 10, arguments
    assert not out, arguments


def tried(
    made: Callable[[Random, Path], list[str]],
    seeds: range,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for seed in seeds:
        refused_or_planned(made(Random(seed), folder), capsys)


@pytest.mark.slow
@pytest.mark.parametrize("made", [placing, parallel])
def test_hostile_values_get_one_line(
    made: Callable[[Random, Path], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tried(made, range(100), tmp_path, capsys)


@pytest.mark.long
@pytest.mark.parametrize("made", [placing, parallel])
def test_many_hostile_values_get_one_line(
    made: Callable[[Random, Path], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tried(made, range(100, 5000), tmp_path, capsys)
