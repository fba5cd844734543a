"""The loop that keeps a guaranteed job's speed, on a simulated clock and a GPU whose interference is known."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rota.core.model.job import JobId
from rota.drivers.local.gpu.telemetry import GpuHolder
from rota.live.gpus import speed_bound
from rota.live.gpus.speed_bound import PROBE_S, SpeedBounds

FIRM, GUEST = JobId("1"), JobId("2")


class Plant:
    """Two packed jobs: the guaranteed one loses a part of its speed while the other runs."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, factor: float, *, reports: bool = True, noise: float = 0.0
    ) -> None:
        self.rng, self.noise = random.Random(1), noise
        self.now_s = 1000.0
        self.runs = True
        self.is_loading = False
        self.burst_s = self.queued_s = 0.0
        self.tick_s = 1.0
        self.factor = factor
        self.steps = self.guest_s = 0.0
        self.busy = 0.0
        self.reported = (self.now_s, 0.0)
        self.guests = [GUEST]
        priorities = {FIRM: 0, GUEST: -1}
        jobs = {name: SimpleNamespace(job=SimpleNamespace(priority=each)) for name, each in priorities.items()}
        control: Any = SimpleNamespace(state=SimpleNamespace(jobs=jobs))
        monitor: Any = SimpleNamespace(holders=self.holders)
        monkeypatch.setattr(speed_bound, "clock", SimpleNamespace(now_s=lambda: self.now_s))
        monkeypatch.setattr(speed_bound, "step_done", lambda home, job: self.reported if reports else None)
        monkeypatch.setattr(speed_bound, "asyncio", SimpleNamespace(sleep=self.sleep))
        self.bounds = SpeedBounds(control, monitor, Path(), 0.95, self, self.busy_of)

    def holders(self) -> dict[int, list[GpuHolder]]:
        return {0: [_holder(name) for name in (FIRM, *self.guests)]}

    def ran_s(self, job_id: JobId) -> float:
        raise NotImplementedError

    def loads(self, job_id: JobId) -> bool:
        return self.is_loading

    def let_run(self, job_id: JobId, until_s: float | None) -> None:
        assert job_id == GUEST
        self.runs = until_s is None

    def busy_of(self, index: int) -> dict[JobId, float]:
        gained, self.busy = self.busy, 0.0
        return {FIRM: gained}

    async def sleep(self, seconds: float) -> None:
        left_s = seconds
        while left_s > 0:
            self.pass_time(min(left_s, self.tick_s))
            left_s -= self.tick_s

    def pass_time(self, seconds: float) -> None:
        runs = self.runs and bool(self.guests) and not self.is_loading
        if runs:
            self.queued_s = self.burst_s
        elif self.queued_s > 0:  # what it has queued goes on
            self.queued_s, runs = self.queued_s - seconds, True
        speed = self.rng.gauss(100.0, 100.0 * self.noise) * (1 - self.factor * runs)
        self.now_s += seconds
        self.steps += speed * seconds
        self.busy += speed * seconds
        self.guest_s += seconds * self.runs
        if int(self.now_s) > int(self.reported[0]):
            self.reported = (self.now_s, self.steps)

    def run(self, seconds: float) -> tuple[float, float]:
        """The speed of the guaranteed job alone and the time of the other that they got, as parts."""
        before, guest, until_s, begun_s = self.steps, self.guest_s, self.now_s + seconds, self.now_s

        async def course() -> None:
            while self.now_s < until_s:
                await self.bounds.period()

        asyncio.run(course())
        passed_s = self.now_s - begun_s
        return (self.steps - before) / passed_s / 100.0, (self.guest_s - guest) / passed_s


def _holder(name: JobId) -> GpuHolder:
    return GpuHolder(job_id=name, user="ada", attempt=1, milli=500, alone=False)


@pytest.mark.parametrize(("factor", "least", "most"), [(0.46, 0.05, 0.11), (0.1, 0.25, 0.5), (0.0, 0.9, 1.0)])
@pytest.mark.parametrize("reports", [True, False], ids=["steps", "activity"])
def test_the_guaranteed_job_keeps_its_speed_and_the_other_gets_the_rest(
    monkeypatch: pytest.MonkeyPatch, factor: float, least: float, most: float, reports: bool
) -> None:
    plant = Plant(monkeypatch, factor, reports=reports)
    plant.run(40.0)

    kept, got = plant.run(60.0)

    assert kept >= 0.95
    assert least <= got <= most


def test_a_speed_that_varies_by_itself_does_not_starve_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that take 10% more or less than usual, beside a job that costs nothing."""
    plant = Plant(monkeypatch, 0.0, noise=0.1)
    plant.run(60.0)

    assert plant.run(240.0)[1] > 0.7  # a tenth of the time measures the speed alone


def test_kernels_that_the_other_has_queued_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever it runs, it keeps the GPU for another tenth of a second."""
    plant = Plant(monkeypatch, 0.48)
    plant.burst_s = 0.1
    plant.tick_s = 0.01
    plant.run(60.0)

    kept, got = plant.run(120.0)

    assert kept >= 0.95
    assert got > 0.02


def test_a_job_that_loads_is_not_paused_and_its_time_counts_as_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    plant = Plant(monkeypatch, 0.5)
    plant.is_loading = True

    kept, got = plant.run(10.0)

    assert (kept, got) == pytest.approx((1.0, 1.0))
    assert plant.bounds.pairs == {}
    plant.is_loading = False
    plant.run(40.0)
    assert plant.run(60.0)[0] >= 0.95


def test_the_other_job_stands_still_while_the_speed_alone_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    plant = Plant(monkeypatch, 0.5)

    kept, got = plant.run(PROBE_S - 0.5)

    assert kept > 0.99
    assert got == 0.0


def test_what_is_paused_goes_on_when_the_guaranteed_job_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    plant = Plant(monkeypatch, 0.5)
    plant.run(10.0)
    monkeypatch.setattr(plant.bounds._monitor, "holders", lambda: {0: [_holder(GUEST)]})

    assert plant.run(5.0)[1] > 0.99
    assert plant.bounds.pairs == {}
