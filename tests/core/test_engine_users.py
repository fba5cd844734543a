"""What users do to jobs: submit, cancel, hold, release, and make one wait for another."""

from __future__ import annotations

from builders import World, on, start
from rota.core.reasons import Reason, ReasonCode


def test_submitted_job_starts_where_there_is_room() -> None:
    world = World(gpus=4)

    decisions = world.submit("a", gpus=2)

    assert decisions == [start("a", on("n1", 2))]
    assert world.states() == {"a": "starting"}


def test_cancelling_the_head_of_a_strict_queue_lets_the_next_start() -> None:
    world = World(gpus=4, policy="fifo").running("a", gpus=2)
    assert world.submit("big", gpus=4) == []
    assert world.submit("small", gpus=2) == []

    decisions = world.cancel("big")

    assert decisions == [start("small", on("n1", [2, 3]))]


def test_holding_the_head_of_a_strict_queue_lets_the_next_start() -> None:
    world = World(gpus=4, policy="fifo").running("a", gpus=2)
    world.submit("big", gpus=4)
    world.submit("small", gpus=2)

    decisions = world.hold("big")

    assert decisions == [start("small", on("n1", [2, 3]))]
    assert world.why("big") == Reason(code=ReasonCode.HELD)
