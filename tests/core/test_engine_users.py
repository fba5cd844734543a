"""What users do to jobs: submit, cancel, hold, release, and make one wait for another."""

from __future__ import annotations

from builders import World, job, on, start
from rota.core.events import End, JobArrived
from rota.core.model import JobId
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


def test_job_held_from_the_start_is_cancelled_with_what_it_depends_on() -> None:
    world = World(gpus=1)
    world.settle(world.submit("first"))
    world.ended("first", end=End.FAILED)

    world.submit("second", held=True, depends_on=(JobId("first"),))

    assert world.states() == {"first": "failed", "second": "cancelled"}


def test_long_chain_of_dependants_is_cancelled_with_its_first() -> None:
    world = World(gpus=1)
    world.settle(world.submit("j0"))
    for number in range(1, 3000):
        world.engine.step(0.0, [JobArrived(job(f"j{number}", depends_on=(JobId(f"j{number - 1}"),)))])

    world.ended("j0", end=End.FAILED)

    assert set(world.states().values()) == {"failed", "cancelled"}
