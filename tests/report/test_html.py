from __future__ import annotations

import html
import json
import pickle
import platform
import re
import time
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from report.histories import history, large_run, row, run_report, sub
from rota import __version__
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.report.html import RunReport, write_report
from rota.report.metrics import measure, measure_tenants
from rota.report.timeline import Timeline, lanes
from rota.scenario import Scenario

EVIL = "<script>alert('x')</script><img src=x onerror=alert(1)>"
JOBS = [sub(f"j{i}", 5.0 * i, 20.0 + 10 * (i % 5), gpus=1 + i % 3, tenant=f"team-{i % 2}") for i in range(30)]


@dataclass
class Page(HTMLParser):
    """What a browser would see of a report: elements, the cells of its tables, the data of its figures."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    tables: list[list[list[str]]] = field(default_factory=list)
    figures: list[Any] = field(default_factory=list)
    text: str = ""
    inside: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br", "img"):
            self.inside.append(tag)
        match tag:
            case "table":
                self.tables.append([])
            case "tr":
                self.tables[-1].append([])
            case "td" | "th":
                self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.inside.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.inside and self.inside[-1] == "script":
            if self.tags[-1][1].get("type") == "application/json":
                self.figures.append(json.loads(data))
        elif self.inside and self.inside[-1] != "style":
            self.text += data
            if "table" in self.inside and self.tables[-1]:
                self.tables[-1][-1][-1] += data


def written(path: Path, runs: list[RunReport], command: str = "rota sim", **notes: str) -> Page:
    write_report(path, runs, command, notes)
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    assert page.inside == []
    return page


def titles(page: Page) -> list[str]:
    return [figure["layout"]["title"]["text"] for figure in page.figures]


@pytest.mark.slow
def test_page_has_a_row_per_policy_and_every_figure(tmp_path: Path) -> None:
    runs = [run_report(JOBS, policy) for policy in ("fifo", "srtf", "las")]

    page = written(tmp_path / "report.html", runs)

    assert [line[0] for line in page.tables[0]] == ["policy", "fifo", "srtf", "las"]
    assert titles(page) == [
        "Job completion time",
        "Slowdown by job size",
        "Preemptions by job size",
        "Finish-time fairness by job size",
        "Finish-time fairness by tenant",
        "The cluster over time",
        "Devices under fifo",
        "Devices under srtf",
        "Devices under las",
    ]
    assert all(trace["name"] in ("fifo", "srtf", "las") for trace in page.figures[0]["data"])
    for figure in page.figures:
        axes = [axis for name, axis in figure["layout"].items() if name.startswith("yaxis")]
        assert all(axis["title"]["text"] for axis in axes)


@pytest.mark.slow
def test_deadlines_have_columns_where_there_are_any(tmp_path: Path) -> None:
    due = [replace(each, job=replace(each.job, deadline_s=0.5)) for each in JOBS]

    without = written(tmp_path / "a.html", [run_report(JOBS, "fifo")]).tables[0][0]
    found = written(tmp_path / "b.html", [run_report(due, "fifo")]).tables[0]

    assert "deadlines" not in without
    assert [[cell.strip() for cell in line[-2:]] for line in found] == [["deadlines", "deadlinesmet"], ["30", "0"]]


@pytest.mark.slow
def test_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = written(tmp_path / "report.html", [run_report(JOBS)])

    loads = [value for _, attrs in page.tags for key, value in attrs.items() if key in ("src", "href", "srcset")]
    assert loads == ["data:,"]
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    styles = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert styles is not None
    assert "url(" not in styles[1]
    assert "@import" not in styles[1]


@pytest.mark.slow
def test_what_users_wrote_is_text(tmp_path: Path) -> None:
    jobs = [sub("<b>id</b>", 0.0, 10.0, title=EVIL, tenant=EVIL), sub("other", 0.0, 10.0, tenant="t")]
    run = run_report(jobs, name=EVIL)

    page = written(tmp_path / "report.html", [run], EVIL, trace=EVIL)

    assert EVIL not in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "img" not in {tag for tag, _ in page.tags}
    scripts = [attrs for tag, attrs in page.tags if tag == "script"]
    assert sum(attrs.get("type") is None for attrs in scripts) == 2  # Plotly and what draws the figures
    assert page.tables[0][1][0] == EVIL
    hovers = [text for trace in page.figures[-1]["data"] for text in trace["hovertext"]]
    assert any(html.escape("<b>id</b>") in text for text in hovers)
    assert not any("<script" in text or "<b>" in text for text in hovers)
    assert "<script" not in json.dumps(page.figures)


@pytest.mark.slow
def test_best_value_of_each_column_is_marked(tmp_path: Path) -> None:
    runs = [run_report(JOBS, policy) for policy in ("fifo", "srtf")]
    path = tmp_path / "report.html"

    page = written(path, runs)

    best = re.findall(r'<td class="n best">([^<]*)</td>', path.read_text(encoding="utf-8"))
    column = page.tables[0][0].index("averageJCT(min)")
    assert runs[1].metrics.avg_jct_s is not None
    assert runs[0].metrics.avg_jct_s is not None
    assert runs[1].metrics.avg_jct_s < runs[0].metrics.avg_jct_s
    assert page.tables[0][2][column] in best


@pytest.mark.slow
def test_single_run_has_no_marks(tmp_path: Path) -> None:
    written(tmp_path / "report.html", [run_report(JOBS)])

    assert 'class="n best"' not in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_tenants_have_a_table_where_there_are_several(tmp_path: Path) -> None:
    several = written(tmp_path / "several.html", [run_report(JOBS)])
    single = written(tmp_path / "single.html", [run_report([sub("a", 0.0, 10.0)])])

    assert [line[0] for line in several.tables[1]] == ["tenant", "team-0", "team-1"]
    assert len(single.tables) == 1


@pytest.mark.slow
def test_foot_says_how_the_page_was_made(tmp_path: Path) -> None:
    page = written(tmp_path / "r.html", [run_report(JOBS)], "rota sim --seed 7", seed="7", restart="30 s")

    for part in ("rota sim --seed 7", "30 s", __version__, platform.python_version()):
        assert part in page.text


@pytest.mark.slow
def test_same_runs_give_the_same_page(tmp_path: Path) -> None:
    for name in ("a.html", "b.html"):
        write_report(tmp_path / name, [run_report(JOBS, "las")], "rota sim", {})

    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


@pytest.mark.slow
def test_run_in_which_nothing_ended_is_drawn(tmp_path: Path) -> None:
    past = history(row("a", 0.0, None, None, state="waiting"))
    empty = RunReport(
        name="fifo",
        scenario=Scenario(policies=("fifo",), placement="any"),
        metrics=measure(past),
        tenants=measure_tenants(past),
        history=past,
        timeline=Timeline(Cluster.uniform(("gpu", 4, 4))),
    )

    page = written(tmp_path / "report.html", [empty])

    assert page.tables[0][1][:3] == ["fifo", "any", "1"]


def test_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RotaError, match="at least one run"):
        write_report(tmp_path / "report.html", [], "rota sim", {})


@pytest.mark.slow
def test_nodes_that_failed_show_in_the_curves(tmp_path: Path) -> None:
    run = run_report(JOBS, gpus=8, faults=[(30.0, "n1", False), (50.0, "n1", True)])

    page = written(tmp_path / "report.html", [run])

    assert "devices in service" in {trace["name"] for trace in page.figures[5]["data"]}


@pytest.mark.parametrize(
    ("mask", "expected"),
    [(0, []), (0b1, [(0, 1)]), (0b1111, [(0, 4)]), (0b1011_0110, [(1, 2), (4, 2), (7, 1)]), (1 << 99, [(99, 1)])],
)
def test_lanes_are_runs_of_neighbouring_devices(mask: int, expected: list[tuple[int, int]]) -> None:
    assert list(lanes(mask)) == expected


@pytest.mark.slow
def test_large_report_is_written_in_time_and_stays_small(tmp_path: Path) -> None:
    runs = [large_run(name, 82_000, 3) for name in ("fifo", "srtf", "las")]

    begun = time.perf_counter()
    write_report(tmp_path / "report.html", runs, "rota sim", {})
    spent_s = time.perf_counter() - begun

    assert spent_s < 20
    assert (tmp_path / "report.html").stat().st_size < 10_000_000
    assert len(pickle.dumps(runs[0].timeline)) < 60_000_000
