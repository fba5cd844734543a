"""Which policy suits a workload: assumptions, windows, and the choice among fair policies."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from builders import job
from rota.cli.main import status
from rota.cli.study.suggestion import Comparison, PolicyAssumption, choose, find_out, margin, suggest, windows_of
from rota.core.model.cluster import Cluster
from rota.core.model.job import Elastic
from rota.drivers.simulator.study import Setting
from rota.perf.speed.model import Costs
from rota.traces import write_trace
from rota.traces.generators import generate
from rota.traces.workload import Submission, Workload

SETTING = Setting(cluster=Cluster.uniform(("gpu", 4, 4)), costs=Costs(restart_s=10.0))


def workload(count: int = 40, **fields: object) -> Workload:
    made = [
        Submission(job=replace(job(f"j{number}", work=1000.0), name=f"run-{number}", **fields), submit_s=400.0 * number)  # type: ignore[arg-type]  # fields of a job
        for number in range(count)
    ]
    return Workload(submissions=tuple(made), source="test", format="rota")


def holding(of: Workload, setting: Setting = SETTING) -> set[PolicyAssumption]:
    return {finding.assumption for finding in find_out(of, setting) if finding.holds}


def test_repeated_jobs_are_predictable_and_a_short_restart_is_cheap() -> None:
    assert holding(workload()) == {PolicyAssumption.PREDICTABLE, PolicyAssumption.PREEMPTION}


def test_assumptions_follow_the_jobs_and_the_cluster() -> None:
    told = workload(estimate_s=1500.0, deadline_s=1e6, elastic=Elastic(min_tasks=1, max_tasks=2), user="ann")
    typed = Setting(cluster=Cluster.uniform(("a", 4, 4), ("b", 4, 4)), costs=Costs(restart_s=500.0))

    found = holding(told, typed)

    assert {
        PolicyAssumption.DURATIONS,
        PolicyAssumption.DEADLINES,
        PolicyAssumption.ELASTIC,
        PolicyAssumption.TYPES,
    } <= found
    assert PolicyAssumption.PREEMPTION not in found
    assert PolicyAssumption.OWNERS not in found
    assert PolicyAssumption.DURATIONS not in holding(workload(estimate_s=5000.0))


def test_windows_cover_all_jobs_and_start_at_zero() -> None:
    parts = windows_of(workload(41), 5)

    assert [len(part.submissions) for part in parts] == [9, 9, 9, 9, 5]
    assert {part.submissions[0].submit_s for part in parts} == {0.0}


def test_interval_of_one_value_is_endless() -> None:
    assert margin([1.0]) == math.inf
    assert margin([1.0, 1.0, 1.0]) == 0.0
    assert margin([1.0, 2.0]) == pytest.approx(12.71 * 0.5)


def row(policy: str, over: float, p99: float) -> Comparison:
    return Comparison(policy=policy, jct_s=1.0, p99_ftf=p99, worst_ftf=p99, over_best=over, margin=0.1)


def test_the_fastest_of_the_fair_policies_is_recommended() -> None:
    chosen, reasons = choose([row("fast", 1.0, 50.0), row("good", 1.1, 1.9), row("slow", 1.5, 1.0)])

    assert chosen == "good"
    assert any("fast is faster" in reason for reason in reasons)


def test_policies_whose_assumptions_fail_are_named_with_the_reason() -> None:
    found = suggest(workload(20), SETTING, windows=2)

    assert {each.policy for each in found.compared} >= {"rota", "fifo"}
    assert "0% of jobs are elastic" in found.excluded["sia"]
    assert found.recommended in {each.policy for each in found.compared}


def test_command_prints_a_recommendation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "jobs.csv"
    write_trace(generate("philly-like", jobs=20, seed=1, gpus=4, load=1.0), trace)

    assert status(["policies", "suggest", "--trace", str(trace), "--cluster", "gpu=64/8", "--windows", "2"]) == 0
    assert "\nrecommended: " in capsys.readouterr().out
    args = ["policies", "suggest", "--trace", str(trace), "--cluster", "gpu=64/8", "--windows", "1", "-o", "json"]
    assert status(args) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["compared"][0]["margin"] is None


@pytest.mark.parametrize(
    ("args", "text"),
    [(["suggest"], "state which jobs"), (["las", "--trace", "x"], "--trace and --cluster are for")],
    ids=["no trace", "trace of another"],
)
def test_command_refuses_what_it_can_not_use(args: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["policies", *args]) == 2
    assert text in capsys.readouterr().err
