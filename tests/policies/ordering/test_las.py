"""Least attained service: queues by device-seconds, and the moment at which a job changes queue."""

from __future__ import annotations

import math

import pytest

from builders import World, job, on, start, stop
from rota.core.errors import RotaError
from rota.policies import find_policy


def test_starved_job_displaces_fed_one() -> None:
    world = World(gpus=4).running("fed", gpus=4, attained_gpu_s=7200.0)

    decisions = world.submit("starved", gpus=4, policy="las")

    assert decisions == [stop("fed")]
    assert world.stopped("fed") == [start("starved", on("n1", 4))]


@pytest.mark.parametrize("epoch_s", [0.0, 1.7e9 + 0.1], ids=["zero", "unix"])
def test_crossing_is_seen_at_any_hour_with_many_devices(epoch_s: float) -> None:
    """64 devices turn the rounding of a clock of 1.7e9 s into 1e-5 device-seconds."""
    world = World(gpus=64, policy="las:thresholds=1000.1/3333.3").pass_s(epoch_s)
    world.settle(world.submit(job=job("a", gpus=64, work=1e6)))
    crossings = 0

    while world.engine.wakeup_s < epoch_s + 1000:
        world.settle(world.timer(world.engine.wakeup_s))
        crossings += 1
        assert crossings < 10

    assert world.live("a").memo.queue == 2


def test_job_falls_a_queue_when_it_has_had_enough() -> None:
    """Two devices use up 100 device-seconds in 50 s; the fresh job that waits then goes first."""
    world = World(gpus=2, policy="las:thresholds=100/400")
    world.settle(world.submit("a", gpus=2))
    world.pass_s(10.0)
    assert world.submit("b", gpus=2) == []

    assert world.engine.wakeup_s == 50.0
    assert world.settle(world.timer(50.0)) == [stop("a"), start("b", on("n1", 2))]


def test_within_a_queue_who_runs_stays_and_who_entered_first_follows() -> None:
    """`b` falls to the second queue at 110 after `a` at 50; both wait there in that order behind `c`."""
    world = World(gpus=2, policy="las:thresholds=100/400")
    world.settle(world.submit("a", gpus=2))
    world.submit("b", gpus=2)
    world.settle(world.timer(50.0))
    world.submit("c", gpus=2)
    world.settle(world.timer(100.0))
    assert world.states() == {"a": "waiting", "b": "waiting", "c": "running"}

    assert world.ended("c") == [start("a", on("n1", 2))]


def test_past_the_last_threshold_there_is_no_timer() -> None:
    world = World(gpus=1, policy="las:thresholds=100").running("a", attained_gpu_s=100.0)
    world.settle(world.submit("b"))
    world.settle(world.timer())

    assert world.engine.wakeup_s == pytest.approx(100.0)
    world.settle(world.timer(world.engine.wakeup_s))
    world.settle(world.ended("b"))
    assert world.engine.wakeup_s == math.inf


@pytest.mark.parametrize("thresholds", ["0/5", "5/5", "7/5", "-1"])
def test_thresholds_must_rise(thresholds: str) -> None:
    for name in ("las", "gittins", "tiresias"):
        with pytest.raises(RotaError, match="they must increase, from above 0"):
            find_policy(name)[0].read(f"thresholds={thresholds}")
