"""What drivers answer: started, failed to start, stopped, ended, interrupted, another speed."""

from __future__ import annotations

import math

import pytest

from builders import Script, World, job, on, start, stop
from rota.core.engine.draft import Draft
from rota.core.errors import InvariantBroken, PlanRefused, RotaError
from rota.core.messages.decisions import Cause
from rota.core.messages.events import End, JobCancelled, JobEnded, JobHeld, SpeedChanged, TimerFired
from rota.core.model.job import Elastic, JobId
from rota.core.model.placement import Placement


def test_gang_starts_whole_or_not_at_all() -> None:
    world = World(gpus=2, nodes=2).running("x", at=on("n1", 1))

    assert world.submit("four", workers=4) == []
    assert world.ended("x") == [start("four", on("n1", 2, tasks=2), on("n2", 2, tasks=2))]


def test_books_of_a_run() -> None:
    world = World(gpus=2)
    world.submit("a", gpus=2, work=100.0)
    world.pass_s(5.0)
    world.started("a", rate=2.0)
    world.pass_s(10.0)
    live = world.live("a")

    assert live.first_start_s == 5.0
    assert live.attained_gpu_s(15.0) == 20.0
    assert live.run_s(15.0) == 10.0
    assert live.waited_s(15.0) == 5.0
    assert live.work_done(15.0) == 20.0
    assert live.remaining_s(15.0) == 40.0
    assert live.progress_rate == 2.0


def test_restart_does_no_work_at_first_but_holds_its_devices() -> None:
    world = World(gpus=1, policy="priority", nominal_rate=2.0).running("a", work=100.0)
    world.pass_s(10.0)
    world.settle(world.submit("high", priority=5))
    world.pass_s(10.0)
    world.ended("high")
    assert world.live("a").remaining_s(20.0) == 45.0
    world.started("a", work_from_s=27.0)
    live = world.live("a")

    assert live.work_done(25.0) == 10.0
    assert live.remaining_s(25.0) == 2.0 + 90.0
    assert live.remaining_s(30.0) == 87.0
    assert live.work_done(30.0) == 13.0
    assert live.attained_gpu_s(30.0) == 10.0 + 10.0
    assert live.overhead_s == 7.0
    assert live.preemptions == 1


def test_job_of_unknown_length_has_its_users_estimate_left() -> None:
    world = World(gpus=2).running("a", estimate_s=50.0).running("b")
    world.pass_s(20.0)

    assert world.live("a").remaining_s(20.0) == 30.0
    assert world.live("a").remaining_s(80.0) == 0.0
    assert world.live("b").remaining_s(20.0) == math.inf


def test_job_of_speed_nought_never_ends() -> None:
    world = World(gpus=1)
    world.submit("a", work=10.0)
    world.started("a", rate=0.0)

    assert world.live("a").remaining_s(0.0) == math.inf
    world.step(SpeedChanged(JobId("a"), 0.0, 0.0))
    assert world.live("a").progress_rate == 0.0


def test_other_speed_counts_from_now_on() -> None:
    world = World(gpus=1).running("a", work=100.0)
    world.pass_s(10.0)
    world.step(SpeedChanged(JobId("a"), 10.0, 0.5))
    world.pass_s(10.0)

    assert world.live("a").work_done(20.0) == 15.0
    assert world.live("a").attained_gpu_s(20.0) == 20.0


def test_speed_of_a_job_that_does_not_run_is_ignored() -> None:
    world = World(gpus=1).running("x")
    world.submit("a", work=10.0)

    world.step(SpeedChanged(JobId("a"), 5.0, 0.5))

    assert world.live("a").work == 0.0


def test_speed_of_a_job_that_is_being_stopped_still_counts() -> None:
    world = World(gpus=1).running("a", work=100.0)
    world.cancel("a")
    world.pass_s(10.0)

    world.step(SpeedChanged(JobId("a"), 10.0, 3.0))

    assert world.live("a").rate == 3.0


def test_failed_start_is_tried_again_elsewhere_in_the_queue() -> None:
    world = World(gpus=1)
    world.submit("a")

    assert world.start_failed("a") == [start("a", on("n1", 1))]
    assert world.live("a").restarts == 1


def test_start_that_fails_too_often_fails_the_job() -> None:
    world = World(gpus=1)
    world.submit("a", max_restarts=1)

    assert world.start_failed("a") == [start("a", on("n1", 1))]
    assert world.start_failed("a") == []
    assert world.states() == {"a": "failed"}


@pytest.mark.parametrize(("limit", "faults", "state"), [(0, 1, "failed"), (2, 2, "starting"), (2, 3, "failed")])
def test_job_may_restart_as_often_as_it_says(limit: int, faults: int, state: str) -> None:
    world = World(gpus=1)
    world.submit("a", max_restarts=limit)
    for _ in range(faults):
        world.started("a")
        world.interrupted("a")

    assert world.states() == {"a": state}


@pytest.mark.parametrize("answer", ["interrupted", "start_failed"])
def test_cancelled_job_whose_run_breaks_off_is_cancelled(answer: str) -> None:
    world = World(gpus=1)
    world.submit("a")
    world.cancel("a")

    getattr(world, answer)("a")

    assert world.states() == {"a": "cancelled"}


def test_job_over_its_limit_whose_run_breaks_off_has_failed() -> None:
    world = World(gpus=1)
    world.settle(world.submit("a", time_limit_s=5.0))
    world.timer(5.0)

    world.interrupted("a")

    assert world.states() == {"a": "failed"}


def test_preempted_job_whose_run_breaks_off_waits_again() -> None:
    world = World(gpus=1, policy="priority").running("a")
    world.submit("high", priority=5)

    assert world.interrupted("a") == [start("high", on("n1", 1))]
    assert world.states() == {"a": "waiting", "high": "starting"}
    assert world.live("a").preemptions == 0


def test_job_that_is_being_moved_and_breaks_off_waits_again() -> None:
    world = World(gpus=4, nodes=2, policy="priority")
    world.running("x", gpus=2, at=on("n1", 2)).running("y", gpus=2, at=on("n2", 2))
    assert world.submit("big", gpus=4, priority=5) == [stop("y", Cause.MOVED)]

    decisions = world.interrupted("y")

    assert decisions == [start("big", on("n2", 4)), start("y", on("n1", [2, 3]))]


def test_stop_of_a_job_that_had_not_started_yet_is_no_preemption() -> None:
    world = World(gpus=1, policy="priority")
    world.submit("a")
    assert world.submit("high", priority=5) == [stop("a")]

    assert world.stopped("a") == [start("high", on("n1", 1))]
    assert world.live("a").preemptions == 0
    assert world.live("a").first_start_s is None


def test_ended_job_frees_its_devices_for_several() -> None:
    world = World(gpus=2).running("x", gpus=2)
    world.submit("a")
    world.submit("b")

    assert world.ended("x") == [start("a", on("n1", 1)), start("b", on("n1", [1]))]


@pytest.mark.parametrize("answer", ["started", "stopped", "ended"])
def test_answer_that_makes_no_sense_is_a_bug(answer: str) -> None:
    world = World(gpus=1).running("x").running("y", gpus=0, cpu_milli=1)
    world.ended("y")

    with pytest.raises(InvariantBroken):
        getattr(world, answer)("y")


def test_two_ends_are_a_bug() -> None:
    world = World(gpus=1).running("x")
    world.ended("x")

    with pytest.raises(InvariantBroken, match="job x: JobEnded is not expected while it is succeeded"):
        world.step(JobEnded(JobId("x"), End.SUCCEEDED, 0.0))


# -- plans that are refused ----------------------------------------------------------------------

Act = tuple[str, Placement]


@pytest.mark.parametrize(
    ("acts", "message"),
    [
        ([("new", on("n1", 1))], "job new: 1 tasks of role 'worker' are placed; the gang needs 2"),
        ([("new", on("n1", 2, tasks=2) + on("n1", [3]))], "3 tasks of role 'worker'"),
        ([("new", on("n1", 1, tasks=2))], "2 tasks of role 'worker' hold 1000 thousandths"),
        ([("new", on("n1", 2, tasks=2))], "the devices of its placement are not free"),
        ([("new", on("n1", [1, 2], tasks=2)), ("new", on("n1", [1, 2], tasks=2))], "holds devices already"),
        ([("old", on("n1", [1]))], "job old: it holds devices already"),
        ([("gone", on("n1", [1]))], "job gone: it can't be placed, it is succeeded"),
        ([("new", on("n1", [1], tasks=2, milli=500))], "hold 1000 thousandths"),
    ],
)
def test_wrong_plan_changes_nothing(acts: list[Act], message: str) -> None:
    script = Script()
    world = World(gpus=4, policy=script).running("old", at=on("n1", 1)).running("gone", at=on("n1", [1]))
    world.ended("gone")
    world.submit("new", workers=2)

    def plan(draft: Draft) -> None:
        for name, placement in acts:
            draft.assign(world.live(name), placement)

    script.todo, script.wakeup_s = [plan], 0.0
    with pytest.raises(PlanRefused, match=message):
        world.step(TimerFired())
    assert world.live("new").placement is None
    assert world.live("old").placement == on("n1", 1)


def test_parts_of_two_devices_in_one_slot_are_refused() -> None:
    script = Script()
    world = World(gpus=4, policy=script)
    world.submit("a", gpus=0.5, workers=2)
    script.todo = [lambda draft: draft.assign(world.live("a"), on("n1", 2, tasks=2, milli=500))]
    script.wakeup_s = 0.0

    with pytest.raises(PlanRefused, match="not free"):
        world.step(TimerFired())


def test_nothing_can_be_taken_from_one_who_holds_nothing() -> None:
    script = Script()
    world = World(gpus=1, policy=script)
    world.submit("a")
    script.todo, script.wakeup_s = [lambda draft: draft.release(world.live("a"))], 0.0

    with pytest.raises(PlanRefused, match="holds nothing"):
        world.step(TimerFired())


def test_elastic_placement_may_be_of_any_size_within_bounds() -> None:
    script = Script()
    world = World(gpus=4, policy=script)
    world.submit("a", workers=2, elastic=Elastic(min_tasks=2, max_tasks=3))
    script.todo, script.wakeup_s = [lambda draft: draft.assign(world.live("a"), on("n1", 3, tasks=3))], 0.0

    assert world.step(TimerFired()) == [start("a", on("n1", 3, tasks=3))]


def test_draft_can_be_taken_back() -> None:
    script = Script()
    world = World(gpus=4, policy=script).running("old", gpus=2)
    world.submit("new", gpus=4)

    def plan(draft: Draft) -> None:
        mark = draft.mark()
        draft.release(world.live("old"))
        draft.assign(world.live("new"), on("n1", 4))
        draft.undo(mark)

    script.todo, script.wakeup_s = [plan], 0.0

    assert world.step(TimerFired()) == []
    assert world.live("old").placement == on("n1", 2)


def test_policy_hears_of_every_change() -> None:
    script = Script()
    world = World(gpus=1, policy=script)
    world.submit("a")
    script.todo, script.wakeup_s = [lambda draft: draft.assign(world.live("a"), on("n1", 1))], 0.0
    world.step(TimerFired())
    world.started("a")
    world.ended("a")

    heard = [
        ([live.job.id for live in changes.arrived], [live.job.id for live in changes.started], changes.freed)
        for changes in script.heard
    ]
    assert heard == [(["a"], [], False), ([], ["a"], False), ([], [], True)]
    assert [live.job.id for live in script.heard[2].left] == ["a"]


def test_fork_goes_on_under_another_policy() -> None:
    world = World(gpus=1, policy="fifo").running("x")
    world.submit("big", gpus=1, work=100.0, time_limit_s=50.0)
    world.settle(world.ended("x"))
    script = Script()

    twin = world.engine.fork(script)

    assert twin.wakeup_s == world.engine.wakeup_s == 50.0
    assert twin.step(50.0, [TimerFired()]) == [stop("big", Cause.TIME_LIMIT)]
    assert world.states()["big"] == "running"


def test_job_helper_reads_role_fields() -> None:
    assert job("a", gpus=2, workers=3, cpu_milli=5).roles[0].cpu_milli == 5


# -- failures in the middle ----------------------------------------------------------------------


def test_senseless_event_alone_changes_nothing() -> None:
    world = World(gpus=1).running("x")

    with pytest.raises(RotaError, match="no job 'ghost'"):
        world.step(JobCancelled(JobId("ghost")))
    assert world.ended("x") == []


def test_engine_that_failed_in_the_middle_refuses_to_go_on() -> None:
    world = World(gpus=1).running("x")

    with pytest.raises(RotaError, match="no job 'ghost'"):
        world.step(JobHeld(JobId("x")), JobCancelled(JobId("ghost")))
    with pytest.raises(InvariantBroken, match="failed in an earlier step"):
        world.step(TimerFired())


def test_refused_plan_ends_the_engine() -> None:
    script = Script()
    world = World(gpus=1, policy=script)
    world.submit("a")
    script.todo, script.wakeup_s = [lambda draft: draft.release(world.live("a"))], 0.0

    with pytest.raises(PlanRefused, match="holds nothing"):
        world.step()
    with pytest.raises(InvariantBroken, match="failed in an earlier step"):
        world.step()


def test_job_that_was_started_twice_at_one_moment_is_stopped_once_at_its_limit() -> None:
    world = World(gpus=1)
    world.submit("a", work=100.0, time_limit_s=20.0)
    world.started("a")
    world.interrupted("a")
    world.started("a")

    assert world.timer(20.0) == [stop("a", Cause.TIME_LIMIT)]
