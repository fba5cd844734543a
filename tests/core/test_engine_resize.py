"""Elastic jobs: sizes other than the full one, and changing the size of a running job."""

from __future__ import annotations

from typing import Any

import pytest

from builders import Script, World, job, on, start, stop
from rota.core.engine.draft import Draft
from rota.core.messages.decisions import Cause, Decision, Resize
from rota.core.messages.events import Resized, TimerFired
from rota.core.model.job import Elastic, JobId
from rota.core.model.placement import Placement


def elastic(name: str, low: int, full: int) -> dict[str, Any]:
    return {"job": job(name, gpus=1, workers=full, elastic=Elastic(min_tasks=low, max_tasks=full), work=1e6)}


@pytest.mark.parametrize("way", ["ended", "preempted", "cancelled", "interrupted"])
def test_service_of_a_shrunken_job_counts_the_devices_that_it_had(way: str) -> None:
    world = World(gpus=2, policy="priority")
    world.settle(world.submit("e", **elastic("e", 1, 4)))
    assert world.live("e").placement == on("n1", 2, tasks=2)
    world.pass_s(100.0)

    match way:
        case "ended":
            world.ended("e")
        case "preempted":
            world.settle(world.submit("high", gpus=2, priority=9))
        case "cancelled":
            world.settle(world.cancel("e"))
        case _:
            world.interrupted("e")

    assert world.live("e").attained_gpu_s(world.now_s) == 200.0


def resize(world: World, script: Script, name: str, placement: Placement) -> list[Decision]:
    live = world.live(name)

    def act(draft: Draft) -> None:
        draft.release(live)
        draft.assign(live, placement)

    script.todo.append(act)
    script.wakeup_s = world.now_s
    return world.step(TimerFired())


def test_resized_job_is_charged_for_each_size_while_it_had_it() -> None:
    script = Script()
    world = World(gpus=4, policy=script).running("e", **elastic("e", 1, 4), at=on("n1", 4, tasks=4))
    world.pass_s(10.0)

    assert resize(world, script, "e", on("n1", 2, tasks=2)) == [Resize(JobId("e"), on("n1", 2, tasks=2))]
    world.pass_s(5.0)
    assert world.live("e").attained_gpu_s(world.now_s) == 60.0
    world.resized("e", rate=0.5)
    world.pass_s(10.0)

    assert world.live("e").attained_gpu_s(world.now_s) == 80.0
    assert world.live("e").work_done(world.now_s) == 15.0 + 5.0


def test_job_that_keeps_nothing_when_it_is_resized_has_started_again() -> None:
    script = Script()
    world = World(gpus=4, policy=script).running("e", **elastic("e", 1, 4), at=on("n1", 4, tasks=4))
    world.pass_s(10.0)
    resize(world, script, "e", on("n1", 2, tasks=2))
    world.step(Resized(JobId("e"), 0.0, 0.5, world.now_s))

    live = world.live("e")
    assert (live.undone, live.lost_work, live.since_s) == (1, 10.0, world.now_s)
    world.pass_s(4.0)
    resize(world, script, "e", on("n1", 1, tasks=1))
    world.resized("e", rate=0.25)
    assert (live.undone, live.lost_work, live.work_done(world.now_s)) == (1, 10.0, 2.0)


def test_job_does_not_grow_onto_devices_that_others_have_not_left() -> None:
    script = Script()
    world = World(gpus=4, policy=script)
    world.running("low", gpus=2, at=on("n1", [2, 3])).running("e", **elastic("e", 1, 4), at=on("n1", 2, tasks=2))
    low, e = world.live("low"), world.live("e")

    def act(draft: Draft) -> None:
        draft.release(low)
        draft.release(e)
        draft.assign(e, on("n1", 4, tasks=4))

    script.todo.append(act)
    script.wakeup_s = world.now_s

    assert world.step(TimerFired()) == [stop("low"), stop("e", Cause.MOVED)]
    assert world.stopped("e") == []
    assert world.stopped("low") == [start("e", on("n1", 4, tasks=4))]


def test_answer_to_a_resize_that_comes_after_a_cancellation_is_ignored() -> None:
    script = Script()
    world = World(gpus=4, policy=script).running("e", **elastic("e", 1, 4), at=on("n1", 4, tasks=4))
    resize(world, script, "e", on("n1", 2, tasks=2))
    assert world.cancel("e") == [stop("e", Cause.CANCELLED)]

    assert world.resized("e") == []
    world.stopped("e")

    assert world.states() == {"e": "cancelled"}
    assert world.state.vacating == {}


def test_second_resize_before_the_first_is_answered_is_a_move() -> None:
    script = Script()
    world = World(gpus=4, policy=script).running("e", **elastic("e", 1, 4), at=on("n1", 4, tasks=4))
    resize(world, script, "e", on("n1", 2, tasks=2))

    assert resize(world, script, "e", on("n1", 3, tasks=3)) == [stop("e", Cause.MOVED)]
    assert world.stopped("e") == [start("e", on("n1", 3, tasks=3))]


def test_job_that_ends_while_it_is_resized_leaves_everything() -> None:
    script = Script()
    world = World(gpus=4, policy=script).running("e", **elastic("e", 1, 4), at=on("n1", 4, tasks=4))
    resize(world, script, "e", on("n1", 2, tasks=2))
    world.ended("e")

    assert world.state.vacating == {}
    assert world.state.inventory.free == 4
