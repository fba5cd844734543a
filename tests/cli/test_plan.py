"""`rota plan`, as people type it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rota.cli.main import status
from rota.planner.parallel.planners import PARALLEL_PLANNERS
from rota.planner.registry import PLANNERS


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    operators: list[dict[str, Any]] = [
        {"name": f"l{n}", "time_ms": {"v100": 2.0}, "inputs": [f"l{n - 1}"] if n else [], "output_bytes": 1000}
        for n in range(4)
    ]
    links = [{"source": "v100-0", "target": "v100-1", "gb_per_s": 1}]
    path = tmp_path / "graph.json"
    path.write_text(
        json.dumps({"operators": operators, "devices": [{"type": "v100", "count": 2}], "links": links}),
        encoding="utf-8",
    )
    return path


def test_place_gives_the_plan_to_programs(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["plan", "place", str(graph), "--objective", "throughput", "-o", "json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["planner"] == "max-load"
    assert found["objective"] == pytest.approx(4.001)
    assert found["proved_optimal"] is True
    assert [stage["operators"] for stage in found["stages"]] == [["l0", "l1"], ["l2", "l3"]]
    assert found["seconds"] >= 0


def test_links_of_a_network_decide_where_operators_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2 MB between two operators: 16 ms at 1 Gbit/s cost more than both on one device, 1.6 ms at 10 Gbit/s do not."""
    operators = [
        {"name": f"l{n}", "time_ms": {"v100": 6.0}, "inputs": [f"l{n - 1}"] if n else [], "output_bytes": 2_000_000}
        for n in range(2)
    ]
    file = tmp_path / "graph.json"
    file.write_text(json.dumps({"operators": operators, "devices": [{"type": "v100", "count": 2}]}), encoding="utf-8")
    stages = {}
    for rate in ("1Gbps", "10Gbps"):
        network = tmp_path / f"{rate}.yaml"
        network.write_text(f"topology: fat-tree\nlink: {rate}\nlatency: 1us\n", encoding="utf-8")
        given = ["--devices", "v100=2/1", "--network", str(network), "--objective", "throughput", "-o", "json"]
        assert status(["plan", "place", str(file), *given]) == 0
        found = json.loads(capsys.readouterr().out)
        stages[rate] = (len(found["stages"]), found["objective"])

    assert stages["1Gbps"] == (1, 12.0)
    assert stages["10Gbps"] == (2, pytest.approx(7.602))  # two links of 1 us on the way


def test_latency_is_planned_by_pesto(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["plan", "place", str(graph), "--objective", "latency", "-o", "json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert (found["planner"], found["objective"]) == ("pesto", 8.0)


@pytest.mark.slow
def test_compare_judges_every_planner_and_draws(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "plan.html"

    assert status(["plan", "compare", str(graph), "--figure", str(page), "-o", "json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert [row["planner"] for row in found] == ["max-load", "linear", "pipedream", "dapple", "pesto", "baechi"]
    assert all(row["max_load_ms"] > 0 for row in found)
    assert "plotly" in page.read_text(encoding="utf-8")


def test_policies_lists_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["plan", "policies", "-o", "json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found] == [each.name for each in PLANNERS] + [
        each.name for each in PARALLEL_PLANNERS
    ]
    assert all(row["cites"] and row["guarantee"] for row in found)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        pytest.param(["--planner", "maxload"], "did you mean 'max-load'", id="planner"),
        pytest.param(["--devices", "gpu=x"], "expected TYPE=COUNT", id="devices"),
        pytest.param(["--network", "net.yaml"], "add --devices TYPE=COUNT/PER_NODE", id="network"),
        pytest.param(["--micro-batches", "0"], "0 micro-batches", id="micro-batches"),
        pytest.param(["--devices", "k80=2"], "runs on v100 only", id="type"),
    ],
)
def test_mistakes_are_one_line(graph: Path, options: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["plan", "place", str(graph), *options]) == 2

    said = capsys.readouterr().err
    assert told in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--micro-batches 1000000000", "1000000000 micro-batches; a step has at most 4096, give fewer"),
        ("--time-limit nan", "a time limit of nan s; it must be a number above 0"),
        ("--time-limit inf", "a time limit of inf s"),
        ("--deadline 5", "--deadline is for cut and abacus; name one of them with --planner"),
        ("--deadline nan --planner cut", "a deadline of nan ms; it must be a number above 0"),
        ("--planner ptd-p", "run `rota plan parallel --planner ptd-p`"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    graph: Path, words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["plan", "place", str(graph), *words.split()]) == 2

    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "said"), [("none.py:model", "none.py: no such file"), ("train.py", "expected SCRIPT.py:NAME")]
)
def test_profile_names_what_is_missing_before_it_needs_pytorch(
    target: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["plan", "profile", target]) == 2

    assert said in capsys.readouterr().err
