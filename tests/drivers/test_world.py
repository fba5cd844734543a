"""The simulated world: work, speeds, restarts, checkpoints and neighbours, with times worked out by hand."""

from __future__ import annotations

import math

import pytest

from builders import cluster, job, node, on, start, stop
from rota.core.messages.decisions import Cause, Move, Resize, Resume, Suspend
from rota.core.messages.events import (
    End,
    Interrupted,
    JobEnded,
    Moved,
    NodeLost,
    Resized,
    Resumed,
    SpeedChanged,
    Started,
    Stopped,
    Suspended,
    WorkDone,
)
from rota.core.model.cluster import Cluster
from rota.core.model.job import Checkpoint, DeviceType, Elastic, Job, JobId, Level, NodeId
from rota.drivers.simulator.world import World
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import Costs, SpeedModel
from rota.traces.workload import Outcome, Submission

TWO = Cluster.uniform(("gpu", 4, 2))


def world(
    *jobs: Job,
    of: Cluster = TWO,
    speed: SpeedModel | None = None,
    move_s: float | None = None,
    overlaps: bool = False,
    **costs: float,
) -> World:
    made = World(of, speed or SpeedModel(), Costs(move_s=move_s, **costs), overlaps=overlaps)
    for asked in jobs:
        made.expect(Submission(job=asked, submit_s=0.0))
    return made


def lose(of: World, name: str, now_s: float) -> list[tuple[str, float]]:
    """Who is interrupted by a node's loss, and what they keep."""
    events = of.lose(NodeLost(NodeId(name)), now_s)
    assert all(isinstance(event, Interrupted) for event in events)
    return [(event.job_id, event.work) for event in events if isinstance(event, Interrupted)]


def test_job_ends_when_its_work_is_done() -> None:
    w = world(job("a", work=30.0))

    assert w.carry_out([start("a", on("n1", 1))], 5.0) == [Started(JobId("a"), 1.0, 5.0)]
    assert w.due_s == 35.0
    assert w.pop_due(35.0) == [JobEnded(JobId("a"), End.SUCCEEDED, 30.0)]
    assert w.due_s == math.inf


def test_job_ends_early_with_the_outcome_that_it_will_have() -> None:
    w = World(TWO, SpeedModel(), Costs())
    w.expect(Submission(job=job("a", work=100.0), submit_s=0.0, outcome=Outcome.FAILED, ends_at=0.25))
    w.carry_out([start("a", on("n1", 1))], 0.0)

    assert w.pop_due(w.due_s) == [JobEnded(JobId("a"), End.FAILED, 25.0)]


def test_stop_keeps_all_work_and_a_restart_costs_time() -> None:
    w = world(job("a", work=30.0), restart_s=7.0, checkpoint_interval_s=1000.0)
    w.carry_out([start("a", on("n1", 1))], 0.0)

    assert w.carry_out([stop("a")], 10.0) == [Stopped(JobId("a"), 10.0)]
    assert w.due_s == math.inf
    assert w.carry_out([start("a", on("n1", 1))], 20.0) == [Started(JobId("a"), 1.0, 27.0)]
    assert w.due_s == 20.0 + 7.0 + 20.0


def test_stop_during_the_restart_keeps_what_there_was() -> None:
    w = world(job("a", work=30.0), restart_s=7.0)
    w.carry_out([start("a", on("n1", 1))], 0.0)
    w.carry_out([stop("a")], 10.0)
    w.carry_out([start("a", on("n1", 1))], 20.0)

    assert w.carry_out([stop("a")], 25.0) == [Stopped(JobId("a"), 10.0)]


@pytest.mark.parametrize(
    ("interval_s", "lost_at_s", "kept"),
    [(0.0, 25.0, 25.0), (10.0, 25.0, 20.0), (10.0, 9.9, 0.0), (10.0, 20.0, 20.0), (math.inf, 25.0, 0.0)],
    ids=["none lost", "two intervals", "before the first", "at a checkpoint", "never saved"],
)
def test_fault_undoes_what_came_after_the_last_checkpoint(interval_s: float, lost_at_s: float, kept: float) -> None:
    w = world(job("a", work=100.0), checkpoint_interval_s=interval_s)
    w.carry_out([start("a", on("n1", 1))], 0.0)

    assert lose(w, "n1", lost_at_s) == [("a", kept)]


def test_job_says_itself_how_often_it_saves() -> None:
    w = world(job("a", work=100.0, checkpoint=Checkpoint(interval_s=4.0)), checkpoint_interval_s=50.0)
    w.carry_out([start("a", on("n1", 1))], 0.0)

    assert lose(w, "n1", 11.0) == [("a", 8.0)]


def test_intervals_of_a_second_run_count_from_when_it_works() -> None:
    """20 of work from before, 7 s of restart until 37; 13 s of work by 50, of which 10 are saved."""
    w = world(job("a", work=100.0), restart_s=7.0, checkpoint_interval_s=10.0)
    w.carry_out([start("a", on("n1", 1))], 0.0)
    w.carry_out([stop("a")], 20.0)
    w.carry_out([start("a", on("n1", 1))], 30.0)

    assert lose(w, "n1", 50.0) == [("a", 30.0)]


def test_fault_during_the_restart_keeps_what_there_was() -> None:
    w = world(job("a", work=100.0), restart_s=7.0, checkpoint_interval_s=10.0)
    w.carry_out([start("a", on("n1", 1))], 0.0)
    w.carry_out([stop("a")], 20.0)
    w.carry_out([start("a", on("n1", 1))], 30.0)

    assert lose(w, "n1", 35.0) == [("a", 20.0)]


def test_change_of_speed_saves_nothing() -> None:
    """Speed 1 until 14, then 1/2: the checkpoint at 10 has 10, the one at 20 has 14 + 3, by 25 none follows."""
    speed = SpeedModel(node_neighbour=0.5)
    w = world(job("a", work=100.0), job("b", work=100.0), speed=speed, checkpoint_interval_s=10.0)
    w.carry_out([start("a", on("n1", [0]))], 0.0)
    w.carry_out([start("b", on("n1", [1]))], 14.0)

    assert lose(w, "n1", 19.0) == [("a", 10.0), ("b", 0.0)]


def test_checkpoints_after_a_change_of_speed_keep_their_rhythm() -> None:
    speed = SpeedModel(node_neighbour=0.5)
    w = world(job("a", work=100.0), job("b", work=100.0), speed=speed, checkpoint_interval_s=10.0)
    w.carry_out([start("a", on("n1", [0]))], 0.0)
    w.carry_out([start("b", on("n1", [1]))], 14.0)

    assert lose(w, "n1", 25.0) == [("a", 14.0 + 6.0 * 0.5), ("b", 10.0 * 0.5)]


def test_only_jobs_on_the_lost_node_are_interrupted() -> None:
    w = world(job("a", work=100.0), job("b", work=100.0), job("c", work=100.0))
    w.carry_out([start("a", on("n1", 1)), start("b", on("n2", 1), on("n1", [1]))], 0.0)
    w.carry_out([start("c", on("n2", [1]))], 0.0)

    assert lose(w, "n1", 5.0) == [("a", 5.0), ("b", 5.0)]
    assert w.pop_due(w.due_s) == [JobEnded(JobId("c"), End.SUCCEEDED, 100.0)]


def test_spread_job_is_slower() -> None:
    w = world(job("a", workers=2, work=30.0), speed=SpeedModel(spread={Level.RACK: 0.75}))

    w.carry_out([start("a", on("n1", 1), on("n2", 1))], 0.0)

    assert w.due_s == 30.0 / 0.75


def test_neighbours_slow_each_other_while_they_are_together() -> None:
    """`a`: 10 s alone, then 1/2 beside `b`, which needs 20 of work at 1/2: 40 s; then alone for the other 10."""
    w = world(job("a", work=40.0), job("b", work=20.0), speed=SpeedModel(node_neighbour=0.5))
    w.carry_out([start("a", on("n1", [0]))], 0.0)

    assert w.carry_out([start("b", on("n1", [1]))], 10.0) == [
        Started(JobId("b"), 0.5, 10.0),
        SpeedChanged(JobId("a"), 10.0, 0.5),
    ]
    assert w.due_s == 50.0
    assert w.pop_due(50.0) == [JobEnded(JobId("b"), End.SUCCEEDED, 20.0)]
    assert w.adjust(50.0) == [SpeedChanged(JobId("a"), 30.0, 1.0)]
    assert w.due_s == 60.0


def test_neighbour_that_is_held_back_or_saves_its_state_is_in_the_way_less() -> None:
    w = world(job("a", work=40.0), job("b", work=20.0), speed=SpeedModel(node_neighbour=0.5), checkpoint_s=3.0)
    w.carry_out([start("a", on("n1", [0])), start("b", on("n1", [1]))], 0.0)

    # A quarter of its work costs the other an eighth.
    assert w.carry_out([Resize(JobId("b"), on("n1", [1], milli=125))], 0.0) == [
        Resized(JobId("b"), 0.0, 0.125, 0.0),
        SpeedChanged(JobId("a"), 0.0, 0.875),
    ]
    assert w.carry_out([stop("b")], 8.0) == [
        SpeedChanged(JobId("b"), 1.0, 0.0),
        SpeedChanged(JobId("a"), 7.0, 1.0),
    ]


def test_neighbour_on_the_device_counts_there_and_not_again_on_the_node() -> None:
    speed = SpeedModel(device_neighbour=0.5, node_neighbour=0.8)
    jobs = [job(name, gpus=gpus, work=100.0) for name, gpus in (("a", 0.5), ("b", 0.5), ("c", 1))]
    w = world(*jobs, speed=speed)

    answers = w.carry_out(
        [start("a", on("n1", 1, milli=500)), start("b", on("n1", 1, milli=500)), start("c", on("n1", [1]))], 0.0
    )

    assert answers == [
        Started(JobId("a"), 1.0, 0.0),
        Started(JobId("b"), 0.5, 0.0),
        Started(JobId("c"), 0.8**2, 0.0),
        SpeedChanged(JobId("a"), 0.0, 0.5 * 0.8),
        SpeedChanged(JobId("b"), 0.0, 0.5 * 0.8),
    ]


def test_neighbour_on_one_of_two_devices_counts_once() -> None:
    speed = SpeedModel(device_neighbour=0.5, node_neighbour=0.8)
    w = world(job("a", gpus=0.5, workers=2, work=100.0), job("b", gpus=0.5, work=100.0), speed=speed)
    w.carry_out([start("b", on("n1", [0], milli=500))], 0.0)

    answers = w.carry_out([start("a", on("n1", [0], milli=500), on("n1", [1], milli=500))], 0.0)

    assert answers == [Started(JobId("a"), 0.5, 0.0), SpeedChanged(JobId("b"), 0.0, 0.5)]


def test_change_of_speed_during_the_restart_takes_effect_after_it() -> None:
    speed = SpeedModel(node_neighbour=0.5)
    w = world(job("a", work=30.0), job("b", work=100.0), speed=speed, restart_s=10.0)
    w.carry_out([start("a", on("n1", [0]))], 0.0)
    w.carry_out([stop("a")], 10.0)
    w.carry_out([start("a", on("n1", [0]))], 10.0)

    assert w.carry_out([start("b", on("n1", [1]))], 15.0)[-1] == SpeedChanged(JobId("a"), 10.0, 0.5)
    assert w.due_s == 20.0 + 20.0 / 0.5


def test_resized_job_goes_on_at_its_new_speed() -> None:
    """10 of 40 done on four; 5 s of restart, then half the speed: 30 / 0.5 more."""
    elastic = job("a", workers=4, work=40.0, elastic=Elastic(min_tasks=1, max_tasks=4))
    w = world(elastic, restart_s=5.0, checkpoint_interval_s=100.0)
    w.carry_out([start("a", on("n1", 2, tasks=2), on("n2", 2, tasks=2))], 0.0)

    answers = w.carry_out([Resize(JobId("a"), on("n1", 2, tasks=2))], 10.0)

    assert answers == [Resized(JobId("a"), 10.0, 0.5, 15.0)]
    assert w.due_s == 15.0 + 60.0
    assert lose(w, "n2", 20.0) == []
    assert lose(w, "n1", 20.0) == [("a", 10.0)]


def test_job_of_speed_nought_never_ends() -> None:
    """A measured speed of 0 means that the model can't run there."""
    speeds = {(DeviceType("gpu"), "m", 1): 0.0, (DeviceType("other"), "m", 1): 2.0}
    w = world(job("a", work=1.0, model="m"), speed=SpeedModel(profiles=Profiles(steps_per_s=speeds, source="x")))

    assert w.carry_out([start("a", on("n1", 1))], 0.0) == [Started(JobId("a"), 0.0, 0.0)]
    assert w.due_s == math.inf


def test_job_without_work_ends_as_it_starts() -> None:
    w = world(job("a", work=0.0), job("b"))
    w.carry_out([start("a", on("n1", 1)), start("b", on("n1", [1]))], 3.0)

    assert w.pop_due(3.0) == [
        JobEnded(JobId("a"), End.SUCCEEDED, 0.0),
        JobEnded(JobId("b"), End.SUCCEEDED, 0.0),
    ]


def test_stop_of_a_job_that_moves_is_a_stop_like_any_other() -> None:
    w = world(job("a", work=30.0))
    w.carry_out([start("a", on("n1", 1))], 0.0)

    assert w.carry_out([stop("a", Cause.MOVED)], 4.0) == [Stopped(JobId("a"), 4.0)]


def test_node_names_of_the_cluster_are_known() -> None:
    w = world(job("a", work=30.0), of=cluster(node("big", 1), node("n2", 1)))
    w.carry_out([start("a", on("n1", 1))], 0.0)

    assert lose(w, "big", 1.0) == [("a", 1.0)]


def test_a_job_told_to_stop_saves_its_state_on_its_devices_first() -> None:
    w = world(job("a", work=30.0), restart_s=7.0, checkpoint_s=4.0)
    w.carry_out([start("a", on("n1", 1))], 0.0)

    assert w.carry_out([stop("a")], 10.0) == [SpeedChanged(JobId("a"), 10.0, 0.0)]
    assert w.due_s == 14.0
    assert w.pop_due(14.0) == [Stopped(JobId("a"), 10.0)]
    w.carry_out([start("a", on("n1", 1))], 20.0)
    assert w.due_s == 20.0 + 7.0 + 20.0


def test_a_job_whose_grace_is_too_short_is_killed_and_falls_back() -> None:
    saves = Checkpoint(interval_s=8.0, grace_s=3.0)
    w = world(job("a", work=100.0, checkpoint=saves), checkpoint_s=5.0)
    w.carry_out([start("a", on("n1", 1))], 0.0)
    w.carry_out([stop("a")], 21.0)

    assert w.due_s == 24.0
    assert w.pop_due(24.0) == [Stopped(JobId("a"), 16.0)]


def test_a_node_lost_while_a_job_saves_its_state_costs_what_is_not_saved() -> None:
    w = world(job("a", work=100.0), checkpoint_s=50.0, checkpoint_interval_s=8.0)
    w.carry_out([start("a", on("n1", 1))], 0.0)
    w.carry_out([stop("a")], 21.0)

    assert lose(w, "n1", 60.0) == [("a", 16.0)]
    assert w.due_s == math.inf


def test_suspended_job_does_nothing_and_pays_when_it_is_resumed() -> None:
    w = world(job("a", work=100.0), resume_s=2.0)
    w.carry_out([start("a", on("n1", 1))], 0.0)

    assert w.carry_out([Suspend(JobId("a"))], 30.0) == [Suspended(JobId("a"), 30.0)]
    assert w.due_s == float("inf")
    assert w.carry_out([Resume(JobId("a"), on("n1", 1))], 50.0) == [Resumed(JobId("a"), 1.0, 52.0)]
    assert w.due_s == 52.0 + 70.0


def test_what_is_left_of_a_restart_is_still_owed_after_a_suspension() -> None:
    w = world(job("a", work=100.0), restart_s=10.0, resume_s=2.0)
    w.carry_out([start("a", on("n1", 1))], 0.0)
    w.carry_out([stop("a")], 20.0)
    w.carry_out([start("a", on("n1", 1))], 20.0)

    assert w.carry_out([Suspend(JobId("a"))], 24.0) == [Suspended(JobId("a"), 20.0)]
    assert w.carry_out([Resume(JobId("a"), on("n1", 1))], 40.0) == [Resumed(JobId("a"), 1.0, 40.0 + 2.0 + 6.0)]


def test_suspended_time_saves_nothing() -> None:
    """Progress is saved every 10 s of running: 25 s before the suspension and 3 after it make 20."""
    w = world(job("a", work=100.0), checkpoint_interval_s=10.0)
    w.carry_out([start("a", on("n1", 1))], 0.0)
    w.carry_out([Suspend(JobId("a"))], 25.0)
    w.carry_out([Resume(JobId("a"), on("n1", 1))], 100.0)

    assert w.lose(NodeLost(NodeId("n1")), 103.0) == [Interrupted(JobId("a"), 20.0)]


@pytest.mark.parametrize(("move_s", "from_s"), [(None, 15.0), (1.0, 11.0)], ids=["as-a-restart", "its-own"])
def test_move_keeps_the_work_and_costs_what_is_said(move_s: float | None, from_s: float) -> None:
    w = world(job("a", work=100.0), restart_s=5.0, move_s=move_s)
    w.carry_out([start("a", on("n1", 1))], 0.0)

    assert w.carry_out([Move(JobId("a"), on("n1", [1]))], 10.0) == [Moved(JobId("a"), 10.0, 1.0, from_s)]


def test_jobs_load_before_their_work_and_save_after_it() -> None:
    w = world(job("a", work=30.0), load_s=4.0, save_s=2.0)

    assert w.carry_out([start("a", on("n1", 1))], 1.0) == [Started(JobId("a"), 1.0, 5.0)]
    assert w.pop_due(35.0) == [SpeedChanged(JobId("a"), 30.0, 0.0)]
    assert w.due_s == 37.0
    assert w.pop_due(37.0) == [JobEnded(JobId("a"), End.SUCCEEDED, 30.0)]


@pytest.mark.parametrize(("load_s", "begins_s"), [(20.0, 50.0), (3.0, 40.0)], ids=["load", "save"])
def test_who_loads_beside_one_that_saves_works_when_both_are_through(load_s: float, begins_s: float) -> None:
    jobs = (job("a", work=30.0 - load_s), job("b", work=30.0), job("c", work=30.0))
    w = world(*jobs, overlaps=True, load_s=load_s, save_s=10.0)
    w.carry_out([start("a", on("n1", 1))], 0.0)
    assert w.pop_due(30.0) == [WorkDone(JobId("a"), 30.0 - load_s)]

    assert w.carry_out([start("b", on("n1", 1))], 30.0) == [Started(JobId("b"), 1.0, begins_s)]
    assert w.carry_out([start("c", on("n2", 1))], 30.0) == [Started(JobId("c"), 1.0, 30.0 + load_s)]


def test_a_job_that_is_stopped_while_it_saves_saves_again() -> None:
    w = world(job("a", work=30.0), overlaps=True, save_s=10.0)
    w.carry_out([start("a", on("n1", 1))], 0.0)
    w.pop_due(30.0)

    assert w.carry_out([stop("a", Cause.PREEMPTED)], 35.0) == [Stopped(JobId("a"), 30.0)]
    w.carry_out([start("a", on("n1", 1))], 50.0)
    assert w.pop_due(50.0) == [WorkDone(JobId("a"), 30.0)]
    assert w.due_s == 60.0


def test_job_that_is_suspended_in_place_of_a_stop_has_a_price_of_its_own() -> None:
    price = Checkpoint(interval_s=0.0, grace_s=4.0, suspend_s=4.0, resume_s=2.0)
    w = world(job("a", work=30.0, checkpoint=price), load_s=7.0, restart_s=50.0, checkpoint_s=20.0)
    w.carry_out([start("a", on("n1", 1))], 0.0)

    assert w.carry_out([stop("a")], 17.0) == [SpeedChanged(JobId("a"), 10.0, 0.0)]
    assert w.due_s == 21.0, "the time that its memory takes to the host, not that of the others"
    assert w.pop_due(21.0) == [Stopped(JobId("a"), 10.0)]
    w.carry_out([start("a", on("n1", 1))], 30.0)

    assert w.due_s == 52.0, "its memory comes back in 2 s, and it has nothing to load"
