"""The keeper on a real loop and database: forecasts are kept, scored, calibrated, and found again after a restart."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from live.truth.seeded import stored
from rota.core.engine.driver import ExitDetail
from rota.core.messages.events import End, JobArrived, JobCancelled, JobEnded
from rota.core.model.cluster import Cluster
from rota.core.model.job import JobId
from rota.drivers.local.driver import LocalDriver
from rota.forecast.value import Basis, Forecast, TimeRange
from rota.live.intake.audit_entry import Asker
from rota.live.intake.requests import Requests
from rota.live.loop.boot import Scheduling, boot
from rota.live.loop.control import Control
from rota.live.truth.keeper import ForecastKeeper, _not_before, kind_of
from rota.store.database import open_database
from rota.store.forecasts import StoredForecast, StoredRange
from rota.store.records import Records, WriteBatch
from web.past import Past

SCHEDULING = Scheduling(cluster=Cluster.uniform(("gpu", 1, 1)), policy="fifo")
FILE = {"run": "train", "resources": {"gpus": 1}}


class FixedSource:
    """A small source of forecasts: every job starts in 100 s, and ends in 200 s."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self.asked = 0
        self.takes_s = 0.0

    async def ask(self, job_id: JobId, arrives: JobArrived | None = None, asker: str = "") -> Forecast:
        self.asked += 1
        await asyncio.sleep(self.takes_s)
        now_s = self._control.state.now_s
        return Forecast(
            made_s=now_s,
            start=TimeRange(low_s=now_s + 90.0, median_s=now_s + 100.0, high_s=now_s + 110.0),
            end=TimeRange(low_s=now_s + 190.0, median_s=now_s + 200.0, high_s=now_s + 210.0),
            basis=Basis(declared=1),
        )

    async def close(self) -> None:
        pass


class Scene:
    """A loop with an emulated driver; steps are made by hand."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.control = boot(records, SCHEDULING, LocalDriver.contract)
        self._past = Past(self.control, self.control.state.now_s, random.Random(1))
        self.control.give_to(LocalDriver(self._past, self.control.state, self.control.kept))
        self.source = FixedSource(self.control)
        self.keeper = ForecastKeeper(self.control, records, self.source, "fifo")
        self.requests = Requests(self.control, records, lambda _: None, self.keeper)

    async def step(self) -> None:
        entries = list(self.control.pending)
        self.control._inbox = []
        if entries:
            await self.control._step(entries)

    async def submit(self, count: int) -> list[JobId]:
        ids = []
        for _ in range(count):
            task = asyncio.ensure_future(self.requests.submit([FILE], Asker()))
            while not task.done():
                await asyncio.sleep(0)
                await self.step()
            ids += task.result()
        return ids

    async def go_on(self) -> None:
        """Take what is reported, and let jobs that start run."""
        await self.step()
        await self._past.pass_until(self._past.now_s + 5.0)
        await self.step()

    async def write(self) -> None:
        self.keeper.write()
        await self.step()

    def rows(self) -> list[StoredForecast]:
        return self.records.forecasts.since(0.0)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(open_database(tmp_path / "rota.db"))


def test_forecasts_at_submission_end_when_they_take_too_long(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.live.truth.keeper.LONGEST_S", 0.05)

    async def scene() -> None:
        made = Scene(records)
        await made.submit(6)
        made.source.takes_s = 0.06
        await made.keeper._forecast_pending()
        assert made.source.asked == 1
        await made.keeper._forecast_pending()
        assert made.source.asked == 1, "the others are left out, not put off"

    asyncio.run(scene())


def test_submitted_jobs_are_forecast_kept_and_scored(records: Records) -> None:
    async def scene() -> None:
        made = Scene(records)
        first, second = await made.submit(2)
        await made.keeper._forecast_pending()
        await made.write()
        by_job = {row.job_id: row for row in made.rows()}
        assert set(by_job) == {first, second}
        assert by_job[first].start is None, "it was given its device at once: its start is no question"
        assert by_job[second].start is not None
        assert by_job[second].cause == "submission"
        assert by_job[second].basis == "declared"

        await made.go_on()
        made.control.answered(JobEnded(first, End.SUCCEEDED, 0.0), ExitDetail(exit_code=0))
        await made.go_on()
        await made.write()
        ended = {row.job_id: row for row in made.rows()}
        assert ended[first].state == "succeeded"
        assert ended[first].ended_s is not None
        assert ended[second].started_s is not None
        assert made.keeper.calibration.starts("fifo").above.seen == 1

    asyncio.run(scene())


def test_repeated_questions_are_not_kept_again_and_again(records: Records) -> None:
    async def scene() -> None:
        made = Scene(records)
        _, waiting = await made.submit(2)
        for _ in range(5):
            await made.keeper.ask(waiting)
        await made.write()
        assert [row.cause for row in made.rows()] == ["submission"]
        assert made.source.asked == 5

    asyncio.run(scene())


def test_hypothetical_job_is_not_kept(records: Records) -> None:
    async def scene() -> None:
        made = Scene(records)
        await made.submit(1)
        await made.requests.try_out(FILE, Asker())
        await made.write()
        assert made.rows() == []

    asyncio.run(scene())


def test_given_range_is_wider_once_starts_were_missed(records: Records) -> None:
    """Forty starts came twice as late as predicted before this manager started."""
    span = StoredRange(median_s=100.0, low_s=90.0, high_s=110.0, given_low_s=90.0, given_high_s=110.0)
    kept = stored(start=span, job_id="old", state="succeeded", started_s=200.0)
    records.write(WriteBatch(forecasts=[kept.encode() for _ in range(40)]))()

    async def scene() -> None:
        made = Scene(records)
        _, waiting = await made.submit(2)
        shown = await made.keeper.ask(waiting)
        assert shown.start is not None
        assert shown.start.high_s is not None
        assert shown.start.median_s is not None
        assert shown.start.high_s - shown.start.median_s > 80.0
        await made.write()
        stored = made.rows()[-1].start
        assert stored is not None
        assert stored.high_s is not None
        assert stored.high_s - stored.median_s == pytest.approx(10.0)
        assert stored.given_high_s == shown.start.high_s

    asyncio.run(scene())


def test_outcome_that_a_crash_came_before_is_scored_at_the_next_start(records: Records) -> None:
    async def before() -> JobId:
        made = Scene(records)
        first, waiting = await made.submit(2)
        await made.keeper._forecast_pending()
        await made.write()
        await made.go_on()
        made.control.answered(JobEnded(first, End.SUCCEEDED, 0.0), ExitDetail(exit_code=0))
        await made.go_on()
        return waiting  # its start is in the jobs' records, but not in the forecasts: nothing was written

    waiting = asyncio.run(before())
    assert next(row for row in records.forecasts.since(0.0) if row.job_id == waiting).started_s is None

    async def after() -> None:
        made = Scene(records)
        assert made.keeper.calibration.starts("fifo").above.seen == 1
        await made.write()
        assert next(row for row in made.rows() if row.job_id == waiting).started_s is not None

    asyncio.run(after())


def test_retention_deletes_old_forecasts_and_the_oldest_of_too_many(records: Records) -> None:
    rows = [stored(job_id=str(number), cause="asked", made_s=float(number)).encode() for number in range(10)]
    records.write(WriteBatch(forecasts=rows))()

    records.forecasts.drop_before(3.0)
    assert [row.job_id for row in records.forecasts.since(0.0)] == [str(number) for number in range(3, 10)]
    records.forecasts.drop_before(0.0, most=2)
    assert [row.job_id for row in records.forecasts.since(0.0)] == ["8", "9"]


def test_kind_is_that_of_most_run_times() -> None:
    assert kind_of(Basis(declared=9, guessed=1)) == "declared"
    assert kind_of(Basis(declared=1, history=1)) == "mixed"
    assert kind_of(Basis()) == "no other jobs"


def test_range_of_an_end_is_not_before_that_of_the_start() -> None:
    """Both are stretched by factors of their own."""
    start = TimeRange(low_s=10.0, median_s=20.0, high_s=90.0)
    end = TimeRange(low_s=5.0, median_s=30.0, high_s=60.0)

    assert _not_before(end, start) == TimeRange(low_s=10.0, median_s=30.0, high_s=90.0)
    assert _not_before(end, TimeRange(low_s=1.0, median_s=20.0, high_s=None)) == TimeRange(
        low_s=5.0, median_s=30.0, high_s=None
    )
    assert _not_before(None, start) is None


def test_run_that_was_not_seen_is_scored_by_what_is_said_of_it(records: Records) -> None:
    """The engine takes it for cancelled before it ran; its forecasts are of the run that there was."""

    async def scene() -> None:
        made = Scene(records)
        _, waiting = await made.submit(2)
        await made.keeper._forecast_pending()
        await made.write()
        made.keeper.defer([waiting])
        made.control.tell(JobCancelled(waiting))
        await made.go_on()
        await made.write()
        (kept,) = (row for row in made.rows() if row.job_id == waiting)
        assert (kept.state, kept.started_s) == (None, None)

        ran = {"started_s": kept.made_s + 95.0, "ended_s": kept.made_s + 195.0}
        made.keeper.settle([{"key": waiting, "state": "succeeded", **ran}])
        await made.write()
        (scored,) = (row for row in made.rows() if row.job_id == waiting)
        assert (scored.state, scored.started_s, scored.ended_s) == ("succeeded", ran["started_s"], ran["ended_s"])
        assert made.keeper.calibration.starts("fifo").below.seen + made.keeper.calibration.starts("fifo").above.seen

    asyncio.run(scene())
