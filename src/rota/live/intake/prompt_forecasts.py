"""Forecasts that are answered in time: what takes longer goes on, and the next question gets its result.

A forecast runs the whole queue forward. With thousands of waiting jobs, or while other users are served, that takes
longer than a user should wait. The answer then says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

from rota.core.messages.events import JobArrived
from rota.core.model.job import JobId
from rota.forecast.value import Forecast, NoForecast
from rota.store import clock

MANY_JOBS = 500
"""Unfinished jobs from which a queue counts as long."""
WAIT_LONG_QUEUE_S = 0.8
WAIT_S = 10.0
"""How long a question waits for its forecast; also a short queue has to wait for the turns of other users."""
MOST_OPEN = 4
"""Forecasts of one user that are computed or kept at once."""
KEPT_S = 60.0
"""How long a forecast is kept for the user who did not wait for it."""


class JobForecasts(Protocol):
    """Forecasts on request."""

    async def ask(self, job_id: JobId, arrives: JobArrived | None = None, asker: str = "") -> Forecast:
        """Return when a job will start and end; `arrives` is a hypothetical job. Askers are served in rotation."""


@dataclass(slots=True)
class _OpenForecast:
    """A forecast that is being computed, or was and has not been fetched."""

    task: asyncio.Task[Forecast]
    done_s: float = 0.0

    def note_end(self, task: asyncio.Task[Forecast]) -> None:
        """Note when it was computed; its error, if any, is for the next question."""
        self.done_s = time.monotonic()
        if not task.cancelled():
            task.exception()  # read here, so that it is not logged as never retrieved


class PromptForecasts:
    """Asks for forecasts, and waits for them for a bounded time."""

    def __init__(self, source: JobForecasts, jobs: Callable[[], int]) -> None:
        self._source = source
        self._jobs = jobs
        """Returns the number of unfinished jobs."""
        self._open: dict[str, dict[Hashable, _OpenForecast]] = {}

    async def ask(self, job_id: JobId, arrives: JobArrived | None = None, asker: str = "") -> Forecast:
        """Return a forecast, or that it is still being computed; the manager itself (no asker) always waits."""
        if not asker:
            return await self._source.ask(job_id, arrives)
        self._forget_old()
        mine = self._open.setdefault(asker, {})
        key = (job_id, None if arrives is None else repr(arrives.job))
        found = mine.get(key)
        if found is None:
            if not _make_room(mine):
                return Forecast(made_s=clock.now_s(), reason=NoForecast.COMPUTING)
            found = mine[key] = _OpenForecast(asyncio.create_task(self._source.ask(job_id, arrives, asker)))
            found.task.add_done_callback(found.note_end)
        await asyncio.wait([found.task], timeout=self._patience_s())
        if not found.task.done():
            return Forecast(made_s=clock.now_s(), reason=NoForecast.COMPUTING)
        mine.pop(key, None)
        return found.task.result()

    def _patience_s(self) -> float:
        return WAIT_LONG_QUEUE_S if self._jobs() > MANY_JOBS else WAIT_S

    def _forget_old(self) -> None:
        """Drop forecasts that were not fetched."""
        before_s = time.monotonic() - KEPT_S
        for asker, mine in list(self._open.items()):
            for key in [key for key, each in mine.items() if each.task.done() and each.done_s < before_s]:
                del mine[key]
            if not mine:
                del self._open[asker]


def _make_room(mine: dict[Hashable, _OpenForecast]) -> bool:
    """Drop the oldest forecast that was not fetched, if needed; False if all are still being computed."""
    if len(mine) < MOST_OPEN:
        return True
    oldest = next((key for key, each in mine.items() if each.task.done()), None)
    if oldest is None:
        return False
    del mine[oldest]
    return True
