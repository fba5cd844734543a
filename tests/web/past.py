"""A day of a manager's history, generated in seconds: the real loop and store, an emulated driver and clock.

The data folder then holds what `rota up` would have left: jobs, the journal, the audit log.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy import event

from rota.core.engine.driver import ExitDetail
from rota.core.messages.decisions import Cause
from rota.core.messages.events import End, Event, JobEnded, Resized, Started, Stopped
from rota.core.model.cluster import Cluster
from rota.core.model.job import JobId
from rota.core.model.placement import Placement
from rota.drivers.local.driver import LocalDriver
from rota.drivers.local.launch_order import LaunchOrder
from rota.live.intake.audit_entry import Asker
from rota.live.intake.requests import Requests
from rota.live.loop.boot import Scheduling, boot
from rota.live.loop.control import Control
from rota.live.workers.forecast_worker import ForecastWorker
from rota.store import clock
from rota.store.database import open_database
from rota.store.records import Records

Json = dict[str, Any]
Action = Callable[[], "asyncio.Task[object] | None"]
DAY_S = 86400.0
STARTING_S = 2.0
MODELS = {
    "vision": ("resnet50", "vit-base", "detr", "clip-probe"),
    "nlp": ("bert-base", "gpt2-medium", "llama-ft", "tokenizer"),
    "speech": ("whisper-small", "wav2vec", "tts-eval"),
    "robotics": ("dreamer", "grasp-rl"),
}
USERS = ("ada", "grace", "linus", "mary")
FAILURES = (
    (1, "CUDA out of memory: tried to allocate 2.50 GiB"),
    (1, "ModuleNotFoundError: No module named 'apex'"),
    (137, "it used more memory than it asked for"),
)


class Past:
    """Emulated driver and clock: time jumps from event to event."""

    def __init__(self, control: Control, start_s: float, rng: random.Random) -> None:
        self.now_s = start_s
        self._control = control
        self._rng = rng
        self._due: list[tuple[float, int, Action]] = []
        self._count = 0
        self._run_s: dict[JobId, float] = {}
        self._stopped: set[tuple[JobId, int]] = set()
        self._attempts: dict[JobId, int] = {}

    def time(self) -> float:
        """Return the emulated time."""
        return self.now_s

    def at(self, at_s: float, action: Action) -> None:
        """Schedule an action."""
        self._count += 1
        heapq.heappush(self._due, (at_s, self._count, action))

    async def pass_until(self, end_s: float) -> None:
        """Carry out the scheduled actions up to a time."""
        while self._due and self._due[0][0] <= end_s:
            at_s, _, action = heapq.heappop(self._due)
            self.now_s = max(self.now_s, at_s)
            asked = action()
            while asked is not None and not asked.done() and not self._control.pending:
                await asyncio.sleep(0.0005)
            entries = list(self._control.pending)
            if entries:
                self._control._inbox = []
                await self._control._step(entries)
        self.now_s = end_s

    # -- the driver --------------------------------------------------------------------------------

    def start(self, order: LaunchOrder) -> None:
        """Tasks start after a delay, and end after a random run time."""
        job_id = order.job.id
        self._attempts[job_id] = order.attempt
        left_s = self._run_s.setdefault(job_id, self._rng.lognormvariate(7.6, 1.1))
        self.at(self.now_s + STARTING_S, lambda: self._answer(job_id, order.attempt, Started(job_id, 1.0, self.now_s)))
        self.at(self.now_s + STARTING_S + left_s, lambda: self._end(job_id, order.attempt))

    def _answer(self, job_id: JobId, attempt: int, said: Event, code: int | None = None, message: str = "") -> None:
        if (job_id, attempt) not in self._stopped:
            self._control.answered(said, ExitDetail(exit_code=code, message=message))

    def _end(self, job_id: JobId, attempt: int) -> None:
        if self._rng.random() < 0.06:
            code, message = self._rng.choice(FAILURES)
            self._answer(job_id, attempt, JobEnded(job_id, End.FAILED, 0.0), code, message)
        else:
            self._answer(job_id, attempt, JobEnded(job_id, End.SUCCEEDED, 0.0), 0)

    def stop(self, job_id: JobId, cause: Cause) -> None:
        """Tasks stop after a second."""
        self._stopped.add((job_id, self._attempts[job_id]))
        self.at(self.now_s + 1.0, lambda: self._control.answered(Stopped(job_id, 0.0), ExitDetail()))

    def resize(self, order: LaunchOrder, before: Placement) -> None:
        """The job continues with its new size."""
        self._control.answered(Resized(order.job.id, 0.0, 1.0, self.now_s), ExitDetail())

    def share(self, job_id: JobId, placement: Placement) -> None:
        """The policy of the demonstration shares no devices."""
        raise NotImplementedError

    def suspend(self, job_id: JobId) -> None:
        """The policy of the demonstration suspends no jobs."""
        raise NotImplementedError

    def resume(self, job_id: JobId) -> None:
        """The policy of the demonstration suspends no jobs."""
        raise NotImplementedError

    def find(self, order: LaunchOrder, stopping: Cause | None = None) -> None:
        """There are no tasks to find."""

    def find_held(self, order: LaunchOrder) -> None:
        """No job waits suspended."""

    def settle(self) -> None:
        """There are no open orders."""

    def close(self) -> None:
        """There are no resources to release."""


@contextmanager
def _clock(shown: Callable[[], float]) -> Iterator[None]:
    """Let the loop read another clock."""
    with patch.object(clock, "now_s", shown):
        yield


def make_past(home: Path, cluster: Cluster, *, policy: str, tenancy: str, jobs: int, seed: int = 1) -> None:
    """Fill a data folder with a day of history that ends now."""
    home.mkdir(parents=True, exist_ok=True)
    database = open_database(home / "rota.db")
    event.listen(database, "connect", lambda raw, _: raw.execute("PRAGMA synchronous=OFF"))
    database.dispose()
    try:
        asyncio.run(_live(Records(database), Scheduling(cluster=cluster, policy=policy, tenancy=tenancy), jobs, seed))
    finally:
        database.dispose()


async def _live(records: Records, scheduling: Scheduling, jobs: int, seed: int) -> None:
    rng = random.Random(seed)
    end_s = time.time()
    past: list[Past] = []
    begin_s = end_s - DAY_S
    with _clock(lambda: past[0].now_s if past else begin_s):
        control = boot(records, scheduling, LocalDriver.contract)
        past.append(Past(control, begin_s, rng))
        control.give_to(LocalDriver(past[0], control.state, control.kept))
        requests = Requests(control, records, lambda _: None, ForecastWorker(scheduling, records.url))
        tasks: list[asyncio.Task[object]] = []
        for number in range(jobs):
            file, user = _job(rng, number)
            at_s = begin_s + DAY_S * 0.93 * rng.random() ** 0.9

            def send(file: Json = file, user: str = user) -> asyncio.Task[object]:
                tasks.append(asyncio.ensure_future(requests.submit([file], Asker(name=user))))
                return tasks[-1]

            past[0].at(at_s, send)
        await past[0].pass_until(end_s - 120)
        await _end_all(past[0], requests, control, end_s - 60)
        await asyncio.gather(*tasks)


async def _end_all(past: Past, requests: Requests, control: Control, end_s: float) -> None:
    """Cancel the jobs that still wait or run, so that the real driver finds no unfinished work."""
    tasks: list[asyncio.Task[object]] = []
    for job_id in list(control.state.jobs):

        def cancel(job_id: JobId = job_id) -> asyncio.Task[object] | None:
            if job_id not in control.state.jobs or control.state.jobs[job_id].state.is_final:
                return None
            tasks.append(asyncio.ensure_future(requests.cancel(job_id, Asker(name="ada"))))
            return tasks[-1]

        past.at(past.now_s, cancel)
    await past.pass_until(end_s)
    await asyncio.gather(*tasks)


def _job(rng: random.Random, number: int) -> tuple[Json, str]:
    tenant = rng.choices(list(MODELS), weights=(5, 4, 3, 1))[0]
    name = f"{rng.choice(MODELS[tenant])}-{number:04d}"
    gpus = rng.choices((1, 2, 4, 8), weights=(5, 3, 3, 2))[0]
    workers = 2 if gpus == 8 and rng.random() < 0.3 else 1
    file: Json = {"name": name, "tenant": tenant, "workers": workers, "resources": {"gpus": gpus}, "run": "train"}
    if rng.random() < 0.15:
        file["priority"] = -1
    return file, rng.choice(USERS)
