"""Jobs whose tasks ended while no manager ran are not charged for the time since then."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from live.test_control import Notes
from live.test_job_ids import NoForecasts
from local_drivers import until
from loops import running
from rota.core.engine.driver import ExitDetail
from rota.core.messages.events import Started
from rota.core.model.cluster import Cluster
from rota.core.model.job import JobId, JobState
from rota.core.state.job_record import LiveJob
from rota.drivers.local.driver import LocalDriver
from rota.drivers.local.launch_order import LaunchOrder
from rota.live.intake.audit_entry import Asker
from rota.live.intake.requests import Requests
from rota.live.loop.boot import EndOfTasks, Scheduling, boot, restored
from rota.store import clock
from rota.store.database import open_database
from rota.store.records import Records
from rota.store.run_folder import tasks_ended_s

SCHEDULING = Scheduling(cluster=Cluster.uniform(("gpu", 2, 2)))
DOWN_S = 3600.0


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    kept = Records(open_database(tmp_path / "rota.db"))
    yield kept
    kept.close()


class Starts(Notes):
    """A driver whose jobs run at once."""

    def start(self, order: LaunchOrder) -> None:
        self.control.answered(Started(order.job.id, 1.0, clock.now_s()), ExitDetail())


async def run_a_job(records: Records) -> tuple[JobId, float]:
    """Let a manager start a job on both devices and end; return when the job began to run."""
    control = boot(records, SCHEDULING, LocalDriver.contract)
    async with running(control, Starts()):
        requests = Requests(control, records, lambda file: None, NoForecasts())
        (job_id,) = await requests.submit([{"run": "true", "resources": {"gpus": 2}}], Asker(name="ann"))
        live = control.state.jobs[job_id]
        await until(lambda: live.state is JobState.RUNNING and not control.storage.is_behind)
        await until(lambda: records.live_jobs()[0].state == "running")
    assert live.run_since_s is not None
    return job_id, live.run_since_s


def found_again(
    records: Records, job_id: JobId, end: EndOfTasks, monkeypatch: pytest.MonkeyPatch
) -> tuple[LiveJob, float]:
    """The job as the next manager finds it, much later, and what time it is."""
    real = clock._since_boot_s
    monkeypatch.setattr(clock, "_since_boot_s", lambda: real() + DOWN_S)
    state = restored(records, SCHEDULING, end_of_tasks=end).state
    return state.jobs[job_id], state.now_s


@pytest.mark.parametrize("ran_s", [0.0, 60.0])
def test_time_since_its_tasks_ended_is_left_out(
    ran_s: float, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, since_s = asyncio.run(run_a_job(records))

    live, now_s = found_again(records, job_id, lambda *of: since_s + ran_s, monkeypatch)

    assert now_s > since_s + DOWN_S
    assert live.attained_gpu_s(now_s) == pytest.approx(2 * ran_s)
    assert live.work_done(now_s) == pytest.approx(ran_s, abs=0.5)
    assert live.attained_gpu_s(now_s + 1.0) == pytest.approx(2 * (ran_s + 1.0)), "its clock goes on until it is told"


def test_job_that_may_still_run_is_charged_for_all(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id, since_s = asyncio.run(run_a_job(records))

    live, now_s = found_again(records, job_id, lambda *of: None, monkeypatch)

    assert live.attained_gpu_s(now_s) == pytest.approx(2 * (now_s - since_s))
    assert now_s - since_s > DOWN_S


def test_end_of_an_attempt_is_that_of_its_last_task(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "7" / "2"

    def write(rank: int, **state: object) -> None:
        (folder / str(rank)).mkdir(parents=True, exist_ok=True)
        (folder / str(rank) / "state.json").write_text(json.dumps(state))

    assert tasks_ended_s(tmp_path, JobId("7"), 2) is None
    write(0, phase="ended", ended_s=5.0)
    assert tasks_ended_s(tmp_path, JobId("7"), 2) == 5.0
    write(1, phase="running")
    assert tasks_ended_s(tmp_path, JobId("7"), 2) is None
    write(1, phase="ended", ended_s=7.0)
    assert tasks_ended_s(tmp_path, JobId("7"), 2) == 7.0
    (folder / "1" / "state.json").write_text("{")
    assert tasks_ended_s(tmp_path, JobId("7"), 2) is None
