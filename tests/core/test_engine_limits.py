"""Time limits: a run that takes too long is stopped for good, whatever the hour."""

from __future__ import annotations

import math

import pytest

from builders import World, on, start, stop
from rota.core.messages.decisions import Cause


@pytest.mark.parametrize("epoch_s", [0.0, 1e7 + 1 / 3, 1.7e9 + 0.1], ids=["zero", "months", "unix"])
@pytest.mark.parametrize("limit_s", [0.1, 7.3, 3600.1, 86_400 / 7])
def test_run_is_stopped_at_its_limit(epoch_s: float, limit_s: float) -> None:
    world = World(gpus=1).pass_s(epoch_s)
    world.settle(world.submit("a", time_limit_s=limit_s))

    assert world.engine.wakeup_s == pytest.approx(epoch_s + limit_s)
    assert world.timer(world.engine.wakeup_s) == [stop("a", Cause.TIME_LIMIT)]
    assert world.stopped("a") == []
    assert world.states() == {"a": "failed"}


def test_limit_is_on_all_runs_together() -> None:
    world = World(gpus=1, policy="priority")
    world.settle(world.submit("a", time_limit_s=10.0))
    world.pass_s(4.0)
    world.settle(world.submit("high", priority=5))
    world.pass_s(1.0)
    world.settle(world.ended("high"))

    assert world.live("a").state.value == "running"
    assert world.engine.wakeup_s == 11.0
    assert world.timer(10.0) == []
    assert world.timer(11.0) == [stop("a", Cause.TIME_LIMIT)]


def test_job_that_ended_in_time_leaves_no_timer() -> None:
    world = World(gpus=1)
    world.settle(world.submit("a", time_limit_s=100.0))
    world.pass_s(5.0)

    world.ended("a")

    assert world.engine.wakeup_s == math.inf


def test_devices_of_a_run_over_its_limit_go_to_the_next_job() -> None:
    world = World(gpus=1)
    world.settle(world.submit("a", time_limit_s=5.0))
    world.submit("b")

    assert world.timer(5.0) == [stop("a", Cause.TIME_LIMIT)]
    assert world.stopped("a") == [start("b", on("n1", 1))]
