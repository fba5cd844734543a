"""Supervisors to spare: the next start takes one, a dead one is passed over, and none outlives the server."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from local_drivers import Bench, until, with_driver
from rota.core.messages.events import End, JobEnded
from rota.drivers.local.prefork_pool import SPARES, IdleSupervisor
from rota.drivers.local.task_runner.processes import start_time

pytestmark = pytest.mark.slow


def spares(bench: Bench) -> list[IdleSupervisor]:
    return bench.driver._prefork._spare


async def run(bench: Bench, name: str) -> int:
    """Run a job to its good end; the process that was its supervisor."""
    bench.driver.start(bench.order("true", name=name))
    await until(lambda: bench.state(name=name).get("phase") == "ended" and bench.events(JobEnded))
    last = bench.events(JobEnded)[-1]
    assert isinstance(last, JobEnded)
    assert last.end is End.SUCCEEDED
    return int(bench.state(name=name)["supervisor"])


def test_the_next_start_takes_one_that_is_up(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        assert spares(bench) == []
        await run(bench, "1")
        await until(lambda: len(spares(bench)) == SPARES)
        first = spares(bench)[0].pid
        assert await run(bench, "2") == first
        await until(lambda: len(spares(bench)) == SPARES)

    with_driver(tmp_path, course)


def test_dead_ones_are_passed_over_and_none_is_left_in_the_end(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        await run(bench, "1")
        await until(lambda: len(spares(bench)) == SPARES)
        dead = [spare.pid for spare in spares(bench)]
        for pid in dead:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not any(map(start_time, dead)))
        assert await run(bench, "2") not in dead
        await until(lambda: len(spares(bench)) == SPARES)
        left = [spare.pid for spare in spares(bench)]
        bench.close()
        assert not any(map(start_time, left))

    with_driver(tmp_path, course)
