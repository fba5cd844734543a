"""Forecasts know reservations as the live loop does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from builders import World, job
from rota.core.engine.engine import Engine
from rota.core.messages.events import JobArrived
from rota.core.model.cluster import Cluster
from rota.core.model.job import Checkpoint, Job, JobId, TenantId
from rota.drivers.simulator.study import Setting, scheduler, simulate
from rota.forecast.durations import RunTimes
from rota.forecast.past import PastRun
from rota.forecast.predict import Assumptions, Budget, Question, predict
from rota.forecast.value import Forecast
from rota.live.reservations.forecasts import ForeseenReservations, foreseen
from rota.live.reservations.reservation import NodeReservation
from rota.traces.workload import Submission, Workload

HOUR_S = 3600.0
PAST = [PastRun(job=job(f"p{at}", name="train", user="ann"), submit_s=10.0 * at, work_s=600.0) for at in range(20)]
SHIFT_S = 1e6
NODE = str(Cluster.uniform(("gpu", 1, 1)).nodes[0].id)
SOON = NodeReservation(
    name="course", id="course.1", nodes=(NODE,), tenant="nlp", from_s=SHIFT_S + 300, until_s=SHIFT_S + 2 * HOUR_S
)


def foresee(
    reservations: Sequence[NodeReservation], asked: Job, running: Sequence[Job] = (), shift_s: float = SHIFT_S
) -> Forecast:
    """A forecast for a job that would be submitted now to one node of one device."""
    world = World(gpus=1, policy="fifo")
    make = foreseen(reservations, shift_s)
    if make is not None:
        now = make(world.engine)
        world.settle(world.engine.step(world.now_s, [*now.look(world.now_s)]))
    for each in running:
        events = [JobArrived(each)] if make is None else list(make(world.engine).gated(world.now_s, [JobArrived(each)]))
        world.settle(world.engine.step(world.now_s, events))

    def copy() -> Engine:
        built, alloc, _ = scheduler("fifo", Setting(cluster=world.cluster))
        return world.engine.fork(built, allocator=alloc)

    assumed = Assumptions(times=RunTimes(PAST), changes=make)
    question = Question(job_id=asked.id, arrives=asked)
    return predict(world.engine, copy, question, assumed, budget=Budget(runs=4))


def train(name: str, **more: object) -> Job:
    return job(name, name="train", user="ann", **more)  # type: ignore[arg-type]


def test_job_of_others_that_would_not_end_before_starts_after() -> None:
    found = foresee([SOON], train("a"))

    assert found.start is not None
    assert found.start.median_s == pytest.approx(2 * HOUR_S, abs=5)


def test_job_of_the_group_starts_now() -> None:
    found = foresee([SOON], train("a", tenant=TenantId("nlp")))

    assert found.start is not None
    assert found.start.median_s == pytest.approx(0.0, abs=5)


def test_group_by_users_is_known_by_the_submitter() -> None:
    mine = replace(SOON, tenant=None, users=("ann",))

    found = foresee([mine], train("a"))

    assert found.start is not None
    assert found.start.median_s == pytest.approx(0.0, abs=5)


def test_job_that_may_be_stopped_starts_now_gives_way_and_ends_after() -> None:
    found = foresee([SOON], train("a", checkpoint=Checkpoint(interval_s=60.0)))

    assert found.start is not None
    assert found.end is not None
    assert found.start.median_s == pytest.approx(0.0, abs=5)
    assert found.end.median_s is not None
    assert 2 * HOUR_S + 250 < found.end.median_s < 2 * HOUR_S + 700


def test_chance_of_a_job_with_a_time_limit_ends_when_it_no_longer_fits() -> None:
    late = replace(SOON, from_s=SHIFT_S + 1000.0)
    short = train("b", time_limit_s=700.0)

    assert foresee([late], short).start.median_s == pytest.approx(0.0, abs=5)  # type: ignore[union-attr]
    behind = foresee([late], short, running=[train("a", preemptible=True)])
    assert behind.start is not None
    assert behind.start.median_s is not None
    assert behind.start.median_s >= 2 * HOUR_S


def test_reservation_that_is_over_changes_nothing() -> None:
    over = replace(SOON, from_s=SHIFT_S - 100.0, until_s=SHIFT_S - 50.0)

    found = foresee([over], train("a"))

    assert found.start is not None
    assert found.start.median_s == pytest.approx(0.0, abs=5)


def test_no_reservations_cost_nothing() -> None:
    assert foreseen([], 0.0) is None


def test_moments_are_those_at_which_something_changes() -> None:
    world = World(gpus=1, policy="fifo")
    run = ForeseenReservations([SOON], world.engine, SHIFT_S)
    seen = []
    while run.due_s < math.inf:
        at_s = max(run.due_s, world.now_s)
        seen.append(at_s)
        world.engine.step(at_s, [*run.look(at_s)])
        assert len(seen) < 10

    assert seen == [world.now_s, 300.0, 2 * HOUR_S]
    assert world.engine.state.inventory.nodes[0].reserved == ()
    assert JobId("a") not in world.engine.state.jobs


def test_simulation_of_past_days_keeps_a_reservation_from_when_it_was_made() -> None:
    made = replace(SOON, from_s=SHIFT_S + HOUR_S, made_s=SHIFT_S + 100.0)
    jobs = [Submission(job=train(str(at)), submit_s=at, hidden_work=50.0) for at in (0.0, 120.0)]
    jobs.append(Submission(job=train("limited"), submit_s=200.0, hidden_work=50.0))
    outside = foreseen([made], SHIFT_S, {JobId("limited"): 600.0})
    setting = Setting(cluster=Cluster.uniform(("gpu", 1, 1)), outside=outside)
    workload = Workload(submissions=tuple(jobs), source="test", format="rota")

    found = {str(row.id): row.start_s for row in simulate(workload, "priority", setting).history.jobs}

    assert found["0.0"] == 0.0
    assert found["120.0"] == 2 * HOUR_S
    assert found["limited"] == 200.0
