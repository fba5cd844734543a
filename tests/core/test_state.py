"""The state and its fork: nothing is forgotten, nothing is shared that still changes."""

from __future__ import annotations

import pytest

from builders import World, on
from rota.core.engine.invariants import check
from rota.core.errors import InvariantBroken, RotaError
from rota.core.messages.events import NodeLost
from rota.core.model.job import Elastic, JobId, NodeId
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State

FIELDS = [name for name in dir(LiveJob) if not name.startswith("_")]


def facts(state: State) -> dict[str, dict[str, object]]:
    """Every plain field of every job."""
    return {
        name: {key: value for key in FIELDS if not callable(value := getattr(live, key))}
        for name, live in state.jobs.items()
    }


def busy_world() -> World:
    """One job in each situation: ended, running shrunken, being moved, reserved, waiting, held, dependent."""
    world = World(gpus=4, nodes=2, policy="priority")
    world.running("done").ended("done")
    world.running("small", workers=3, elastic=Elastic(min_tasks=1, max_tasks=3), at=on("n1", 2, tasks=2))
    world.running("moves", gpus=2, at=on("n2", 2)).pass_s(10.0)
    world.submit("big", gpus=4, priority=5)
    world.submit("waits", gpus=2)
    world.submit("held", held=True)
    world.submit("later", depends_on=(JobId("waits"),), time_limit_s=10.0)
    return world


def test_fork_knows_all_that_the_state_knows() -> None:
    state = busy_world().state
    twin = state.fork()

    check(twin)
    assert facts(twin) == facts(state)
    for name in ("seq", "now_s", "free_device_s", "fragmented_device_s"):
        assert getattr(twin, name) == getattr(state, name)
    assert list(twin.reserved) == list(state.reserved) == ["moves", "big"]
    assert [(name, held) for name, (_, held) in twin.vacating.items()] == [("moves", on("n2", 2))]
    assert {name: [live.job.id for live in lives] for name, lives in twin.dependents.items()} == {"waits": ["later"]}


def test_fork_goes_its_own_way() -> None:
    world = busy_world()
    before = facts(world.state)
    fork = world.state.fork()
    for live in fork.jobs.values():
        if live.placement is not None:
            fork.give_up_claim(live)
    fork.inventory.set_up(0, False)

    assert facts(world.state) == before
    check(world.state)


def test_time_does_not_run_backwards() -> None:
    world = World(gpus=1).pass_s(10.0)
    world.timer()

    with pytest.raises(InvariantBroken, match="time goes backwards"):
        world.timer(5.0)
    world.now_s = 10.0


def test_idle_and_fragmented_devices_are_added_up() -> None:
    """Two nodes of 4. For 10 s all 8 are free; then 3 are beside a job for 5 s, and 4 on the empty node."""
    world = World(gpus=4, nodes=2).pass_s(10.0)
    world.settle(world.submit("a"))
    world.pass_s(5.0)
    world.timer()

    assert world.state.free_device_s == 8 * 10.0 + 7 * 5.0
    assert world.state.fragmented_device_s == 3 * 5.0


def test_lost_devices_are_not_idle() -> None:
    world = World(gpus=4, nodes=2)
    world.step(NodeLost(NodeId("n1")))
    world.pass_s(10.0)
    world.timer()

    assert world.state.free_device_s == 40.0


def test_unknown_and_repeated_names_are_refused() -> None:
    world = World(gpus=1)
    world.submit("a")

    with pytest.raises(RotaError, match="there is no job 'b'"):
        world.cancel("b")
    with pytest.raises(RotaError, match="there is a job 'a' already"):
        world.submit("a")
    with pytest.raises(RotaError, match="job b: it depends on 'c', which is not known"):
        world.submit("b", depends_on=(JobId("c"),))
    assert world.states() == {"a": "starting"}
