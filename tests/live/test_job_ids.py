"""The ids of jobs: no id is given twice, whatever was refused between and however often the manager restarts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from live.test_control import Notes
from rota.core.model.cluster import Cluster
from rota.core.model.job import JobId
from rota.drivers.local.driver import LocalDriver
from rota.files.job_shape import JobFile
from rota.forecast.value import Forecast, NoForecast
from rota.live.intake.audit_entry import Asker
from rota.live.intake.requests import Requests
from rota.live.loop.boot import Scheduling, boot
from rota.live.loop.control import Control
from rota.live.loop.storage import CantStore
from rota.store.database import open_database
from rota.store.records import Records

FULL = OperationalError("INSERT", {}, Exception("database or disk is full"))
Submit = Callable[[bool], Awaitable[JobId | None]]


class NoForecasts:
    """Forecasts that nobody computes."""

    async def ask(self, job_id: JobId, arrives: object = None, asker: str = "") -> Forecast:
        return Forecast(made_s=0.0, reason=NoForecast.COMPUTING)


async def life(path: Path, course: Callable[[Control, Submit], Awaitable[None]]) -> None:
    """Let one manager live through a course; `submit(True)` meets a disk that fills up while the job is checked."""
    records = Records(open_database(path))
    control = boot(records, Scheduling(cluster=Cluster.uniform(("gpu", 2, 2))), LocalDriver.contract)
    driver = Notes()
    driver.control = control
    is_full = False

    def check(file: JobFile) -> None:
        if is_full:
            control.storage.fails(FULL)

    requests = Requests(control, records, check, NoForecasts())
    running = asyncio.create_task(control.run(LocalDriver(driver, control.state, control.kept)))

    async def submit(is_refused: bool) -> JobId | None:
        nonlocal is_full
        is_full = is_refused
        try:
            return (await requests.submit([{"run": "true", "resources": {"gpus": 2}}], Asker(name="ann")))[0]
        except CantStore:
            return None
        finally:
            control.storage._works()

    taking = asyncio.ensure_future(course(control, submit))
    try:
        done, _ = await asyncio.wait({running, taking}, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()  # the loop ends by a fault only
    finally:
        taking.cancel()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        records.close()


@pytest.mark.parametrize("lives", ["ara/a", "raa/ra/a", "arra//aaa"])
def test_no_id_is_given_twice(tmp_path: Path, lives: str) -> None:
    """Each life of the manager accepts (a) and refuses (r) submissions."""
    path = tmp_path / "rota.db"
    accepted: list[JobId] = []

    for answers in lives.split("/"):

        async def course(control: Control, submit: Submit, answers: str = answers) -> None:
            for answer in answers:
                job_id = await submit(answer == "r")
                assert (job_id is None) == (answer == "r")
                accepted.extend([] if job_id is None else [job_id])
            assert {*accepted} == {*control.state.jobs}

        asyncio.run(life(path, course))

    assert len({*accepted}) == len(accepted)
