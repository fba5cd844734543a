"""Backfill with reservations of nodes: who gets one, what it keeps away, and what each limit of it changes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import World, cluster, job, node, on, start
from rota.core.errors import RotaError
from rota.core.messages.reasons import ReasonCode
from rota.core.model.job import JobId
from rota.core.state.job_record import JobView
from rota.drivers.simulator.study import Setting, simulate
from rota.mechanisms.ordering.declare import ordering
from rota.mechanisms.ordering.node_plan import NodePlan
from rota.mechanisms.ordering.rule import Planning, Turn
from rota.placement import style
from rota.policies import find_policy
from rota.tenancy import allocator
from rota.traces.workload import Submission, Workload

ALL = "easy:reserve=0"


def test_each_waiting_job_keeps_later_ones_from_its_nodes() -> None:
    """With one reservation `third` may delay `second`; with a reservation for each it may not."""
    for policy, decisions in (("easy:reserve=1,depth=9", [start("third", on("n3", 1))]), (ALL, [])):
        world = World(gpus=2, nodes=3, policy=policy)
        world.running("long", gpus=2, work=100.0, at=on("n1", 2)).running("short", gpus=2, work=40.0, at=on("n2", 2))
        world.running("half", gpus=1, work=50.0, at=on("n3", [1]))
        world.submit("first", gpus=2, work=60.0)
        world.submit("second", gpus=2, work=60.0)

        assert world.submit("third", gpus=1, work=55.0) == decisions


def test_reservation_holds_its_node_whole() -> None:
    """`wide` needs one device of n1 from 100 s on; the other stays idle for it, as in Slurm."""
    world = World(gpus=2, policy=ALL).running("x", gpus=1, work=100.0)
    world.submit("wide", gpus=2, work=10.0)

    assert world.submit("longer", gpus=1, work=101.0) == []
    reason = world.why("longer")
    assert reason is not None
    assert (reason.code, reason.job, reason.until_s) == (ReasonCode.WOULD_DELAY, JobId("wide"), 100.0)

    assert world.submit("until then", gpus=1, work=99.0) == [start("until then", on("n1", [1]))]


def test_job_goes_to_a_node_that_is_not_reserved() -> None:
    """`wide` needs two devices of a node and gets n1; the tightest node for `long` would be n1, too."""
    world = World(gpus=2, nodes=2, policy=ALL)
    world.running("x", gpus=1, work=100.0, at=on("n1", 1)).running("y", gpus=1, work=150.0, at=on("n2", 1))
    world.submit("wide", gpus=2, work=10.0)

    assert world.submit("long", gpus=1, work=500.0) == [start("long", on("n2", [1]))]


def test_reservation_that_would_overlap_begins_when_the_other_ends() -> None:
    """`two` takes n1 from 100 to 110 s, so `three` takes both nodes from 110 s."""
    for work, decisions in ((109.0, [start("short", on("n2", 1))]), (111.0, [])):
        world = World(of=cluster(node("n1", 2), node("n2", 1)), policy=ALL).running("x", gpus=2, work=100.0)
        world.submit("two", gpus=2, work=10.0)
        world.submit("three", gpus=1, workers=3, work=10.0)

        assert world.submit("short", gpus=1, work=work) == decisions


def test_plan_is_made_again_after_a_start_that_changes_it() -> None:
    """With `first` running, `x` and `y` are in one group, so that `wide` is expected at 1500 s and `second` fits."""
    world = World(gpus=4, nodes=3, policy=f"{ALL},group_s=30")
    world.running("x", gpus=4, work=1000.0, at=on("n2", 4)).running("y", gpus=4, work=1500.0, at=on("n3", 4))
    world.submit("wide", gpus=4, workers=2, work=10.0)
    assert world.submit("second", gpus=1, work=1200.0) == []

    assert world.submit("first", gpus=1, work=10.0) == [start("first", on("n1", 1)), start("second", on("n1", [1]))]


@pytest.mark.parametrize(("window_s", "decisions"), [(99.0, [start("late", on("n1", [1]))]), (100.0, [])])
def test_job_that_can_not_start_within_the_window_reserves_nothing(window_s: float, decisions: list[object]) -> None:
    world = World(gpus=2, policy=f"{ALL},window_s={window_s:g}").running("x", gpus=1, work=100.0)
    world.submit("wide", gpus=2, work=10.0)

    assert world.submit("late", gpus=1, work=500.0) == decisions


@pytest.mark.parametrize(
    ("group_s", "starts_s"), [(0.0, 160.0), (30.0, 170.0), (1000.0, 900.0)], ids=["one by one", "doubling", "all"]
)
def test_running_jobs_count_as_ended_in_groups(group_s: float, starts_s: float) -> None:
    """The first group ends 30 s after 120 s, the second 60 s after it, and so holds those that end at 160 and 170 s."""
    world = World(gpus=1, nodes=5, policy=f"{ALL},group_s={group_s:g}")
    for number, work in enumerate((100.0, 160.0, 170.0, 900.0), start=2):
        world.running(f"x{number}", gpus=1, work=work, at=on(f"n{number}", 1))
    world.submit("wide", gpus=1, workers=3, work=10.0)

    assert world.submit("long", gpus=1, work=5000.0) == []
    reason = world.why("long")
    assert reason is not None
    assert (reason.job, reason.until_s) == (JobId("wide"), starts_s)


def test_jobs_beyond_the_depth_are_not_considered() -> None:
    world = World(gpus=2, policy="easy:reserve=0,depth=2").running("x", gpus=1, work=100.0)
    world.submit("wide", gpus=2, work=10.0)
    world.submit("other", gpus=2, work=10.0)

    assert world.submit("third", gpus=1, work=5.0) == []
    reason = world.why("third")
    assert reason is not None
    assert (reason.code, reason.job) == (ReasonCode.BEHIND, JobId("other"))


def test_jobs_pass_others_at_multiples_of_the_interval_only() -> None:
    world = World(gpus=2, policy=f"{ALL},interval_s=30").running("x", gpus=1, work=100.0)
    world.submit("wide", gpus=2, work=10.0)
    world.timer(31.0)
    assert world.submit("small", gpus=1, work=5.0) == []
    reason = world.why("small")
    assert reason is not None
    assert (reason.code, reason.until_s) == (ReasonCode.ROUND, 60.0)

    assert world.timer(59.0) == []
    assert world.timer(60.0) == [start("small", on("n1", [1]))]


def test_first_in_order_starts_at_once_whatever_the_interval() -> None:
    world = World(gpus=2, policy=f"{ALL},interval_s=30")
    world.timer(31.0)

    assert world.submit("first", gpus=1, work=5.0) == [start("first", on("n1", 1))]


def test_plan_goes_by_limits_where_it_is_told_to() -> None:
    """`x` ends after 10 s and says 100; `small` says 50."""
    for limits, decisions in (("true", [start("small", on("n1", [1]))]), ("false", [])):
        world = World(gpus=2, policy=f"{ALL},limits={limits}").running("x", gpus=1, work=10.0, estimate_s=100.0)
        world.submit("wide", gpus=2, work=10.0, estimate_s=20.0)
        assert world.submit("small", gpus=1, work=20.0, estimate_s=50.0) == decisions


def test_job_past_its_limit_is_expected_to_end_at_once() -> None:
    world = World(gpus=2, policy=f"{ALL},limits=true").running("x", gpus=1, work=500.0, estimate_s=10.0)
    world.submit("wide", gpus=2, work=10.0, estimate_s=20.0)
    world.timer(50.0)

    assert world.submit("small", gpus=1, work=5.0, estimate_s=5.0) == []


def test_job_without_a_limit_starts_where_nothing_is_in_its_way() -> None:
    world = World(gpus=2, policy=f"{ALL},limits=true")
    assert world.submit("endless", gpus=1, work=5.0) == [start("endless", on("n1", 1))]
    assert world.submit("too", gpus=1, work=5.0) == [start("too", on("n1", [1]))]

    assert world.submit("waits", gpus=1, work=5.0, estimate_s=5.0) == []


def test_reservation_is_rounded_and_one_step_long() -> None:
    plan = NodePlan(60.0)
    live = World(gpus=1, policy="fifo").running("x").state.live(JobId("x"))

    assert plan.reserve(live, 130.0, 5.0, 0b1)
    assert [(each.starts_s, each.ends_s) for each in plan.reservations] == [(120.0, 180.0)]
    assert not plan.reserve(live, 175.0, 100.0, 0b11)
    assert plan.reserve(live, 180.0, 100.0, 0b11)
    assert plan.taken(0.0, 119.0) == 0
    assert plan.taken(0.0, 120.0) == 0b1
    assert plan.taken(180.0, math.inf) == 0b11
    assert plan.next_end_s(0.0, 120.0) == 180.0


@pytest.mark.parametrize("options", ["reserve=-1", "window_s=0", "interval_s=inf", "depth=-2", "resolution_s=-1"])
def test_values_that_make_no_sense_are_refused(options: str) -> None:
    name = options.partition("=")[0]
    declared, _ = find_policy("easy")
    with pytest.raises(RotaError, match=f"easy: {name} is "):
        declared.read(options)


@st.composite
def workloads(draw: st.DrawFn) -> list[Submission]:
    """Jobs of one or several tasks, some as large as a node, that all fit three nodes of four devices."""
    now_s, found = 0.0, []
    for number in range(draw(st.integers(1, 14))):
        now_s += draw(st.integers(0, 12))
        gpus = draw(st.sampled_from([1, 2, 4]))
        asked = job(
            f"j{number}",
            gpus=gpus,
            workers=draw(st.integers(1, 3)) if gpus == 4 else 1,
            work=float(draw(st.integers(1, 60))),
        )
        found.append(Submission(job=asked, submit_s=now_s))
    return found


def starts(submissions: list[Submission], policy: str) -> dict[str, float]:
    """When each job starts."""
    of = cluster(*(node(f"n{number}", 4) for number in range(3)))
    workload = Workload(submissions=tuple(submissions), source="test", format="rota")
    history = simulate(workload, policy, Setting(cluster=of, placement="any")).history
    return {str(row.id): row.start_s for row in history.jobs if row.start_s is not None}


@given(submissions=workloads())
@settings(max_examples=60, deadline=None)
def test_no_job_is_delayed_by_later_ones(submissions: list[Submission]) -> None:
    """Where all jobs have reservations and run as long as expected, a job starts no later than without later jobs."""
    together = starts(submissions, ALL)
    for count in range(1, len(submissions) + 1):
        name = str(submissions[count - 1].job.id)
        alone = starts(submissions[:count], ALL)
        assert together[name] <= alone[name] + 1e-9


@given(submissions=workloads())
@settings(max_examples=30, deadline=None)
def test_limits_that_bind_nothing_change_nothing(submissions: list[Submission]) -> None:
    free = starts(submissions, ALL)

    assert starts(submissions, f"{ALL},window_s=1e9,depth=1000") == free
    assert starts(submissions, "easy:reserve=1000") == free
    assert starts(submissions, f"{ALL},limits=false,window_s=inf") == free


def test_policy_that_plans_neither_preempts_nor_divides() -> None:
    def first(job: JobView, now_s: float) -> Turn:
        return Turn((job.seq,))

    declared = ordering("first", backfill=Planning(), preempts=True)(first)
    with pytest.raises(RotaError, match="first: a policy with Planning neither preempts nor has groups"):
        declared.build("", allocator("none", style("any")))
