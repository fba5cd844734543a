"""Arrays with a limit: at most so many of their jobs contend or run at once, whatever happens to them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from builders import World, job, on, start
from rota.core.codec import snapshot
from rota.core.engine.invariants import check
from rota.core.errors import InvariantBroken, RotaError
from rota.core.messages.events import End, Interrupted, JobEnded
from rota.core.messages.reasons import ReasonCode
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job, JobId
from rota.core.state.state import State

ARRAY = JobId("a0")


def submitted(world: World, count: int, limit: int = 2, **fields: Any) -> list[str]:
    """Submit the jobs a0, a1 and so on of an array; return those that started."""
    return [str(each.job_id) for number in range(count) for each in world.submit(job=of_array(number, limit, **fields))]


def of_array(number: int, limit: int = 2, **fields: Any) -> Job:
    return job(f"a{number}", array=ARRAY, array_limit=limit, **fields)


def restored(world: World, *, without: str = "") -> World:
    """A world restored from this one's snapshot; the record of one job is as it was before it had a turn."""
    taken = snapshot.take(world.state)
    jobs = tuple(json.loads(json.dumps(each)) for each in taken.jobs)
    for each in jobs:
        if each["job"]["id"] == without:
            del each["has_turn"]
    again = World(of=world.cluster)
    again.state = snapshot.restore(world.cluster, replace(taken, jobs=jobs))
    again.now_s = world.now_s
    check(again.state)
    return again


def test_at_most_so_many_start_and_the_next_when_one_ends() -> None:
    world = World(gpus=8)

    assert submitted(world, 5) == ["a0", "a1"]
    assert world.code("a3") is ReasonCode.ARRAY_LIMIT
    reason = world.engine.explain(JobId("a3"))
    assert reason is not None
    assert "at most 2 jobs of its array may run at once" in reason.sentence()
    world.started("a0", "a1")
    assert world.ended("a1") == [start("a2", on("n1", [1]))]
    assert world.states() == {"a0": "running", "a1": "succeeded", "a2": "starting", "a3": "waiting", "a4": "waiting"}


def test_other_jobs_run_beside_and_of_two_arrays_each_has_its_limit() -> None:
    world = World(gpus=8)
    submitted(world, 3, limit=1)

    assert [each.job_id for each in world.submit("other")] == ["other"]
    own = job("b0", array=JobId("b0"), array_limit=1)
    assert [each.job_id for each in world.submit(job=own)] == ["b0"]


def test_a_job_that_is_held_lets_another_run_and_queues_again() -> None:
    world = World(gpus=1)
    world.submit("first")
    submitted(world, 3, limit=1)

    world.hold("a0")
    world.release("a0")
    world.started("first")

    assert [each.job_id for each in world.ended("first")] == ["a1"]
    assert world.code("a0") is ReasonCode.ARRAY_LIMIT
    world.hold("a0")
    world.cancel("a2")
    world.started("a1")
    assert world.ended("a1") == [], "a0 is held"
    assert [each.job_id for each in world.release("a0")] == ["a0"]


def test_turns_follow_priority_then_submission() -> None:
    world = World(gpus=8)
    submitted(world, 3, limit=1)
    world.submit(job=of_array(3, 1, priority=5))
    world.started("a0")

    assert [each.job_id for each in world.ended("a0")] == ["a3"]
    world.started("a3")
    assert [each.job_id for each in world.ended("a3")] == ["a1"]


def test_a_turn_is_kept_through_preemption_and_pause() -> None:
    world = World(gpus=4, policy="priority")
    submitted(world, 2, limit=1, gpus=4)
    world.started("a0")
    world.submit("urgent", gpus=4, priority=9)
    world.stopped("a0")
    world.started("urgent")

    assert world.code("a1") is ReasonCode.ARRAY_LIMIT
    assert [each.job_id for each in world.ended("urgent")] == ["a0"]
    world.started("a0")
    world.step(Interrupted(JobId("a0"), 0.0, retry_s=world.now_s + 10.0))
    assert world.states() == {"a0": "waiting", "a1": "waiting", "urgent": "succeeded"}
    assert [each.job_id for each in world.timer(world.now_s + 10.0)] == ["a0"]


def test_a_job_with_dependencies_takes_no_turn_until_they_are_met() -> None:
    world = World(gpus=8)
    world.submit("needed")
    world.submit(job=of_array(0, 1, depends_on=(JobId("needed"),)))

    assert [each.job_id for each in world.submit(job=of_array(1, 1))] == ["a1"]
    world.started("needed", "a1")
    assert world.ended("needed") == []
    assert world.code("a0") is ReasonCode.ARRAY_LIMIT
    assert [each.job_id for each in world.ended("a1")] == ["a0"]


def test_a_pause_that_ends_after_a_hold_waits_for_a_turn() -> None:
    world = World(gpus=8)
    submitted(world, 2, limit=1)
    world.started("a0")
    world.step(Interrupted(JobId("a0"), 0.0, retry_s=10.0))

    assert [each.job_id for each in world.hold("a0")] == ["a1"]
    world.release("a0")
    world.timer(10.0)

    assert world.code("a0") is ReasonCode.ARRAY_LIMIT
    world.step(JobEnded(JobId("a0"), End.CANCELLED, 0.0))
    assert world.states()["a0"] == "cancelled"


def test_turns_survive_snapshot_and_fork() -> None:
    world = World(gpus=8)
    submitted(world, 4)
    world.started("a0", "a1")

    again = restored(world)
    fork = world.engine.fork(world.engine._policy)

    assert again.states() == world.states()
    assert [each.job_id for each in again.ended("a0")] == ["a2"]
    assert world.code("a2") is ReasonCode.ARRAY_LIMIT
    assert fork.explain(JobId("a3")) == world.engine.explain(JobId("a3"))


def test_a_record_that_lacks_a_new_turn_gets_it_when_it_is_restored() -> None:
    """The manager writes the jobs that a step names: not the one whose turn it became."""
    world = World(gpus=2)
    world.submit("other", gpus=2)
    submitted(world, 3, limit=1)
    world.cancel("a0")
    assert world.live("a1").has_turn

    again = restored(world, without="a1")

    assert (again.live("a1").has_turn, again.live("a2").has_turn) == (True, False)
    world.started("other")


def test_ten_thousand_jobs_of_an_array_leave_nothing_behind() -> None:
    state = State(Cluster.uniform(("gpu", 8, 8)))
    count = 10_000
    for number in range(count):
        state.admit(of_array(number, 3), 1.0)
    assert sum(live.has_turn for live in state.jobs.values()) == 3
    for number in range(count):
        live = state.live(JobId(f"a{number}"))
        assert live.has_turn
        following = state.turns.give_up(live)
        assert (following is None) == (number >= count - 3)
    assert state.turns.taken(ARRAY) == 0


def test_the_invariants_find_one_job_too_many() -> None:
    world = World(gpus=8)
    submitted(world, 3)
    world.live("a2").has_turn = True

    with pytest.raises(InvariantBroken, match="turn"):
        check(world.state)
    world.live("a2").has_turn = False


@pytest.mark.parametrize(
    ("array", "limit", "said"), [(ARRAY, 0, "at least 1"), (ARRAY, None, "both"), (None, 2, "both")]
)
def test_array_and_limit_belong_together(array: JobId | None, limit: int | None, said: str) -> None:
    with pytest.raises(RotaError, match=said):
        Job(id=JobId("j"), array=array, array_limit=limit)
