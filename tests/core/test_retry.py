from __future__ import annotations

from dataclasses import replace

import pytest

from builders import GIB, World, cluster, job, node, on, start
from rota.core.codec.values import decode_event, encode_event
from rota.core.errors import InvariantBroken
from rota.core.messages.events import Interrupted
from rota.core.messages.reasons import ReasonCode
from rota.core.model.job import Job, JobId
from rota.core.state.state import State


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


HUNGRY = job("hungry", gpus=1, memory_bytes=GIB)
HUNGRIER = job("hungry", gpus=1, memory_bytes=4 * GIB)


def test_interrupted_job_asks_for_more_memory_from_then_on() -> None:
    nodes = cluster(node("n1", 4, memory_bytes=2 * GIB), node("n2", 4, memory_bytes=8 * GIB))
    world = World(of=nodes).running("hungry", job=HUNGRY, at=on("n1", 1))

    world.step(Interrupted(JobId("hungry"), 0.0, retry_s=10.0, job=HUNGRIER))

    assert world.timer(10.0) == [start("hungry", on("n2", 1))]
    assert world.live("hungry").job == HUNGRIER


def test_job_that_was_cancelled_meanwhile_does_not_ask_for_more() -> None:
    world = World(gpus=4).running("hungry", job=HUNGRY)
    world.cancel("hungry")

    world.step(Interrupted(JobId("hungry"), 0.0, retry_s=10.0, job=HUNGRIER))

    assert world.states() == {"hungry": "cancelled"}
    assert world.live("hungry").job == HUNGRY


@pytest.mark.parametrize(
    "other", [job("hungry", gpus=2, memory_bytes=GIB), replace(HUNGRIER, user="eve")], ids=["devices", "user"]
)
def test_job_never_becomes_that_of_another_or_of_another_size(other: Job) -> None:
    state = State(cluster(node("n1", 4)))
    live = state.admit(HUNGRY, 1.0)

    with pytest.raises(InvariantBroken, match="its request stays"):
        state.replace_request(live, other)


def test_journal_keeps_what_is_asked_for_anew() -> None:
    event = Interrupted(JobId("hungry"), 2.0, 10.0, HUNGRIER)

    assert decode_event(encode_event(event)) == event
    assert "job" not in encode_event(Interrupted(JobId("hungry"), 2.0))
