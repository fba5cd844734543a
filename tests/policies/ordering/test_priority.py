"""Priorities, and how waiting raises them."""

from __future__ import annotations

import math

import pytest

from builders import World, on, start, stop
from rota.core.errors import RotaError
from rota.policies import find_policy


def test_higher_priority_displaces_lower() -> None:
    world = World(gpus=1, policy="priority").running("low")

    assert world.submit("high", priority=1) == [stop("low")]


def test_equal_priority_does_not_displace() -> None:
    world = World(gpus=1, policy="priority").running("first", priority=1)

    assert world.submit("second", priority=1) == []


def test_waiting_jobs_go_by_priority_then_by_submission() -> None:
    world = World(gpus=1, policy="priority").running("x", priority=9)
    for name, priority in (("a", 0), ("b", 2), ("c", 2), ("d", -1)):
        world.submit(name, priority=priority)

    order = []
    running = "x"
    while decisions := world.settle(world.ended(running)):
        running = str(decisions[0].job_id)
        order.append(running)
    assert order == ["b", "c", "a", "d"]


def test_waiting_raises_the_priority_by_a_step_at_a_time() -> None:
    """Two an hour: after 30 min `old` has 1 and passes `young`'s 0 only, after 60 min 2 and passes the 1 of `x`."""
    world = World(gpus=1, policy="priority:aging=2").running("x", priority=1)
    assert world.submit("old") == []

    assert world.engine.wakeup_s == 1800.0
    assert world.timer(1800.0) == []
    assert world.engine.wakeup_s == 3600.0
    assert world.timer(3600.0) == [stop("x")]
    assert world.stopped("x") == [start("old", on("n1", 1))]


def test_jobs_do_not_take_each_others_place_at_one_moment() -> None:
    """`b` displaces `a` after a step; `a` must wait for two steps more than `b` had, not for an instant."""
    world = World(gpus=1, policy="priority:aging=360")
    world.settle(world.submit("a"))
    world.submit("b")
    swaps = []
    while world.engine.wakeup_s <= 100.0:
        decisions = world.settle(world.timer(world.engine.wakeup_s))
        if decisions:
            swaps.append((world.now_s, str(decisions[0].job_id)))

    assert swaps == [(10.0, "a"), (30.0, "b"), (50.0, "a"), (70.0, "b"), (90.0, "a")]


def test_without_ageing_there_is_nothing_to_wait_for() -> None:
    world = World(gpus=1, policy="priority").running("x", priority=1)
    world.submit("a")

    assert world.engine.wakeup_s == math.inf


@pytest.mark.parametrize("aging", ["-1", "x"])
def test_wrong_ageing_is_refused(aging: str) -> None:
    declared, _ = find_policy("priority")

    with pytest.raises(RotaError, match="aging is"):
        declared.read(f"aging={aging}")
