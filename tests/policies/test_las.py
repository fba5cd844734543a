"""Least attained service: queues by device-seconds, and the moment at which a job changes queue."""

from __future__ import annotations

import pytest

from builders import World, job, on, start, stop


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
