"""`rota sim --scenario`: options from a file, the command line over them, and the run they lead to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.cli.main import status
from rota.drivers.simulator.load import load
from rota.drivers.simulator.study import simulate
from rota.report.metrics import measure
from rota.scenario import Scenario
from rota.store.journal import JournalReader

TRACE = "id,submit_s,gpus,work\na,0,1,300\nb,0,1,300\nc,10,2,60\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.csv").write_text(TRACE)
    (tmp_path / "case.yaml").write_text(
        "trace: jobs.csv\ncluster: gpu=2/2\npolicy: [fifo, las]\nrestart_cost: 30s\nneighbours: {node: 0.5}\n"
    )
    return tmp_path


def rows(capsys: pytest.CaptureFixture[str], *args: str) -> list[dict[str, object]]:
    assert status(["sim", "-o", "json", *args]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_file_is_the_same_as_the_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = (
        "--trace", str(folder / "jobs.csv"), "--cluster", "gpu=2/2", "--policy", "fifo", "--policy", "las",
        "--restart-cost", "30", "--neighbours", "node=0.5",
    )  # fmt: skip

    by_file, by_options = rows(capsys, "--scenario", str(folder / "case.yaml")), rows(capsys, *given)

    assert [row["policy"] for row in by_file] == ["fifo", "las"]
    assert [{**row, "wall_s": 0} for row in by_file] == [{**row, "wall_s": 0} for row in by_options]


def test_options_win_over_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows(capsys, "--scenario", str(folder / "case.yaml"), "--policy", "srtf", "--restart-cost", "7")

    assert (row["policy"], row["restart_cost_s"]) == ("srtf", 7.0)


def test_python_gives_what_the_command_gives(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows(capsys, "--scenario", str(folder / "case.yaml"), "--policy", "las", "--neighbours", "node=1")
    loaded = load(Scenario(trace=str(folder / "jobs.csv"), cluster="gpu=2/2", policies=("las",)))

    assert measure(simulate(loaded.workload, "las", loaded.setting).history).avg_jct_s == row["avg_jct_s"]


@pytest.mark.slow
def test_journal_has_the_scenario(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "out"
    rows(capsys, "--scenario", str(folder / "case.yaml"), "--out", str(out))

    header = JournalReader(out / "las" / "journal.jsonl").header

    assert header.scenario.policy == "las"
    assert header.scenario.costs.restart_s == 30.0
    assert header.scenario.trace == str(folder / "jobs.csv")
    assert header.scenario.speed.node_neighbour == 0.5
    assert status(["sim", "--replay", str(out / "las" / "journal.jsonl")]) == 0


@pytest.mark.parametrize(
    ("args", "names"),
    [
        (("--seed", "4"), "--seed"),
        (("--seed", "0"), "--seed"),
        (("--restart-cost", "30", "--trace", "jobs.csv", "--policy", "las"), "--trace, --policy, --restart-cost"),
        (("--out", "again", "--figures", "drawn"), "--out, --figures"),
    ],
)
def test_replay_refuses_options_that_it_would_ignore(
    args: tuple[str, ...], names: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["sim", "--replay", str(folder / "journal.jsonl"), *args]) == 2
    assert capsys.readouterr().err == (
        f"error: --replay takes the whole scenario from the journal and writes no files; leave out {names}\n"
    )


@pytest.mark.parametrize("factor", ["gaps", "spilled"])
def test_rare_factor_on_the_command_line_is_refused_with_the_way_out(
    factor: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = str(folder / "case.yaml")

    assert status(["sim", "--scenario", case, "--neighbours", f"device=0.8,{factor}=0.5"]) == 2
    told = capsys.readouterr().err
    assert f"write `neighbours: {{{factor}: 0.5}}` into FILE.yaml and give it with --scenario FILE.yaml" in told


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--change", "after.yaml"), "error: --change not a cluster change: 'after.yaml'; write it as TIME=FILE"),
        (("--policy", "fifo", "--policy", "fifo"), "error: policy 'fifo' is given twice"),
        (("--type-speed", "gpx=2"), "error: --type-speed: unknown name 'gpx'; did you mean 'gpu'?"),
        (("--replay", "j.jsonl"), "the journal and writes no files; leave out --scenario\n"),
    ],
)
def test_mistake_of_an_option_is_named(
    args: tuple[str, ...], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["sim", "--scenario", str(folder / "case.yaml"), *args]) == 2
    assert message in capsys.readouterr().err
