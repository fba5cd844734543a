"""Which assumption explains the error: wrong estimates are found out, and with all of the truth no error is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import World, job
from rota.core.engine.engine import Engine
from rota.core.messages.events import JobArrived
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, Job, JobId
from rota.drivers.simulator.study import Setting, scheduler, simulate
from rota.forecast.past import RanOn
from rota.live.truth.attribution import Assumption, Hindsight, PastQuestion, TrueJob, explain
from rota.live.workers.attribution_worker import moments, true_jobs
from rota.scenario import Scenario
from rota.store.journal import JournalHeader, JournalWriter
from rota.traces.workload import Submission, Workload

ONE = Cluster.uniform(("gpu", 1, 1))


def journal_of(tmp_path: Path, submissions: list[Submission], policy: str) -> tuple[Path, dict[str, float]]:
    """Simulate jobs whose run time is hidden; return the journal, and when each started."""
    header = JournalHeader(scenario=Scenario(policies=(policy,), placement="any", cluster=ONE))
    path = tmp_path / "journal.jsonl"
    with JournalWriter(path, header) as journal:
        workload = Workload(submissions=tuple(submissions), source="here", format="rota")
        found = simulate(workload, policy, Setting(cluster=ONE), journal=journal)
    return path, {row.id: row.start_s or 0.0 for row in found.history.jobs}


@pytest.mark.slow
def test_wrong_estimates_explain_the_error(tmp_path: Path) -> None:
    """Every job runs three times as long as it declares, and nothing arrives later that matters."""
    jobs = [
        Submission(job=job(f"j{number}", estimate_s=100.0), submit_s=float(number), hidden_work=300.0)
        for number in range(6)
    ]
    journal, started = journal_of(tmp_path, jobs, "fifo")
    asked = [
        PastQuestion(job_id=JobId(f"j{number}"), made_s=number + 0.5, started_s=started[f"j{number}"])
        for number in range(1, 6)
    ]

    rows = {row.assumption: row for row in explain(moments(journal, asked), Hindsight(true_jobs(journal)))}

    before = rows[Assumption.NONE.value]
    assert before.forecasts == 5
    assert before.median_error is not None
    assert before.median_error > 0.4
    assert rows["durations"].median_error == pytest.approx(0.0, abs=0.02)
    assert rows["durations"].explains is not None
    assert rows["durations"].explains > 0.9
    assert rows["start-up"].explains == pytest.approx(0.0, abs=0.02)
    assert rows["all of them"].median_error == pytest.approx(0.0, abs=0.02)


def test_arrivals_that_overtake_explain_the_error(tmp_path: Path) -> None:
    """Estimates are right, but short jobs that come later go first."""
    jobs = [
        Submission(job=job("first", estimate_s=100.0), submit_s=0.0, hidden_work=100.0),
        Submission(job=job("asked", estimate_s=500.0), submit_s=1.0, hidden_work=500.0),
        *(
            Submission(job=job(f"late{number}", estimate_s=50.0), submit_s=20.0 + number, hidden_work=50.0)
            for number in range(6)
        ),
    ]
    journal, started = journal_of(tmp_path, jobs, "srtf")
    assert started["asked"] == pytest.approx(400.0)
    asked = [PastQuestion(job_id=JobId("asked"), made_s=1.5, started_s=started["asked"])]

    rows = {row.assumption: row for row in explain(moments(journal, asked), Hindsight(true_jobs(journal)))}

    assert rows["arrivals"].explains is not None
    assert rows["durations"].explains is not None
    assert rows["arrivals"].explains > 0.5
    assert rows["arrivals"].explains > rows["durations"].explains
    assert rows["all of them"].median_error == pytest.approx(0.0, abs=0.02)


def test_speeds_that_were_seen_too_late_explain_the_error() -> None:
    """The only node is slow. Before the forecast, like jobs ran on a fast one; later runs show the difference."""
    world = World(gpus=1, policy="fifo")
    for name in ("runs", "waits"):
        arrived = JobArrived(job(name, gpus=1, name="train", user="ann"))
        world.settle(world.engine.step(world.now_s, [arrived]))

    def ended(name: str, node: str, submit_s: float, work_s: float) -> TrueJob:
        asked: Job = job(name, gpus=1, name="train", user="ann")
        end_s = submit_s + work_s
        return TrueJob(
            job=asked,
            submit_s=submit_s,
            start_s=submit_s,
            end_s=end_s,
            work_s=work_s,
            ran_on=RanOn(node=node, tasks=1),
        )

    known = [ended(f"old{at}", "n9", -1000.0 + 10 * at, 100.0) for at in range(8)]
    later = [ended(f"new{at}", "n1", 5000.0 + 10 * at, 200.0) for at in range(8)]
    hindsight = Hindsight([*known, *later], {"n1": DeviceType("gpu"), "n9": DeviceType("fast")})

    def copy() -> Engine:
        built, alloc, _ = scheduler("fifo", Setting(cluster=world.cluster))
        return world.engine.fork(built, allocator=alloc)

    asked = PastQuestion(job_id=JobId("waits"), made_s=world.now_s, started_s=world.now_s + 200.0)
    rows = {row.assumption: row for row in explain(iter([(asked, world.engine, copy)]), hindsight)}

    assert rows[Assumption.NONE.value].median_error == pytest.approx(0.5, abs=0.15)
    assert rows["speeds"].median_error == pytest.approx(0.0, abs=0.15)
    assert rows["speeds"].explains is not None
    assert rows["speeds"].explains > 0.6
