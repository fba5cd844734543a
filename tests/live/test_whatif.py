"""A what-if: the journal's jobs under the present scenario and another, in a separate process."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from builders import job
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import Checkpoint, DeviceType
from rota.drivers.simulator.study import Setting, simulate
from rota.live.loop.boot import Scheduling
from rota.live.workers.whatif import WhatIf, changed
from rota.live.workers.whatif_worker import with_guessed_work, without_restarts
from rota.scenario import Scenario
from rota.store.database import open_database
from rota.store.journal import JournalHeader, JournalWriter
from rota.store.records import Records, WriteBatch
from rota.traces.workload import OrderDelays, Submission, Workload

ONE = Cluster.uniform(("gpu", 1, 1))


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    """Two jobs of 100 s one after the other on one device, an hour ago."""
    began_s = time.time() - 3600.0
    jobs = tuple(Submission(job=job(name, work=100.0), submit_s=began_s) for name in ("a", "b"))
    header = JournalHeader(scenario=Scenario(policies=("fifo",), placement="any", cluster=ONE))
    with JournalWriter(tmp_path / "journal", header) as journal:
        workload = Workload(submissions=jobs, source="here", format="rota")
        simulate(workload, "fifo", Setting(cluster=ONE), journal=journal)
    lines = (tmp_path / "journal").read_text().splitlines()[1:]
    kept = Records(open_database(tmp_path / "rota.db"))
    kept.write(WriteBatch(steps=[{"n": number, "body": line} for number, line in enumerate(lines)]))()
    yield kept
    kept.close()


def what_if(records: Records) -> WhatIf:
    return WhatIf(records, Scheduling(cluster=ONE, policy="fifo"))


@pytest.mark.slow
def test_jobs_of_the_last_day_end_sooner_with_another_node(records: Records) -> None:
    question = what_if(records)
    now = question.present(ONE, restart_s=30.0)
    then = replace(now.under("las"), cluster=changed(ONE, added={DeviceType("gpu"): 1}))

    answer = asyncio.run(question.ask(now, [then], 1.0))

    assert (answer.jobs, answer.left_out) == (2, 0)
    assert (answer.now.policy, answer.now.devices, answer.now.metrics["avg_jct_s"]) == ("fifo", 1, 150.0)
    other = answer.alternatives[0]
    assert (other.policy, other.devices, other.metrics["avg_jct_s"]) == ("las", 2, 100.0)
    assert answer.real is not None
    assert answer.real.metrics["avg_jct_s"] == pytest.approx(150.0)
    assert answer.error is not None
    assert answer.error.jobs == 2
    assert answer.error.metrics["avg_jct_s"] == pytest.approx(0.0, abs=1e-6)
    assert answer.error.per_job_median == pytest.approx(0.0, abs=1e-6)
    assert answer.error.by_chance is not None
    least, most = answer.error.by_chance
    assert -0.001 < least <= 0.0 <= most < 0.001, "20 ms are little here, and the simulation itself is among them"
    assert least < most, "submissions were moved"


@pytest.mark.slow
def test_jobs_that_still_run_take_devices_from_the_others(tmp_path: Path) -> None:
    """Of two devices one is taken for good: a simulation without the job that has it would be twice as fast."""
    two = Cluster.uniform(("gpu", 2, 2))
    began_s = time.time() - 3600.0
    lasts = Submission(job=job("lasts", work=3000.0), submit_s=began_s)
    short = [Submission(job=job(f"j{at}", work=100.0, estimate_s=100.0), submit_s=began_s + 1) for at in range(4)]
    header = JournalHeader(scenario=Scenario(policies=("fifo",), placement="any", cluster=two))
    with JournalWriter(tmp_path / "journal", header) as journal:
        workload = Workload(submissions=(lasts, *short), source="here", format="rota")
        simulate(workload, "fifo", Setting(cluster=two), journal=journal)
    lines = (tmp_path / "journal").read_text().splitlines()[1:]
    kept = Records(open_database(tmp_path / "rota.db"))
    before_its_end = [line for line in lines if '"ended","job_id":"lasts"' not in line]
    assert len(before_its_end) == len(lines) - 1
    kept.write(WriteBatch(steps=[{"n": number, "body": line} for number, line in enumerate(before_its_end)]))()
    question = WhatIf(kept, Scheduling(cluster=two, policy="fifo"))

    answer = asyncio.run(question.ask(question.present(two), [], 1.0))
    kept.close()

    assert (answer.jobs, answer.left_out) == (4, 1)
    assert answer.error is not None
    assert answer.error.metrics["avg_jct_s"] == pytest.approx(0.0, abs=0.01)
    assert answer.now.metrics["avg_jct_s"] == pytest.approx(250.0, rel=0.01)


def test_guessed_work_exceeds_what_is_known_and_is_that_of_like_jobs() -> None:
    ended = [Submission(job=job(f"e{at}", name="train", work=100.0 + at), submit_s=0.0) for at in range(9)]
    young = Submission(job=job("young", name="train", work=0.0), submit_s=0.0)
    old = Submission(job=job("old", name="train", work=400.0), submit_s=0.0)

    found = {str(each.job.id): each.target for each in with_guessed_work(ended, [young, old])}

    assert found["old"] > 400.0
    assert 80.0 < found["young"] < 150.0


def test_policy_from_a_file_is_refused(records: Records, tmp_path: Path) -> None:
    question = what_if(records)
    now = question.present(ONE, restart_s=30.0)

    with pytest.raises(RotaError, match="unknown policy"):
        asyncio.run(question.ask(now, [now.under(f"{tmp_path}/mine.py:fn")], 1.0))


@pytest.mark.parametrize(
    ("checkpoint", "work"),
    [
        (Checkpoint(), 80.0),
        (Checkpoint(interval_s=math.inf), 100.0),
        (Checkpoint(suspend_s=1.0, resume_s=1.0), 100.0),
        (None, 100.0),
    ],
    ids=["saves", "starts over", "is suspended", "says nothing"],
)
def test_work_that_restarts_added_is_taken_off(checkpoint: Checkpoint | None, work: float) -> None:
    delays = OrderDelays(starts_s=(0.1, 0.1, 0.1), stops_s=(0.2, 0.2))
    found = Submission(job=job("a", work=100.0, checkpoint=checkpoint), submit_s=0.0, delays=delays)

    assert without_restarts(found, 10.0).target == pytest.approx(work)
    assert without_restarts(found, 0.0) == found
    assert without_restarts(replace(found, delays=None), 10.0).target == pytest.approx(100.0)
    assert without_restarts(found, 60.0).target > 0.0
