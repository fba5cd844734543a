"""Suspending, resuming and moving jobs: what is held meanwhile, what is ordered, and that nothing is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from builders import GIB, Script, World, cluster, job, node, on, start, stop
from rota.core.codec import snapshot
from rota.core.engine.draft import Draft
from rota.core.engine.invariants import check
from rota.core.engine.protocols import Capabilities
from rota.core.errors import PlanRefused
from rota.core.messages.decisions import Cause, Decision, Move, Resize, Resume, Suspend
from rota.core.model.job import JobId, JobState
from rota.core.model.placement import in_turn, suspended_claim

A, B = JobId("a"), JobId("b")


class Suspending(Script):
    """A script that looks after suspended jobs."""

    capabilities = Capabilities(suspends=True)


def plan(world: World, script: Script, *acts: Callable[[Draft], None]) -> list[Decision]:
    script.todo, script.wakeup_s = list(acts), world.now_s
    return world.timer()


def two_on_one_device() -> tuple[World, Script]:
    """Job `a` runs on the only device, job `b` waits."""
    script = Suspending()
    world = World(gpus=1, policy=script)
    world.running("a", work=100.0)
    world.submit("b", work=100.0)
    return world, script


def turn_over(world: World, script: Script, old: str, new: str) -> list[Decision]:
    """Suspend one job and let another have its device."""

    def act(draft: Draft) -> None:
        draft.suspend(world.live(old))
        other = world.live(new)
        if other.state is JobState.SUSPENDED:
            draft.resume(other)
        else:
            draft.assign(other, on("n1", 1))

    return plan(world, script, act)


def test_suspended_job_gives_its_device_away_when_it_has_answered() -> None:
    world, script = two_on_one_device()
    world.pass_s(10.0)

    assert turn_over(world, script, "a", "b") == [Suspend(A)]
    assert world.states() == {"a": "running", "b": "waiting"}
    world.pass_s(1.0)
    assert world.suspended("a") == [start("b", on("n1", 1))]
    world.started("b")

    assert world.states() == {"a": "suspended", "b": "running"}
    assert world.live("a").work == 11.0
    assert world.state.inventory.free == 0


def test_two_jobs_take_turns_and_lose_nothing() -> None:
    world, script = two_on_one_device()
    world.pass_s(10.0)
    world.settle(turn_over(world, script, "a", "b"))
    world.pass_s(20.0)

    assert turn_over(world, script, "b", "a") == [Suspend(B)]
    assert world.suspended("b") == [Resume(A, on("n1", 1))]
    assert world.states() == {"a": "suspended", "b": "suspended"}
    world.resumed("a")
    world.pass_s(5.0)

    a, b = world.live("a"), world.live("b")
    assert (a.work_done(world.now_s), b.work_done(world.now_s)) == (15.0, 20.0)
    assert (a.run_s(world.now_s), a.suspensions, a.preemptions) == (15.0, 1, 0)
    assert a.attained_gpu_s(world.now_s) == 15.0


def test_suspended_job_keeps_its_memory_on_the_host() -> None:
    script = Suspending()
    world = World(of=cluster(node("n1", 2, memory_bytes=10 * GIB)), policy=script)
    world.running("a", memory_bytes=6 * GIB)
    world.settle(plan(world, script, lambda draft: draft.suspend(world.live("a"))))
    assert world.state.inventory.free == 2

    world.submit("b", memory_bytes=6 * GIB)
    with pytest.raises(PlanRefused, match="not free"):
        plan(world, script, lambda draft: draft.assign(world.live("b"), on("n1", 1)))


def test_suspended_job_can_be_cancelled_even_while_it_waits_for_its_device() -> None:
    world, script = two_on_one_device()
    world.settle(turn_over(world, script, "a", "b"))
    turn_over(world, script, "b", "a")

    assert world.cancel("a") == [stop("a", Cause.CANCELLED)]
    assert world.suspended("b") == []
    world.stopped("a")

    assert world.states() == {"a": "cancelled", "b": "suspended"}
    assert world.state.inventory.free == 1


def test_reservation_of_a_suspended_job_can_be_taken_back() -> None:
    world, script = two_on_one_device()
    world.settle(turn_over(world, script, "a", "b"))
    turn_over(world, script, "b", "a")

    assert plan(world, script, lambda draft: draft.suspend(world.live("a"))) == []
    assert world.suspended("b") == []
    assert world.live("a").placement == suspended_claim(on("n1", 1))
    assert world.state.reserved == {}


def test_suspended_job_that_is_stopped_waits_with_all_its_work() -> None:
    world, script = two_on_one_device()
    world.pass_s(7.0)
    world.settle(turn_over(world, script, "a", "b"))

    assert plan(world, script, lambda draft: draft.release(world.live("a"))) == [stop("a")]
    world.stopped("a")

    assert world.states()["a"] == "waiting"
    assert (world.live("a").work, world.live("a").suspended_on) == (7.0, None)


def test_suspended_job_whose_node_fails_contends_again() -> None:
    world, script = two_on_one_device()
    world.settle(turn_over(world, script, "a", "b"))

    world.interrupted("a", work=0.0)

    assert world.states()["a"] == "waiting"
    assert script.heard[-1].arrived == [world.live("a")]


def test_policy_that_knows_nothing_of_suspended_jobs_gets_them_back_in_line() -> None:
    world, script = two_on_one_device()
    world.pass_s(3.0)
    world.settle(turn_over(world, script, "a", "b"))

    assert world.submit("c", policy="fifo") == [stop("a")]
    world.stopped("a")
    assert world.ended("b") == [start("a", on("n1", 1))]
    assert world.live("a").work == 3.0


def test_suspended_jobs_survive_a_snapshot() -> None:
    world, script = two_on_one_device()
    world.pass_s(3.0)
    world.settle(turn_over(world, script, "a", "b"))
    turn_over(world, script, "b", "a")

    again = snapshot.restore(world.cluster, snapshot.take(world.state))

    check(again)
    a = again.live(A)
    assert (a.state, a.work, a.suspended_on, a.placement) == (
        JobState.SUSPENDED,
        3.0,
        on("n1", 1),
        suspended_claim(on("n1", 1)),
    )


def test_time_limit_counts_only_the_time_in_which_a_job_runs() -> None:
    script = Suspending()
    world = World(gpus=1, policy=script)
    world.running("a", work=100.0, time_limit_s=30.0)
    world.submit("b", work=100.0)
    world.pass_s(20.0)
    world.settle(turn_over(world, script, "a", "b"))
    world.pass_s(100.0)
    world.settle(turn_over(world, script, "b", "a"))

    assert world.engine.wakeup_s == world.now_s + 10.0
    assert world.pass_s(10.0).timer() == [stop("a", Cause.TIME_LIMIT)]


@pytest.mark.parametrize("exclusive", [True, False])
def test_only_running_jobs_that_share_their_nodes_can_be_suspended(exclusive: bool) -> None:
    script = Suspending()
    world = World(gpus=2, policy=script)
    world.submit("a", exclusive=exclusive)
    plan(world, script, lambda draft: draft.assign(world.live("a"), on("n1", 1)))
    if exclusive:
        world.started("a")

    with pytest.raises(PlanRefused, match="can't be suspended"):
        plan(world, script, lambda draft: draft.suspend(world.live("a")))


def test_job_moves_with_its_work() -> None:
    script = Suspending()
    world = World(gpus=2, nodes=2, policy=script)
    world.running("a", work=100.0, at=on("n1", 1))
    world.pass_s(10.0)

    assert plan(world, script, lambda draft: draft.move(world.live("a"), on("n2", 1))) == [Move(A, on("n2", 1))]
    assert world.state.inventory.free == 3
    world.moved("a", rate=2.0)
    world.pass_s(5.0)

    a = world.live("a")
    assert (a.work_done(world.now_s), a.moves, a.preemptions) == (20.0, 1, 0)


def test_job_that_moves_to_devices_which_are_not_vacated_is_stopped_first() -> None:
    script = Suspending()
    world = World(gpus=1, nodes=2, policy=script)
    world.running("a", at=on("n1", 1)).running("b", at=on("n2", 1))

    def act(draft: Draft) -> None:
        draft.suspend(world.live("b"))
        draft.move(world.live("a"), on("n2", 1))

    assert plan(world, script, act) == [Suspend(B), stop("a", Cause.MOVED)]
    world.stopped("a")
    assert world.suspended("b") == [start("a", on("n2", 1))]


def test_suspended_job_can_go_on_elsewhere() -> None:
    script = Suspending()
    world = World(gpus=1, nodes=2, policy=script)
    world.running("a", work=50.0, at=on("n1", 1))
    world.submit("b")
    world.pass_s(4.0)
    world.settle(turn_over(world, script, "a", "b"))

    assert plan(world, script, lambda draft: draft.move(world.live("a"), on("n2", 1))) == [Move(A, on("n2", 1))]
    world.moved("a")

    assert world.states() == {"a": "running", "b": "running"}
    assert (world.live("a").work, world.live("a").suspended_on) == (4.0, None)


def test_another_part_of_the_same_device_is_a_resize_and_no_restart() -> None:
    script = Suspending()
    world = World(gpus=1, policy=script).running("a", work=100.0)
    world.submit("b", work=100.0)
    parts = {name: in_turn(on("n1", 1), milli) for name, milli in (("a", 700), ("b", 300))}

    def act(draft: Draft) -> None:
        draft.share(world.live("a"), parts["a"])
        draft.assign(world.live("b"), parts["b"])

    assert plan(world, script, act) == [Resize(A, parts["a"]), start("b", parts["b"])]
    world.resized("a", rate=0.7)
    world.started("b", rate=0.3)
    world.pass_s(10.0)

    assert world.live("a").work_done(world.now_s) == 7.0
    assert world.live("a").attained_gpu_s(world.now_s) == 7.0


def test_no_more_of_a_device_can_be_shared_out_than_there_is() -> None:
    script = Suspending()
    world = World(gpus=1, policy=script)
    world.running("a", at=in_turn(on("n1", 1), 600)).running("b", at=in_turn(on("n1", 1), 400))

    with pytest.raises(PlanRefused, match="not free"):
        plan(world, script, lambda draft: draft.share(world.live("a"), in_turn(on("n1", 1), 601)))


def test_memory_of_a_device_is_never_shared_out_twice() -> None:
    script = Suspending()
    world = World(of=cluster(node("n1", 1, device_memory_bytes=16 * GIB)), policy=script)
    world.running("a", job=job("a", device_memory_bytes=10 * GIB), at=in_turn(on("n1", 1), 500))
    world.submit("b", job=job("b", device_memory_bytes=7 * GIB))

    with pytest.raises(PlanRefused, match="not free"):
        plan(world, script, lambda draft: draft.assign(world.live("b"), in_turn(on("n1", 1), 500)))


def test_job_without_devices_is_moved_and_not_suspended() -> None:
    script = Suspending()
    world = World(gpus=1, nodes=2, policy=script)
    world.running("a", gpus=0, at=on("n1", 0))

    def act(draft: Draft) -> None:
        draft.release(world.live("a"))
        draft.assign(world.live("a"), on("n2", 0))

    assert plan(world, script, act) == [stop("a", Cause.MOVED)]
