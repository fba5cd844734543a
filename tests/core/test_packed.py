"""Two jobs on the same devices: what is claimed, what is ordered, what stays where it is."""

from __future__ import annotations

import pytest

from builders import Script, World, on, start, stop
from rota.core.check import check
from rota.core.decisions import Resize
from rota.core.errors import PlanRefused
from rota.core.model import JobId
from rota.core.placement import fault_in, packed
from rota.core.policy import Draft

HALF = 500


def plan(world: World, script: Script, *acts: object) -> list[object]:
    script.todo, script.wakeup_s = list(acts), world.now_s  # type: ignore[arg-type] # the test's own plans
    return list(world.timer())


def test_two_gangs_share_two_devices() -> None:
    script = Script()
    world = World(gpus=2, policy=script)
    world.submit("a", gpus=2)
    world.submit("b", gpus=2)
    shared = packed(on("n1", 2), HALF)

    def pack(draft: Draft) -> None:
        draft.assign(world.live("a"), shared)
        draft.assign(world.live("b"), shared)

    assert plan(world, script, pack) == [start("a", shared), start("b", shared)]
    world.started("a", "b")
    assert world.state.inventory.free == 0
    assert world.live("a").gpus == 1.0
    world.ended("a")
    world.ended("b")
    assert world.state.inventory.free == 2


def test_third_gang_finds_no_room_beside_two() -> None:
    script = Script()
    world = World(gpus=2, policy=script)
    for name in "abc":
        world.submit(name, gpus=2)
    shared = packed(on("n1", 2), HALF)

    def pack(draft: Draft) -> None:
        for name in "abc":
            draft.assign(world.live(name), shared)

    with pytest.raises(PlanRefused, match="not free"):
        plan(world, script, pack)


def test_newcomer_joins_without_the_other_moving() -> None:
    script = Script()
    world = World(gpus=2, policy=script)
    world.submit("a", gpus=2)
    world.submit("b", gpus=2)
    plan(world, script, lambda draft: draft.assign(world.live("a"), on("n1", 2)))
    world.started("a")
    world.pass_s(10.0)
    shared = packed(on("n1", 2), HALF)

    def join(draft: Draft) -> None:
        draft.release(world.live("a"))
        draft.assign(world.live("a"), shared)
        draft.assign(world.live("b"), shared)

    assert plan(world, script, join) == [Resize(JobId("a"), shared), start("b", shared)]
    world.resized("a")
    world.started("b")
    world.pass_s(10.0)
    assert world.live("a").attained_gpu_s(world.now_s) == 30.0

    def part(draft: Draft) -> None:
        draft.release(world.live("b"))
        draft.release(world.live("a"))
        draft.assign(world.live("a"), on("n1", 2))

    assert plan(world, script, part) == [stop("b"), Resize(JobId("a"), on("n1", 2))]
    world.stopped("b")
    check(world.state)


def test_packed_gang_must_be_whole() -> None:
    world = World(gpus=2)
    world.submit("a", gpus=2)

    assert fault_in(packed(on("n1", 2), HALF), world.live("a").job) is None
    assert fault_in(packed(on("n1", 1), HALF), world.live("a").job) is not None
