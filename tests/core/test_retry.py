from __future__ import annotations

from builders import World, on, start
from rota.core.events import Interrupted
from rota.core.model import JobId
from rota.core.reasons import ReasonCode


def test_failed_job_waits_before_it_is_tried_again() -> None:
    world = World(gpus=4).running("flaky", gpus=4)

    at_once = world.step(Interrupted(JobId("flaky"), 0.0, retry_s=10.0))

    assert at_once == []
    assert world.code("flaky") is ReasonCode.RETRY
    assert world.engine.wakeup_s == 10.0
    assert world.timer(10.0) == [start("flaky", on("n1", 4))]


def test_devices_are_for_others_while_a_job_waits_to_be_tried_again() -> None:
    world = World(gpus=4).running("flaky", gpus=4)

    world.step(Interrupted(JobId("flaky"), 0.0, retry_s=10.0))

    assert world.submit("other", gpus=4) == [start("other", on("n1", 4))]


def test_job_that_waits_to_be_tried_again_can_be_cancelled() -> None:
    world = World(gpus=4).running("flaky", gpus=4)
    world.step(Interrupted(JobId("flaky"), 0.0, retry_s=10.0))

    world.cancel("flaky")

    assert world.states() == {"flaky": "cancelled"}
    assert world.timer(10.0) == []


def test_fork_keeps_the_time_of_the_next_try() -> None:
    world = World(gpus=4).running("flaky", gpus=4)
    world.step(Interrupted(JobId("flaky"), 0.0, retry_s=10.0))

    assert world.engine.fork(world.engine._policy).wakeup_s == 10.0
