"""What users do to jobs: submit, cancel, hold, release, and make one wait for another."""

from __future__ import annotations

import pytest

from builders import World, job, on, start, stop
from rota.core.messages.decisions import Cause
from rota.core.messages.events import End, JobArrived, JobCancelled, JobHeld, JobReleased, Stopped
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import JobId


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


# -- cancel in every state -----------------------------------------------------------------------


def test_waiting_job_is_cancelled_at_once() -> None:
    world = World(gpus=1).running("x")
    world.submit("a")

    assert world.cancel("a") == []
    assert world.states() == {"x": "running", "a": "cancelled"}
    assert world.ended("x") == []


def test_held_job_is_cancelled_at_once() -> None:
    world = World(gpus=1)
    world.submit("a", held=True)

    assert world.cancel("a") == []
    assert world.states() == {"a": "cancelled"}


def test_starting_job_is_stopped_and_then_cancelled() -> None:
    world = World(gpus=1)
    world.submit("a")

    assert world.cancel("a") == [stop("a", Cause.CANCELLED)]
    assert world.started("a") == []
    assert world.stopped("a") == []
    assert world.states() == {"a": "cancelled"}


def test_running_job_is_stopped_and_its_devices_go_to_the_next() -> None:
    world = World(gpus=1).running("a")
    world.submit("b")
    world.pass_s(10.0)

    assert world.cancel("a") == [stop("a", Cause.CANCELLED)]
    assert world.cancel("a") == []
    assert world.code("b") is ReasonCode.VACATING
    assert world.stopped("a") == [start("b", on("n1", 1))]
    assert world.states() == {"a": "cancelled", "b": "starting"}
    assert world.live("a").attained_gpu_s(world.now_s) == 10.0


def test_job_that_is_being_preempted_is_cancelled_when_it_has_stopped() -> None:
    world = World(gpus=1, policy="priority").running("a")
    world.submit("high", priority=5)

    assert world.cancel("a") == []
    assert world.stopped("a") == [start("high", on("n1", 1))]
    assert world.states() == {"a": "cancelled", "high": "starting"}


def test_job_that_is_being_moved_gives_up_what_it_was_to_have() -> None:
    world = World(gpus=4, nodes=2, policy="priority")
    world.running("x", gpus=2, at=on("n1", 2)).running("y", gpus=2, at=on("n2", 2))
    world.submit("big", gpus=4, priority=5)

    world.cancel("y")

    assert world.submit("z", gpus=2) == [start("z", on("n1", [2, 3]))]
    assert world.stopped("y") == [start("big", on("n2", 4))]
    assert world.states()["y"] == "cancelled"


def test_reserved_job_that_is_cancelled_leaves_its_reservation_to_the_next() -> None:
    world = World(gpus=1, policy="priority").running("low")
    world.submit("high", priority=5)
    world.submit("next", priority=3)

    assert world.cancel("high") == []
    assert list(world.state.reserved) == ["next"]
    assert world.stopped("low") == [start("next", on("n1", 1))]


@pytest.mark.parametrize("end", list(End))
def test_cancelling_what_has_ended_changes_nothing(end: End) -> None:
    world = World(gpus=1).running("a")
    world.ended("a", end=end)
    before = world.states()

    assert world.cancel("a") == []
    assert world.states() == before == {"a": end.value}


def test_job_that_ends_before_it_is_stopped_has_ended() -> None:
    world = World(gpus=1).running("a")
    world.cancel("a")

    world.ended("a")

    assert world.states() == {"a": "succeeded"}


# -- hold and release ----------------------------------------------------------------------------


def test_held_job_waits_until_it_is_released() -> None:
    world = World(gpus=1)

    assert world.submit("a", held=True) == []
    world.pass_s(5.0)
    assert world.release("a") == [start("a", on("n1", 1))]


def test_holding_a_running_job_and_releasing_a_free_one_change_nothing() -> None:
    world = World(gpus=1).running("a")
    world.submit("b")

    assert world.hold("a") == []
    assert world.release("b") == []
    assert world.states() == {"a": "running", "b": "waiting"}


def test_held_reservation_goes_to_the_next() -> None:
    world = World(gpus=1, policy="priority").running("low")
    world.submit("high", priority=5)

    assert world.hold("high") == []
    assert world.states()["high"] == "held"
    assert world.stopped("low") == [start("low", on("n1", 1))]


# -- dependencies --------------------------------------------------------------------------------


def test_dependant_starts_when_all_that_it_needs_has_succeeded() -> None:
    world = World(gpus=4).running("x").running("y")
    needs = (JobId("x"), JobId("y"), JobId("x"))

    assert world.submit("a", depends_on=needs) == []
    assert world.ended("x") == []
    assert world.ended("y") == [start("a", on("n1", 1))]


def test_dependency_that_was_met_before_counts() -> None:
    world = World(gpus=1).running("x")
    world.ended("x")

    assert world.submit("a", depends_on=(JobId("x"),)) == [start("a", on("n1", 1))]


@pytest.mark.parametrize("end", [End.FAILED, End.CANCELLED])
def test_dependants_are_cancelled_with_what_did_not_succeed(end: End) -> None:
    world = World(gpus=4).running("x").running("y")
    world.submit("a", depends_on=(JobId("x"), JobId("y")))
    world.submit("b", depends_on=(JobId("a"),), held=True)

    world.ended("x", end=end)

    assert world.states() == {"x": end.value, "y": "running", "a": "cancelled", "b": "cancelled"}
    world.ended("y")
    assert world.states()["a"] == "cancelled"


def test_dependant_of_what_has_failed_already_is_cancelled_as_it_comes() -> None:
    world = World(gpus=1).running("x")
    world.ended("x", end=End.FAILED)

    assert world.submit("a", depends_on=(JobId("x"),)) == []
    assert world.states()["a"] == "cancelled"


def test_held_dependant_waits_for_its_release_once_its_dependency_is_met() -> None:
    world = World(gpus=1).running("x")
    world.submit("a", depends_on=(JobId("x"),), held=True)

    assert world.ended("x") == []
    assert world.release("a") == [start("a", on("n1", 1))]


def test_released_dependant_still_waits_for_its_dependency() -> None:
    world = World(gpus=2).running("x")
    world.submit("a", depends_on=(JobId("x"),), held=True)

    assert world.release("a") == []
    assert world.code("a") is ReasonCode.DEPENDENCY
    assert world.ended("x") == [start("a", on("n1", 1))]


# -- several events at one moment ----------------------------------------------------------------


def test_job_that_comes_and_goes_at_one_moment_does_not_start() -> None:
    world = World(gpus=1)

    assert world.step(JobArrived(job("a")), JobCancelled(JobId("a"))) == []
    assert world.states() == {"a": "cancelled"}


def test_job_that_is_held_and_released_at_one_moment_starts_once() -> None:
    world = World(gpus=1)
    a = JobId("a")

    assert world.step(JobArrived(job("a")), JobHeld(a), JobReleased(a)) == [start("a", on("n1", 1))]


def test_waiting_job_held_and_released_at_one_moment_stays_in_the_queue() -> None:
    world = World(gpus=1, policy="fifo").running("x")
    world.submit("a")
    world.step(JobHeld(JobId("a")), JobReleased(JobId("a")))

    assert world.ended("x") == [start("a", on("n1", 1))]


def test_job_cancelled_at_the_moment_at_which_it_is_preempted_is_gone() -> None:
    world = World(gpus=1, policy="priority").running("a")
    world.submit("high", priority=5)

    decisions = world.step(Stopped(JobId("a"), 3.0), JobCancelled(JobId("a")))

    assert decisions == [start("high", on("n1", 1))]
    assert world.states() == {"a": "cancelled", "high": "starting"}


def test_dependency_may_come_in_the_same_step() -> None:
    world = World(gpus=4)

    decisions = world.step(JobArrived(job("x")), JobArrived(job("a", depends_on=(JobId("x"),))))

    assert decisions == [start("x", on("n1", 1))]
