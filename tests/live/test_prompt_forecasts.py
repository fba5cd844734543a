"""Questions for forecasts are answered in time; what takes longer is for the next question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rota.core.errors import RotaError
from rota.core.messages.events import JobArrived
from rota.core.model.job import JobId
from rota.forecast.value import Forecast, NoForecast
from rota.live.intake import prompt_forecasts
from rota.live.intake.prompt_forecasts import MANY_JOBS, MOST_OPEN, PromptForecasts

Course = Callable[["SlowSource", PromptForecasts], Awaitable[None]]


class SlowSource:
    """Forecasts that take until they are let go."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.asked: list[tuple[str, JobId]] = []
        self.error: Exception | None = None

    async def ask(self, job_id: JobId, arrives: JobArrived | None = None, asker: str = "") -> Forecast:
        self.asked.append((asker, job_id))
        await self.let_go.wait()
        if self.error is not None:
            raise self.error
        return Forecast(made_s=float(len(self.asked)))


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_forecasts, "WAIT_LONG_QUEUE_S", 0.0)


def run(course: Course, jobs: int = MANY_JOBS + 1) -> None:
    """Carry out a course with a source that is slow."""

    async def all_of_it() -> None:
        source = SlowSource()
        await course(source, PromptForecasts(source, lambda: jobs))

    asyncio.run(all_of_it())


@pytest.mark.attack("asks for a forecast while thousands of jobs wait", stopped_by="a bounded time for the answer")
def test_long_queue_is_answered_in_time_and_the_result_is_kept() -> None:
    async def course(source: SlowSource, prompt: PromptForecasts) -> None:
        first = await prompt.ask(JobId("1"), asker="ada")
        assert first.reason is NoForecast.COMPUTING
        assert (await prompt.ask(JobId("1"), asker="ada")).reason is NoForecast.COMPUTING
        source.let_go.set()
        await asyncio.sleep(0.01)
        assert (await prompt.ask(JobId("1"), asker="ada")).reason is None
        assert source.asked == [("ada", JobId("1"))], "the second and the third question are for the same forecast"

    run(course)


def test_short_queue_waits_for_its_forecast() -> None:
    async def course(source: SlowSource, prompt: PromptForecasts) -> None:
        question = asyncio.create_task(prompt.ask(JobId("1"), asker="ada"))
        await asyncio.sleep(0.01)
        source.let_go.set()
        assert (await question).reason is None

    run(course, jobs=1)


def test_manager_itself_waits() -> None:
    async def course(source: SlowSource, prompt: PromptForecasts) -> None:
        question = asyncio.create_task(prompt.ask(JobId("1")))
        await asyncio.sleep(0.01)
        assert not question.done()
        source.let_go.set()
        assert (await question).reason is None

    run(course)


@pytest.mark.attack(
    "asks for the forecasts of all its jobs at once and waits for none", stopped_by="a bound on open forecasts per user"
)
def test_open_forecasts_of_a_user_are_bounded() -> None:
    async def course(source: SlowSource, prompt: PromptForecasts) -> None:
        for number in range(3 * MOST_OPEN):
            assert (await prompt.ask(JobId(str(number)), asker="eve")).reason is NoForecast.COMPUTING
        await prompt.ask(JobId("1"), asker="ada")
        assert [asker for asker, _ in source.asked] == ["eve"] * MOST_OPEN + ["ada"]
        source.let_go.set()
        await asyncio.sleep(0.01)
        await prompt.ask(JobId("new"), asker="eve")
        assert ("eve", JobId("new")) in source.asked, "what was computed makes room"

    run(course)


def test_question_that_is_taken_back_does_not_end_the_forecast() -> None:
    async def course(source: SlowSource, prompt: PromptForecasts) -> None:
        question = asyncio.create_task(prompt.ask(JobId("1"), asker="ada"))
        await asyncio.sleep(0.01)
        question.cancel()
        source.let_go.set()
        assert (await prompt.ask(JobId("1"), asker="ada")).reason is None
        assert len(source.asked) == 1

    run(course, jobs=1)


def test_error_is_told_once_and_then_asked_again() -> None:
    async def course(source: SlowSource, prompt: PromptForecasts) -> None:
        source.error = RotaError("no such node")
        await prompt.ask(JobId("1"), asker="ada")
        source.let_go.set()
        await asyncio.sleep(0.01)
        with pytest.raises(RotaError, match="no such node"):
            await prompt.ask(JobId("1"), asker="ada")
        source.error = None
        assert (await prompt.ask(JobId("1"), asker="ada")).made_s == 2.0

    run(course, jobs=1 + MANY_JOBS)


def test_old_forecasts_are_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    async def course(source: SlowSource, prompt: PromptForecasts) -> None:
        await prompt.ask(JobId("1"), asker="ada")
        source.let_go.set()
        await asyncio.sleep(0.01)
        monkeypatch.setattr(prompt_forecasts, "KEPT_S", -1.0)
        await prompt.ask(JobId("2"), asker="bob")
        await prompt.ask(JobId("1"), asker="ada")
        assert [asker for asker, _ in source.asked] == ["ada", "bob", "ada"]

    run(course)
