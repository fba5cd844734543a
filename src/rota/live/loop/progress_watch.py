"""Progress that running jobs report of their own accord, passed on to the engine and so to the journal and the policy.

A task of this machine writes its step, and how many steps there are, to the job's folder; a pod has an annotation.
The manager reads these from time to time, and tells the engine when the fraction has grown enough. Jobs that do not say
how many steps there are, are left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from rota.core.messages.events import Event, SpeedChanged
from rota.core.model.job import JobId, JobState
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.store import clock
from rota.store.run_folder import progress

EVERY_S = 10.0
"""How often the files are read."""
LEAST_GROWTH = 0.05
"""A report is passed on when the fraction done has changed by this much, so that journals stay short."""


Reader = Callable[[list[JobId]], Awaitable[dict[JobId, float]]]
"""Returns the fraction of its steps that each job says it has done, of those that say how many there are."""


async def watch_progress(state: State, read: Reader, answer: Callable[[Event], None], every_s: float = EVERY_S) -> None:
    """Pass on what running jobs report, until cancelled."""
    while True:
        await asyncio.sleep(every_s)
        running = [live for live in state.jobs.values() if _is_asked(live)]
        found = await read([live.job.id for live in running])
        for event in news(running, found, clock.now_s()):
            answer(event)


def news(running: Iterable[LiveJob], found: dict[JobId, float], now_s: float) -> list[Event]:
    """Return the events of jobs whose reported fraction changed enough."""
    events: list[Event] = []
    for live in running:
        done = found.get(live.job.id)
        if done is None or not _is_asked(live):
            continue
        if live.reported is None or abs(done - live.reported) >= LEAST_GROWTH:
            events.append(SpeedChanged(live.job.id, live.work_done(now_s), live.rate, done))
    return events


def _is_asked(live: LiveJob) -> bool:
    """Return whether a job runs, with no order outstanding."""
    return live.state is JobState.RUNNING and live.is_settled and not live.is_leaving and bool(live.rate)


def from_files(home: Path) -> Reader:
    """Return a reader of the files in the folders of jobs."""

    async def read(job_ids: list[JobId]) -> dict[JobId, float]:
        return await asyncio.to_thread(_fractions, home, job_ids)

    return read


def _fractions(home: Path, job_ids: list[JobId]) -> dict[JobId, float]:
    """Return the fractions done by the files."""
    found = {}
    for job_id in job_ids:
        said = progress(home, job_id)
        if said is not None and said.get("steps"):
            found[job_id] = min(max(said["step"] / said["steps"], 0.0), 1.0)
    return found
