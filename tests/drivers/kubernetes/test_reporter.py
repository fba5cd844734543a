"""The reporter of reasons: every waiting pod is told, and nothing is looked at while nothing happens."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from drivers.kubernetes.objects import pod_object
from rota.core.errors import Unavailable
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import JobId
from rota.drivers.kubernetes.api.client import Api
from rota.drivers.kubernetes.filters.world import FilterState
from rota.drivers.kubernetes.gangs.gang import Stage
from rota.drivers.kubernetes.gangs.gang_index import GangIndex
from rota.drivers.kubernetes.gangs.headroom import Headroom
from rota.drivers.kubernetes.gangs.occupancy import Occupancy
from rota.drivers.kubernetes.gangs.pod_places import PodPlaces
from rota.drivers.kubernetes.gangs.reporter import AGAIN_S, LOOKED_AT, Reporter
from rota.drivers.kubernetes.objects.gang_jobs import job_of
from rota.drivers.kubernetes.objects.pods import pod_of
from rota.drivers.kubernetes.settings import ClusterSettings
from rota.store import clock

USUAL = ClusterSettings()
PODS = 3


class Server:
    """An API server that keeps the conditions of pods, or does not answer."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        self.is_away = False

    async def patch(self, path: str, body: Any, kind: str) -> None:
        if self.is_away:
            raise Unavailable("nobody answers")
        self.told[path.split("/")[-2]] = body["status"]["conditions"][0]["message"]

    async def post(self, path: str, body: Any) -> None:
        if self.is_away:
            raise Unavailable("nobody answers")


class Waiting:
    """Jobs that wait, and the reporter of their reasons."""

    def __init__(self) -> None:
        self.server = Server()
        self.steps = 0
        self.code = ReasonCode.DEVICES_BUSY
        self.free = 0
        self.asked: Counter[JobId] = Counter()
        index = GangIndex(Occupancy(), PodPlaces(Headroom(), FilterState()))
        for number in range(PODS):
            index.see(pod_of(pod_object(f"p{number}"), USUAL))
        for gang in index.gangs:
            gang.job = job_of(gang, gang.waiting, USUAL, JobId(gang.waiting[0].name))
            gang.stage = Stage.WAITING
        self.reporter = Reporter(cast(Api, self.server), index, self._explain, self._foresee, steps=lambda: self.steps)
        self.now_s = clock.now_s() + 10

    def _explain(self, name: JobId) -> Reason:
        self.asked[name] += 1
        return Reason(code=self.code, need_milli=1000, free_milli=1000 * self.free)

    async def _foresee(self, name: JobId) -> None:
        return None

    def rounds(self, number: int = 3, later_s: float = 1.0) -> int:
        """Make rounds; return how often a reason was asked for."""
        before = self.asked.total()
        for _ in range(number):
            self.now_s += later_s
            asyncio.run(self.reporter.round(self.now_s))
        return self.asked.total() - before


def test_nothing_is_looked_at_while_nothing_happens() -> None:
    jobs = Waiting()
    assert jobs.rounds() >= PODS
    assert set(jobs.server.told) == {"p0", "p1", "p2"}
    assert jobs.rounds(10) == 0

    jobs.steps += 1
    assert jobs.rounds() == PODS
    assert jobs.rounds(10) == 0


def test_a_step_that_changes_a_reason_is_told() -> None:
    jobs = Waiting()
    jobs.rounds()
    jobs.steps, jobs.code = 1, ReasonCode.HELD
    jobs.rounds()
    assert all(ReasonCode.HELD.value in text for text in jobs.server.told.values())


def test_new_numbers_are_told_later_and_not_forgotten() -> None:
    jobs = Waiting()
    jobs.rounds()
    before = dict(jobs.server.told)
    jobs.steps, jobs.free = 1, 3
    jobs.rounds()
    assert jobs.server.told == before
    jobs.rounds(2, later_s=AGAIN_S)
    assert all(jobs.server.told[name] != text for name, text in before.items())
    assert jobs.rounds(5) == 0


def test_what_the_server_did_not_take_is_tried_again() -> None:
    jobs = Waiting()
    jobs.server.is_away = True
    with pytest.raises(Unavailable):
        jobs.rounds()
    jobs.server.is_away = False
    jobs.rounds()
    assert set(jobs.server.told) == {"p0", "p1", "p2"}


def test_all_gangs_come_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LOOKED_AT > 1
    monkeypatch.setattr("rota.drivers.kubernetes.gangs.reporter.LOOKED_AT", 1)
    jobs = Waiting()
    jobs.rounds(1)
    jobs.rounds(2 * PODS)
    jobs.steps += 1
    assert jobs.rounds(1) == 1
    assert jobs.rounds(PODS - 1) == PODS - 1
    assert jobs.rounds(5) == 0
