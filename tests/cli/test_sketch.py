"""What `rota sim` draws below its table."""

from __future__ import annotations

import numpy as np
import pytest

from report.histories import simulated, sub
from rota.cli.main import status
from rota.cli.study.sketch import ASCII, BLOCKS, WIDTH, bars, sketch_lines
from rota.report.sketch import Sketch, sketch_of


def sketch(*jobs: tuple[float, float], gpus: int = 4) -> Sketch:
    """Of jobs of one device, each a submission and its seconds of work."""
    result, timeline = simulated([sub(f"j{i}", at, work) for i, (at, work) in enumerate(jobs)], gpus=gpus)
    return sketch_of(result.history, timeline)


@pytest.mark.parametrize(
    ("parts", "drawn"),
    [([0.0, 1.0], " █"), ([0.001, 0.999], "▁▇"), ([0.5], "▄"), ([-1.0, 2.0], " █"), ([], "")],
)
def test_bars_are_empty_only_for_nothing_and_full_only_for_all(parts: list[float], drawn: str) -> None:
    assert bars(parts) == drawn


def test_parts_complete_are_those_of_the_jobs() -> None:
    made = sketch((0.0, 10.0), (0.0, 20.0), (0.0, 30.0), (0.0, 40.0))

    assert made.complete_within(np.array([9.9, 10.0, 25.0, 40.0])).tolist() == [0.0, 0.25, 0.5, 1.0]


def test_use_is_the_part_of_all_devices_over_time() -> None:
    made = sketch((0.0, 10.0), (0.0, 10.0), (10.0, 10.0))

    assert made.allocation_between(np.array([0.0, 10.0, 20.0])).tolist() == [0.5, 0.25]


def test_lines_of_all_runs_have_one_axis() -> None:
    fast, slow = sketch((0.0, 10.0), gpus=1), sketch((0.0, 600.0), gpus=1)

    lines = sketch_lines({"fast": fast, "slower": slow}, encoding="utf-8")

    cdf, ticks = lines[2:4], lines[4]
    assert [line.split()[0] for line in cdf] == ["fast", "slower"]
    assert cdf[0][8:] == "█" * WIDTH
    assert cdf[1][8:] == " " * (WIDTH - 1) + "█"
    assert ticks.split() == ["10s", "1m"]
    assert lines[7].split() == ["fast", "█"]  # 10 of 600 s fill a 60th of the line: one column
    assert lines[-1].split() == ["0", "10m"]


def test_plain_characters_where_the_terminal_has_no_blocks() -> None:
    drawn = "".join(sketch_lines({"fifo": sketch((0.0, 10.0), (5.0, 50.0))}, encoding="ascii"))

    assert drawn.isascii()
    assert ASCII[-1] in drawn
    assert not set(BLOCKS[1:]) & set(drawn)


def test_nothing_is_drawn_where_no_job_ended() -> None:
    assert sketch_lines({"fifo": sketch()}, encoding="utf-8") == []


def test_simulation_draws_below_its_table_only(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    trace = f"{tmp_path}/jobs.parquet"
    status(["trace", "generate", "mixed", trace, "--jobs", "50", "--gpus", "8"])
    study = ["sim", "--trace", trace, "--cluster", "gpu=8/4", "--policy", "fifo", "--skip-oversized"]

    assert status(study) == 0
    assert "cumulative share of jobs by completion time\nfifo" in capsys.readouterr().out
    assert status([*study, "-o", "csv"]) == 0
    assert "complete within" not in capsys.readouterr().out
