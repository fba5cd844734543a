"""The report's figures as files for papers: the same curves, boxes and bars, in PDF and SVG."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from report.histories import run_report, sub
from rota.cli.main import status
from rota.report.html import write_report

pytestmark = pytest.mark.slow

pytest.importorskip("matplotlib", reason="Matplotlib is not installed: pip install 'rota[figures]'")

JOBS = [sub(f"j{i}", 5.0 * i, 20.0 + 10 * (i % 5), gpus=1 + i % 3, tenant=f"team-{i % 2}") for i in range(12)]
NAMES = [
    "completion-time",
    "devices-1-fifo",
    "devices-2-las-thresholds=30",
    "fairness-by-size",
    "fairness-by-tenant",
    "over-time",
    "preemptions-by-size",
    "slowdown-by-size",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paper") / "figures"
    runs = [run_report(JOBS), run_report(JOBS, "las:thresholds=30")]
    write_report(None, runs, "rota sim", {}, figures=folder)
    return folder


def texts(path: Path) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.slow
def test_every_figure_is_there_in_both_formats(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{n}.{e}" for n in NAMES for e in ("pdf", "svg"))
    assert all(path.read_bytes().startswith(b"%PDF-") for path in folder.glob("*.pdf"))


@pytest.mark.slow
def test_words_are_text_and_name_runs_and_axes(folder: Path) -> None:
    shown = texts(folder / "completion-time.svg")

    assert {"fifo", "las:thresholds=30", "cumulative share of jobs (%)"} <= set(shown)
    assert "1 min" in shown


def test_line_goes_through_the_points_of_the_page(folder: Path) -> None:
    from rota.report import figures
    from rota.report.paper import redraw
    from rota.report.runs import columns_of

    source = figures.jct_cdf([columns_of(run_report(JOBS))])
    line: Any
    (line,) = redraw(source).axes[0].get_lines()

    assert np.array_equal(line.get_xdata(), source.data[0].x)
    assert np.array_equal(line.get_ydata(), source.data[0].y)


def test_bars_of_two_runs_stand_side_by_side() -> None:
    from rota.report import figures
    from rota.report.paper import redraw
    from rota.report.runs import columns_of

    source = figures.preemptions_by_size([columns_of(run_report(JOBS)), columns_of(run_report(JOBS, "srtf"))])
    ax: Any = redraw(source).axes[0]
    spans = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for group in ax.containers for bar in group)

    assert len(spans) == 2 * len(source.data[0].x)
    assert all(right <= left for (_, right), (left, _) in pairwise(spans))


def test_gantt_shows_each_bar_where_the_page_has_it() -> None:
    from rota.report.gantt import Clock, gantt
    from rota.report.paper import redraw

    source = gantt(run_report(JOBS), Clock(origin_s=0.0, span_s=200.0), limit=100).figure
    collections: Any = redraw(source).axes[0].collections

    assert [len(bars.get_paths()) for bars in collections] == [len(trace.y) for trace in source.data]
    first = collections[0].get_paths()[0].vertices
    assert float(first[:, 0].min()) == pytest.approx(float(source.data[0].base[0]))


@pytest.mark.slow
def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    write_report(None, [run_report(JOBS, name="$x^2$ <b>"), run_report(JOBS)], "rota sim", {}, figures=tmp_path)

    assert "$x^2$ <b>" in texts(tmp_path / "completion-time.svg")


@pytest.mark.slow
def test_same_runs_give_the_same_files(folder: Path, tmp_path: Path) -> None:
    write_report(None, [run_report(JOBS), run_report(JOBS, "las:thresholds=30")], "rota sim", {}, figures=tmp_path)

    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


@pytest.mark.slow
def test_many_tenants_keep_their_names_apart(tmp_path: Path) -> None:
    jobs = [sub(f"j{i}", 5.0 * i, 20.0, tenant=f"a-long-tenant-{i % 8}") for i in range(16)]
    write_report(None, [run_report(jobs)], "rota sim", {}, figures=tmp_path)

    svg = (tmp_path / "fairness-by-tenant.svg").read_text()
    assert len(re.findall(r"rotate\(-35[^>]*>a-long-tenant-\d", svg)) == 8


def test_file_in_place_of_the_folder_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("mine")

    assert status(["report", "nowhere.jsonl", "--figures", str(tmp_path / "taken")]) == 2
    assert "it exists and is not a folder" in capsys.readouterr().err


def test_without_matplotlib_it_says_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    assert status(["report", "nowhere.jsonl", "--figures", str(tmp_path / "f")]) == 2
    assert "pip install 'rota[figures]'" in capsys.readouterr().err
