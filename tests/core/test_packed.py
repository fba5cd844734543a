"""Two jobs on the same devices: what is claimed, what is ordered, what stays where it is."""

from __future__ import annotations

import pytest

from builders import Script, World, on, start, stop
from rota.core.engine.draft import Draft
from rota.core.engine.invariants import check
from rota.core.errors import PlanRefused
from rota.core.messages.decisions import Resize
from rota.core.model.job import Elastic, JobId
from rota.core.model.placement import fault_in, packed

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


def test_one_of_two_is_moved_by_a_resize_while_the_other_takes_all() -> None:
    """Elastic jobs change places by a resize; until it is answered the one that leaves is still there."""
    script = Script()
    world = World(gpus=4, policy=script)
    for name in "ab":
        world.submit(name, workers=2, elastic=Elastic(min_tasks=1, max_tasks=2))
    shared, apart = packed(on("n1", 2, tasks=2), HALF), on("n1", [2, 3], tasks=2)

    def pack(draft: Draft) -> None:
        draft.assign(world.live("a"), shared)
        draft.assign(world.live("b"), shared)

    def part(draft: Draft) -> None:
        for name in "ab":
            draft.release(world.live(name))
        draft.assign(world.live("a"), on("n1", 2, tasks=2))
        draft.assign(world.live("b"), apart)

    plan(world, script, pack)
    world.started("a", "b")
    plan(world, script, part)
    check(world.state)
    world.resized("a")
    world.resized("b")
    assert world.live("b").placement == apart


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
