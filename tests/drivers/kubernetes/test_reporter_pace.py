"""The pace of reasons: 200 pods a second are told, never many more, and what changes often is told once a round.

The reporter runs on a loop whose time passes only while it waits, so that the pace is that of its code on any machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drivers.kubernetes.objects import pod_object
from rota.core.errors import RotaError, Unavailable
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import JobId
from rota.drivers.kubernetes.api.client import Api
from rota.drivers.kubernetes.filters.world import FilterState
from rota.drivers.kubernetes.gangs import reporter as reporting
from rota.drivers.kubernetes.gangs.gang import Stage
from rota.drivers.kubernetes.gangs.gang_index import GangIndex
from rota.drivers.kubernetes.gangs.headroom import Headroom
from rota.drivers.kubernetes.gangs.occupancy import Occupancy
from rota.drivers.kubernetes.gangs.pod_places import PodPlaces
from rota.drivers.kubernetes.gangs.reporter import Reporter
from rota.drivers.kubernetes.objects.gang_jobs import job_of
from rota.drivers.kubernetes.objects.pods import pod_of
from rota.drivers.kubernetes.settings import ClusterSettings
from rota.store import clock

USUAL = ClusterSettings()
LATENCY_S = 0.02
LEAST_PER_S, MOST_PER_S = 200, 250


class InstantLoop(asyncio.SelectorEventLoop):
    """An event loop that goes on at once to the next moment at which something is due."""

    def __init__(self) -> None:
        self.now_s = clock.now_s()
        super().__init__()
        self._clock_resolution = 1e-4  # what is due now is due, though seconds since 1970 are coarse

    def time(self) -> float:
        return self.now_s

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]  # asyncio's own, private
            self.now_s = max(self.now_s, self._scheduled[0].when())  # type: ignore[attr-defined]  # the same
        super()._run_once()  # type: ignore[misc]  # the same


class SlowServer:
    """An API server that takes its time, and notes when each pod was told."""

    def __init__(self, loop: InstantLoop) -> None:
        self._loop = loop
        self.said: dict[str, list[tuple[float, str]]] = {}
        self.events = 0

    async def patch(self, path: str, body: Any, kind: str) -> None:
        await asyncio.sleep(LATENCY_S)
        message = body["status"]["conditions"][0]["message"]
        self.said.setdefault(path.split("/")[-2], []).append((self._loop.time(), message))

    async def post(self, path: str, body: Any) -> None:
        await asyncio.sleep(LATENCY_S)
        self.events += 1

    @property
    def writes(self) -> int:
        return sum(len(each) for each in self.said.values())


class Queue:
    """Pods that wait on a loop without real time, and the reporter of their reasons."""

    def __init__(self, loop: InstantLoop, pods: int) -> None:
        self.loop, self.server = loop, SlowServer(loop)
        self.steps, self.code = 0, ReasonCode.DEVICES_BUSY
        self.failures: list[Exception] = []
        """Of the next forecasts."""
        index = GangIndex(Occupancy(), PodPlaces(Headroom(), FilterState()))
        for number in range(pods):
            index.see(pod_of(pod_object(f"p{number}"), USUAL))
        for gang in index.gangs:
            gang.job = job_of(gang, gang.waiting, USUAL, JobId(gang.waiting[0].name))
            gang.stage = Stage.WAITING
        self.reporter = Reporter(cast(Api, self.server), index, self._explain, self._foresee, steps=lambda: self.steps)

    def _explain(self, name: JobId) -> Reason:
        return Reason(code=self.code, need_milli=1000, free_milli=0)

    async def _foresee(self, name: JobId) -> dict[str, Any] | None:
        if self.failures:
            raise self.failures.pop()
        return {"start": "soon"}

    def run(self, seconds: float, beside: Coroutine[Any, Any, None] | None = None) -> None:
        """Let the reporter run for so long, with something else beside it."""

        async def both() -> None:
            tasks = [self.loop.create_task(self.reporter.run())]
            if beside is not None:
                tasks.append(self.loop.create_task(beside))
            await asyncio.sleep(seconds)
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

        self.loop.run_until_complete(both())


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[InstantLoop]:
    made = InstantLoop()
    monkeypatch.setattr(reporting, "time", SimpleNamespace(monotonic=made.time))
    monkeypatch.setattr(reporting, "clock", SimpleNamespace(now_s=made.time))
    yield made
    made.close()


def test_reasons_reach_200_pods_a_second_and_no_more_than_the_limit(loop: InstantLoop) -> None:
    pods, seconds = 3000, 10
    queue = Queue(loop, pods)
    queue.run(reporting.AFTER_S + seconds)

    assert LEAST_PER_S * seconds <= len(queue.server.said) == queue.server.writes <= MOST_PER_S * (seconds + 1)
    queue.run(pods / LEAST_PER_S)
    assert len(queue.server.said) == queue.server.writes == queue.server.events == pods


def test_reasons_that_change_all_the_time_are_coalesced(loop: InstantLoop) -> None:
    """The limit holds while all reasons change 50 times a second, and the last one arrives."""
    pods, seconds = 200, 60
    queue = Queue(loop, pods)

    async def change() -> None:
        while True:
            queue.steps += 1
            queue.code = ReasonCode.HELD if queue.steps % 2 else ReasonCode.DEVICES_BUSY
            await asyncio.sleep(0.02)

    queue.run(seconds, change())
    assert queue.server.writes <= MOST_PER_S * (seconds + 1)
    queue.code = ReasonCode.NO_MATCHING_NODE
    queue.steps += 1
    queue.run(2 * pods / LEAST_PER_S + reporting.EVERY_S)
    last = {each[-1][1].partition(":")[0] for each in queue.server.said.values()}
    assert (len(queue.server.said), last) == (pods, {ReasonCode.NO_MATCHING_NODE.value})


def test_forecast_that_fails_is_made_later(loop: InstantLoop) -> None:
    queue = Queue(loop, 1)
    queue.failures = [RotaError("the database can't be read now"), Unavailable("the worker process ended")]

    async def course() -> None:
        working = loop.create_task(queue.reporter.forecast_starts())
        await asyncio.sleep(4 * reporting.FORESEE_AGAIN_S)
        assert not working.done()
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working

    loop.run_until_complete(course())
    assert [text for _, text in queue.server.said["p0"]][:1] == ['{"start": "soon"}']
