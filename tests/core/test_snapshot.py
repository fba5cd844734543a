from __future__ import annotations

import json

import pytest

from builders import World, on, start, stop
from rota.core.codec import snapshot
from rota.core.engine.invariants import check
from rota.core.errors import InvariantBroken
from rota.core.messages.decisions import Cause
from rota.core.messages.events import Interrupted
from rota.core.model.job import JobId, NodeId


def again(world: World) -> World:
    """A world restored from this one's snapshot, after a trip through JSON."""
    taken = snapshot.take(world.state)
    jobs = tuple(json.loads(json.dumps(job)) for job in taken.jobs)
    restored = World(of=world.cluster, policy="priority")
    restored.state = snapshot.restore(
        world.cluster,
        snapshot.Snapshot(now_s=taken.now_s, seq=taken.seq, jobs=jobs, drained=taken.drained, down=taken.down),
    )
    restored.now_s = world.now_s
    check(restored.state)
    return restored


def test_restored_state_goes_on_where_it_was() -> None:
    world = World(gpus=4, policy="priority").running("a", gpus=4)
    world.submit("b", gpus=2)

    restored = again(world)

    assert restored.states() == {"a": "running", "b": "waiting"}
    assert restored.ended("a") == [start("b", on("n1", 2))]


def test_job_on_its_way_out_stays_on_its_way_out() -> None:
    world = World(gpus=4, policy="priority").running("a", gpus=4)
    assert world.submit("urgent", gpus=4, priority=9) == [stop("a")]

    restored = again(world)
    restored.timer()

    assert restored.live("a").stopping is Cause.PREEMPTED
    assert restored.stopped("a") == [start("urgent", on("n1", 4))]


def test_dependencies_retries_limits_and_drains_survive() -> None:
    world = World(gpus=4, policy="priority").running("first", gpus=1, time_limit_s=100.0).running("flaky", gpus=1)
    world.submit("second", depends_on=(JobId("first"),))
    world.step(Interrupted(JobId("flaky"), 0.0, retry_s=50.0))
    world.state.inventory.set_drained(0, True)

    restored = again(world)

    assert restored.engine.wakeup_s == 50.0
    assert restored.state.seq == 3
    assert restored.state.inventory.nodes[0].drained
    assert restored.timer(100.0) == [stop("first", Cause.TIME_LIMIT)]
    restored.stopped("first")
    assert restored.states()["second"] == "cancelled"


def test_two_holders_of_one_device_are_refused() -> None:
    world = World(gpus=1).running("a", gpus=1)
    taken = snapshot.take(world.state)
    twin = {**taken.jobs[0], "job": {**taken.jobs[0]["job"], "id": "b"}, "seq": 1}

    with pytest.raises(InvariantBroken, match="job b: what it holds is held by another"):
        snapshot.restore(world.cluster, snapshot.Snapshot(now_s=0.0, jobs=(taken.jobs[0], twin)))


def test_only_what_has_ended_is_forgotten() -> None:
    world = World(gpus=1).running("a", gpus=1)
    with pytest.raises(InvariantBroken, match="has not ended"):
        world.state.forget(JobId("a"))
    world.ended("a")

    world.state.forget(JobId("a"))

    assert world.states() == {}
    assert NodeId("n1") in world.state.inventory.by_name
