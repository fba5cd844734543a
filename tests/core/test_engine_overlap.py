"""A job that has done its work leaves its devices to the next one, and what it has of the host only when it ends."""

from __future__ import annotations

import json
from typing import Any

from builders import GIB, Script, World, cluster, node, on, start, stop
from rota.core.codec import snapshot
from rota.core.engine.invariants import check
from rota.core.messages.decisions import Cause
from rota.core.messages.events import SpeedChanged, WorkDone
from rota.core.model.job import JobId, JobState
from rota.core.model.placement import suspended_claim
from rota.core.state.phases import Phase

A = JobId("a")
BOX = cluster(node("n1", 2, memory_bytes=8 * GIB))


def saving(**fields: Any) -> World:
    """Job `a` ran for ten seconds on both devices and saves; `b` waits for one of them."""
    world = World(of=BOX, policy="liquid")
    world.settle(world.submit("a", workers=2, memory_bytes=2 * GIB, work=10.0, **fields))
    world.submit("b", memory_bytes=4 * GIB)
    world.pass_s(10.0)
    return world


def test_successor_starts_while_its_predecessor_saves() -> None:
    world = saving()

    assert world.step(WorkDone(A, 10.0)) == [start("b", on("n1", 1))]
    assert world.states() == {"a": "running", "b": "starting"}
    assert world.live("a").placement == suspended_claim(on("n1", 2, tasks=2))


def test_host_resources_and_time_count_until_the_end_devices_only_until_the_work_is_done() -> None:
    world = saving()
    world.settle(world.step(WorkDone(A, 10.0)))

    assert world.submit("c", memory_bytes=2 * GIB) == []
    world.pass_s(5.0)
    assert world.live("a").attained_gpu_s(world.now_s) == 20.0
    assert world.live("a").run_s(world.now_s) == 15.0
    assert world.ended("a") == [start("c", on("n1", [1]))]
    assert world.live("a").state is JobState.SUCCEEDED


def test_one_that_saves_can_be_cancelled_or_interrupted() -> None:
    world = saving()
    world.settle(world.step(WorkDone(A, 10.0)))

    assert world.cancel("a") == [stop("a", Cause.CANCELLED)]
    world.stopped("a")
    assert world.states()["a"] == "cancelled"

    world = saving()
    world.settle(world.step(WorkDone(A, 10.0)))
    world.interrupted("a", work=3.0)
    assert world.live("a").phase is Phase.WAITING


def test_an_exclusive_job_and_one_under_orders_keep_their_devices() -> None:
    world = saving(exclusive=True)
    assert world.step(WorkDone(A, 10.0)) == []

    world = saving()
    world.cancel("a")
    assert world.step(WorkDone(A, 10.0)) == []
    assert world.stopped("a") == [start("b", on("n1", 1))]


def test_work_is_done_only_once_and_never_after_the_end() -> None:
    world = saving()
    world.settle(world.step(WorkDone(A, 10.0)))
    assert world.step(WorkDone(A, 10.0)) == []
    world.ended("a")
    assert world.step(WorkDone(A, 10.0)) == []


def test_one_that_saves_is_found_again_after_a_restart() -> None:
    world = saving()
    world.settle(world.step(WorkDone(A, 10.0)))
    taken = snapshot.take(world.state)
    jobs = tuple(json.loads(json.dumps(job)) for job in taken.jobs)
    restored = snapshot.restore(BOX, snapshot.Snapshot(now_s=taken.now_s, seq=taken.seq, jobs=jobs))

    check(restored)
    assert restored.live(A).phase is Phase.SAVING
    assert restored.live(A).placement == suspended_claim(on("n1", 2, tasks=2))


def test_policies_do_not_take_a_job_that_only_saves_for_a_slow_one() -> None:
    script = Script()
    world = World(gpus=1, policy=script).running("a", work=10.0)
    world.pass_s(10.0)

    world.step(SpeedChanged(A, 10.0, 0.0))
    assert script.heard == []
    assert world.live("a").remaining_s(world.now_s) == 0.0
    world.step(SpeedChanged(A, 9.0, 0.0))
    assert [changes.started for changes in script.heard] == [[world.live("a")]]
