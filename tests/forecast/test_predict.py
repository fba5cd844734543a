"""Forecasts from a state: ranges, what they rest on, and a reason wherever there is none."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from builders import World, job
from rota.core.engine.engine import Engine
from rota.core.messages.events import JobArrived, JobCancelled, JobHeld, JobRequeued, NodeDrained, TimerFired
from rota.core.model.job import Checkpoint, JobId, NodeId
from rota.drivers.simulator.study import Setting, scheduler
from rota.forecast.arrivals import Arrivals
from rota.forecast.costs import OrderTimes
from rota.forecast.durations import RunTimes
from rota.forecast.forks import in_forks
from rota.forecast.past import PastRun
from rota.forecast.predict import Assumptions, Budget, Question, predict
from rota.forecast.value import Forecast, NoForecast
from rota.perf.speed.model import Costs

PAST = [PastRun(job=job(f"p{at}", name="train", user="ann"), submit_s=10.0 * at, work_s=100.0 + at) for at in range(20)]
LEARNED = Assumptions(times=RunTimes(PAST))


def copies(world: World, policy: str) -> Callable[[], Engine]:
    def copy() -> Engine:
        built, alloc, _ = scheduler(policy, Setting(cluster=world.cluster))
        return world.engine.fork(built, allocator=alloc)

    return copy


def foresee(world: World, name: str, policy: str = "fifo", assumed: Assumptions = LEARNED, runs: int = 40) -> Forecast:
    return predict(world.engine, copies(world, policy), Question(job_id=JobId(name)), assumed, budget=Budget(runs=runs))


def queue(policy: str = "fifo") -> World:
    """One device: `a` runs, `b` and `c` wait."""
    world = World(gpus=1, policy=policy)
    for name in ("a", "b", "c"):
        arrived = JobArrived(job(name, gpus=1, name="train", user="ann"))
        world.settle(world.engine.step(world.now_s, [arrived]))
    return world


def test_start_and_end_follow_from_past_runs() -> None:
    found = foresee(queue(), "c")

    assert found.start is not None
    assert found.end is not None
    assert found.start.median_s == pytest.approx(220.0, rel=0.15)
    assert found.end.median_s == pytest.approx(330.0, rel=0.15)
    assert (found.start.low_s or 0.0) < (found.start.median_s or 0.0) < (found.start.high_s or 0.0)
    assert (found.position, found.reason, found.basis.history, found.basis.runs) == (2, None, 2, 40)


def test_nothing_known_is_said() -> None:
    found = foresee(queue(), "c", assumed=Assumptions())

    assert found.reason is NoForecast.UNKNOWN
    assert not found.known


def test_running_job_has_an_end_and_a_reason_without_a_start() -> None:
    found = foresee(queue(), "a")

    assert (found.start, found.reason) == (None, NoForecast.NOT_WAITING)
    assert found.end is not None


@pytest.mark.parametrize(
    ("event", "reason"),
    [(JobHeld(JobId("c")), NoForecast.HELD), (JobCancelled(JobId("c")), NoForecast.ENDED)],
)
def test_no_forecast_has_a_reason(event: JobHeld | JobCancelled, reason: NoForecast) -> None:
    world = queue()
    world.settle(world.engine.step(world.now_s, [event]))

    found = foresee(world, "c")

    assert (found.start, found.end, found.reason) == (None, None, reason)


def test_job_that_is_being_cancelled_says_so_and_others_go_on() -> None:
    world = queue()
    world.engine.step(world.now_s, [JobCancelled(JobId("a"))])  # the driver has not answered

    assert foresee(world, "a").reason is NoForecast.CANCELLED
    assert foresee(world, "b").start is not None


def test_job_that_only_a_drained_node_could_hold_never_starts() -> None:
    world = queue()
    world.engine.step(world.now_s, [NodeDrained(NodeId("n1"))])

    assert foresee(world, "c", runs=5).reason is NoForecast.NEVER_STARTS


def test_later_arrivals_that_overtake_are_part_of_the_range() -> None:
    world = queue("priority")
    urgent = [
        PastRun(job=job(f"u{at}", name="train", user="bob", priority=5), submit_s=-60.0 * (20 - at), work_s=100.0)
        for at in range(20)
    ]
    alone = foresee(world, "c", "priority")
    crowded = foresee(world, "c", "priority", Assumptions(times=RunTimes(PAST), arrivals=Arrivals(urgent, world.now_s)))

    assert alone.start is not None
    assert crowded.start is not None
    assert (crowded.start.median_s or math.inf) > (alone.start.median_s or 0.0)
    assert crowded.basis.arrivals_per_hour > 0


def test_known_work_leaves_no_range() -> None:
    found = foresee(queue(), "c", assumed=Assumptions(true_work=lambda asked: 50.0), runs=3)

    assert found.start is not None
    assert (found.start.low_s, found.start.median_s, found.start.high_s) == (100.0, 100.0, 100.0)


def test_forks_give_the_same_runs_in_the_same_order() -> None:
    world = queue()
    question = Question(job_id=JobId("c"))

    here = predict(world.engine, copies(world, "fifo"), question, LEARNED, budget=Budget(runs=9))
    forked = predict(world.engine, copies(world, "fifo"), question, LEARNED, budget=Budget(runs=9), sampler=in_forks(3))

    assert forked == here


def test_hypothetical_job_is_asked_about_without_being_submitted() -> None:
    world = queue()
    asked = job("new", gpus=1, name="train", user="ann")

    found = predict(
        world.engine, copies(world, "fifo"), Question(job_id=asked.id, arrives=asked), LEARNED, budget=Budget(runs=9)
    )

    assert found.position == 3
    assert JobId("new") not in world.engine.state.jobs


def leaving() -> World:
    """One device: `a` was ordered to stop at 10 s and has not answered at 16 s; `b` waits for it."""
    world = queue()
    world.engine.step(10.0, [JobCancelled(JobId("a"))])
    world.engine.step(16.0, [TimerFired()])
    return world


TEN = Costs(checkpoint_s=10.0, load_s=2.0, checkpoint_interval_s=math.inf)


@pytest.mark.parametrize(
    ("assumed", "start_s"),
    [
        (Assumptions(costs=TEN, stops_s={JobId("a"): 10.0}), 20.0),
        (Assumptions(costs=TEN), 26.0),
        (Assumptions(costs=TEN, stops_s={JobId("a"): 1.0}), 16.0),
        (Assumptions(costs=TEN, orders=OrderTimes(starts_s=(3.0,), stops_s=(8.0,)), stops_s={JobId("a"): 10.0}), 21.0),
    ],
    ids=["ordered 6 s ago", "ordered at a time unknown", "long over", "drawn, with the start"],
)
def test_time_that_a_stop_has_taken_counts(assumed: Assumptions, start_s: float) -> None:
    found = foresee(leaving(), "b", assumed=assumed, runs=4)

    assert found.start is not None
    assert found.start.median_s == pytest.approx(start_s)


@pytest.mark.parametrize(("interval_s", "end_s"), [(0.0, 5.0 + 10.0 + 45.0), (math.inf, 5.0 + 10.0 + 50.0)])
def test_job_that_is_being_stopped_keeps_what_it_saves(interval_s: float, end_s: float) -> None:
    """`a` has run for 5 of 50 s, and its stop, which takes 10 s, was just ordered; it starts again then."""
    world = World(gpus=1, policy="fifo")
    asked = job("a", gpus=1, name="train", user="ann", checkpoint=Checkpoint(interval_s=interval_s))
    world.settle(world.engine.step(world.now_s, [JobArrived(asked)]))
    world.engine.step(5.0, [JobRequeued(JobId("a"))])
    costs = Costs(checkpoint_s=10.0, checkpoint_interval_s=math.inf)
    assumed = Assumptions(true_work=lambda each: 50.0, costs=costs, stops_s={JobId("a"): 5.0})

    found = foresee(world, "a", assumed=assumed, runs=2)

    assert found.end is not None
    assert found.end.median_s == pytest.approx(end_s)


def test_job_that_waits_for_several_stops_waits_for_the_last() -> None:
    """Of stops that take 1 or 9 s, the last of four is nearly always one of 9 s."""
    world = World(gpus=4, policy="fifo")
    asked = [job(f"v{at}", gpus=1, name="train", user="ann") for at in range(4)]
    for each in (*asked, job("b", gpus=4, name="train", user="ann")):
        world.settle(world.engine.step(world.now_s, [JobArrived(each)]))
    world.engine.step(1.0, [JobCancelled(each.id) for each in asked])
    orders = OrderTimes(starts_s=(0.0, 0.0), stops_s=(1.0,) * 10 + (9.0,) * 10)

    found = foresee(world, "b", assumed=Assumptions(costs=TEN, orders=orders, stops_s={each.id: 1.0 for each in asked}))

    assert found.start is not None
    assert found.start.median_s == pytest.approx(10.0, abs=0.5)
    assert (found.start.low_s or 0.0) < 10.0, "but not always"
