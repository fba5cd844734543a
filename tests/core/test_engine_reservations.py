"""Orders take time: devices that are being vacated, those who wait for them, and how that is called off."""

from __future__ import annotations

import pytest

from builders import World, cluster, node, on, start, stop
from rota.core.messages.decisions import Cause


def test_successor_starts_only_when_the_devices_are_vacated() -> None:
    world = World(gpus=4, policy="priority").running("low", gpus=4)

    assert world.submit("high", gpus=4, priority=5) == [stop("low")]
    assert world.states() == {"low": "running", "high": "waiting"}
    assert world.stopped("low") == [start("high", on("n1", 4))]
    assert world.states() == {"low": "waiting", "high": "starting"}


def test_reserved_job_that_must_yield_waits_again_and_has_its_turn() -> None:
    world = World(gpus=4, policy="priority").running("low", gpus=4)
    world.submit("middle", gpus=4, priority=5)

    assert world.submit("high", gpus=4, priority=9) == []
    assert list(world.state.reserved) == ["high"]
    assert world.stopped("low") == [start("high", on("n1", 4))]
    world.started("high")
    assert world.ended("high") == [start("middle", on("n1", 4))]


def move_in_progress() -> World:
    """`big` drives `y` from n2 to the rest of n1; nothing was answered yet."""
    world = World(gpus=4, nodes=2, policy="priority")
    world.running("x", gpus=2, at=on("n1", 2)).running("y", gpus=2, at=on("n2", 2))
    assert world.submit("big", gpus=4, priority=5) == [stop("y", Cause.MOVED)]
    assert world.live("y").placement == on("n1", [2, 3])
    assert world.live("big").placement == on("n2", 4)
    return world


def test_moved_job_starts_on_its_new_devices_once_it_has_stopped() -> None:
    world = move_in_progress()

    decisions = world.stopped("y")

    assert decisions == [start("y", on("n1", [2, 3])), start("big", on("n2", 4))]
    assert world.live("y").preemptions == 1


def test_job_that_is_being_moved_can_lose_the_devices_that_it_was_to_have() -> None:
    world = move_in_progress()

    decisions = world.submit("huge", gpus=4, priority=9)

    assert decisions == [stop("x")]
    assert world.live("y").placement is None
    assert world.live("huge").placement == on("n1", 4)
    assert world.stopped("y") == [start("big", on("n2", 4))]
    assert world.stopped("x") == [start("huge", on("n1", 4))]
    assert world.states() == {"x": "waiting", "y": "waiting", "big": "starting", "huge": "starting"}


@pytest.mark.parametrize(("cpus", "waits"), [(0, False), (1000, True)], ids=["devices alone", "CPUs"])
def test_devices_beside_a_leaver_are_clear_unless_cpus_are_at_stake(cpus: int, waits: bool) -> None:
    """`low` leaves devices 2 and 3 with its CPUs; who needs no CPUs may have 0 and 1 at once."""
    world = World(of=cluster(node("n1", 4, cpu_milli=4000)), policy="priority")
    world.running("low", gpus=2, cpu_milli=4000, at=on("n1", [2, 3]))
    world.cancel("low")

    decisions = world.submit("next", gpus=2, cpu_milli=cpus)

    assert decisions == ([] if waits else [start("next", on("n1", 2))])
    assert world.stopped("low") == ([start("next", on("n1", 2))] if waits else [])


def test_exclusive_job_waits_until_its_node_is_empty() -> None:
    world = World(gpus=4, policy="priority").running("low", gpus=2, at=on("n1", [2, 3]))
    world.cancel("low")

    assert world.submit("alone", gpus=2, exclusive=True) == []
    assert world.stopped("low") == [start("alone", on("n1", 2))]


def test_nobody_joins_an_exclusive_job_that_is_leaving() -> None:
    world = World(gpus=4, policy="priority").running("alone", gpus=1, exclusive=True, at=on("n1", [3]))
    world.cancel("alone")

    assert world.submit("next", gpus=2) == []
    assert world.stopped("alone") == [start("next", on("n1", 2))]


def test_part_of_a_device_that_another_part_leaves_waits_for_it() -> None:
    world = World(gpus=1, policy="priority").running("half", gpus=0.5)
    world.cancel("half")

    assert world.submit("next", gpus=0.5) == []
    assert world.stopped("half") == [start("next", on("n1", 1, milli=500))]
