from __future__ import annotations

import json
from pathlib import Path

import pytest

from report.histories import sub
from rota.cli.main import status
from rota.cli.study.summary import SUMMARY_COLUMNS, summary_row
from rota.core.model.cluster import Cluster
from rota.drivers.simulator.study import Setting, simulate
from rota.report.metrics import measure, measure_tenants
from rota.scenario import Scenario
from rota.store.journal import JournalHeader, JournalWriter
from rota.traces.workload import Workload

JOBS = tuple(sub(f"j{i}", 5.0 * i, 20.0 + 10 * (i % 5), gpus=1 + i % 3) for i in range(12))


def journal(path: Path, policy: str = "fifo") -> Path:
    """The journal of a small simulation."""
    cluster = Cluster.uniform(("gpu", 4, 4))
    header = JournalHeader(
        scenario=Scenario(policies=(policy,), placement="consolidate", cluster=cluster), about="a small study"
    )
    setting = Setting(cluster=cluster, placement="consolidate")
    with JournalWriter(path, header) as writer:
        simulate(Workload(submissions=JOBS, source="here", format="own"), policy, setting, journal=writer)
    return path


@pytest.mark.slow
def test_journals_become_a_page_and_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fifo, las = journal(tmp_path / "fifo.jsonl"), journal(tmp_path / "las.jsonl", "las")
    out = tmp_path / "compared.html"

    code = status(["report", str(fifo), str(las), "--out", str(out)])

    told = capsys.readouterr()
    assert code == 0
    assert [line.split()[0] for line in told.out.splitlines()] == ["policy", "fifo", "las"]
    assert told.err == f"report: {out}\n"
    page = out.read_text(encoding="utf-8")
    assert f"rota report {fifo} {las} --out {out}" in page
    assert "a small study" in page


@pytest.mark.slow
def test_rows_have_the_fields_of_a_simulation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = journal(tmp_path / "j.jsonl")

    status(["report", str(path), "--out", str(tmp_path / "r.html"), "-o", "json"])

    (row,) = json.loads(capsys.readouterr().out)
    assert (row["policy"], row["jobs"], row["finished"], row["wall_s"]) == ("fifo", 12, 12, None)
    assert row["events"] == 36
    assert list(row["tenants"]) == ["default"]


@pytest.mark.slow
def test_part_of_a_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = journal(tmp_path / "j.jsonl")
    path.write_text("".join(f"{line}\n" for line in path.read_text().splitlines()[:6]))

    assert status(["report", str(path), "--out", str(tmp_path / "r.html")]) == 0

    assert "jobs have no end: the journal is of a part of a run" in capsys.readouterr().err


@pytest.mark.slow
def test_two_runs_of_one_policy_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = journal(tmp_path / "one.jsonl"), journal(tmp_path / "two.jsonl")

    status(["report", str(one), str(two), "--out", str(tmp_path / "r.html"), "-o", "json"])

    names = [row["policy"] for row in json.loads(capsys.readouterr().out)]
    assert names == [f"fifo ({one})", f"fifo ({two})"]


@pytest.mark.slow
def test_journal_of_another_policy_is_reported_up_to_the_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = journal(tmp_path / "j.jsonl")
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines]
    changed = [step["n"] for step in steps if step.get("out")][4]
    steps[changed]["out"] = []
    path.write_text("\n".join([head, *map(json.dumps, steps)]) + "\n", encoding="utf-8")

    code = status(["report", str(path), "--out", str(tmp_path / "r.html"), "-o", "json"])

    told = capsys.readouterr()
    assert code == 0
    assert told.err.startswith(f"warning: {path}: fifo now decides differently at step {changed} (")
    (row,) = json.loads(told.out)
    assert 0 < row["finished"] < row["jobs"] <= 12
    assert (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["no.jsonl"], "no.jsonl: can't be read"),
        (["j.jsonl", "--out", "."], "it is a folder"),
        (["j.jsonl", "--out", "gone/r.html"], "there is no folder gone"),
        (["j.jsonl", "j.jsonl"], "journal j.jsonl is given twice"),
        (["text.txt"], "this is not a journal"),
        (["empty.jsonl"], "there is no job in this journal"),
    ],
)
def test_mistakes_get_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = journal(Path("j.jsonl"))
    Path("text.txt").write_text("hello\n", encoding="utf-8")
    Path("empty.jsonl").write_text(whole.read_text(encoding="utf-8").splitlines()[0] + "\n", encoding="utf-8")

    code = status(["report", *args])

    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    assert told.err.startswith("error: ")
    assert complaint in told.err
    assert told.err.count("\n") == 1
    assert not Path("report.html").exists()


def test_summary_begins_with_the_promised_fields() -> None:
    setting = Setting(cluster=Cluster.uniform(("gpu", 4, 4)))
    result = simulate(Workload(submissions=JOBS, source="here", format="own"), "fifo", setting)
    figures = measure(result.history)

    row = summary_row("fifo", figures, measure_tenants(result.history), events=36, wall_s=0.5)

    assert list(row)[:14] == [
        "policy",
        "jobs",
        "finished",
        "avg_jct_s",
        "median_jct_s",
        "p99_jct_s",
        "makespan_s",
        "avg_wait_s",
        "gpu_utilization",
        "preemptions",
        "worst_finish_time_fairness",
        "jain_fairness",
        "events",
        "wall_s",
    ]
    assert list(row)[-1] == "tenants"
    assert row["gpu_utilization"] == row["gpu_allocation"] == figures.gpu_utilization
    assert set(figures.__dataclass_fields__) <= set(row)
    assert {column.key for column in SUMMARY_COLUMNS} <= set(row)
