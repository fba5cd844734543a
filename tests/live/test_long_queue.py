"""A forecast with a long queue: a sample of the rows is restored, under every policy, and the answer stays the same."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from builders import at_once, in_rounds, job
from rota.core.codec import snapshot
from rota.core.codec.values import encode_job
from rota.core.engine.engine import Engine
from rota.core.messages.events import JobArrived
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job, JobId, JobState
from rota.core.state.state import State
from rota.drivers.simulator.study import Setting, scheduler
from rota.drivers.simulator.world import World
from rota.forecast.forward import AssumedFuture, run_forward
from rota.forecast.predict import Budget, Question
from rota.forecast.queue_sample import MOST_WAITING
from rota.forecast.value import Forecast
from rota.live.loop.boot import Scheduling, restored
from rota.live.loop.record import Record, row_of
from rota.live.workers.forecast_worker import Forecaster
from rota.live.workers.long_queue import LEAST_WAITING, LongQueue, QueuePace
from rota.store import clock
from rota.store.database import open_database
from rota.store.records import Records, WriteBatch
from rota.traces.workload import Outcome, Submission

QUICK = ("priority", "las", "rota", "themis")
POLICIES = [
    each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in (*at_once(), *in_rounds())
]
CLUSTER = Cluster.uniform(("gpu", 8, 4))
WAITING = 300


def with_jobs(policy: str, jobs: list[Job], now_s: float) -> Engine:
    """Return an engine after jobs have arrived and been started as far as they fit."""
    setting = Setting(cluster=CLUSTER)
    built, alloc, _ = scheduler(policy, setting)
    engine = Engine(State(CLUSTER), built, alloc)
    world = World(CLUSTER, setting.speed, setting.costs)
    for each in jobs:
        world.expect(Submission(job=each, submit_s=now_s, hidden_work=100.0))
    decisions = engine.step(now_s, [JobArrived(each) for each in jobs])
    for _ in range(100):
        if not decisions:
            break
        decisions = engine.step(now_s, world.carry_out(decisions, now_s))
    return engine


@pytest.mark.parametrize("policy", POLICIES)
def test_policy_goes_on_without_jobs_that_it_remembers(policy: str) -> None:
    engine = with_jobs(policy, [job(str(at), gpus=1 + at % 2, user=f"u{at % 3}") for at in range(24)], 0.0)
    taken = snapshot.take(engine.state, engine.memory)
    waiting = [live.job.id for live in engine.state.jobs.values() if live.state is JobState.WAITING]
    left_out = set(waiting[:-1:2])
    assert left_out, "some jobs wait"
    kept = tuple(value for value in taken.jobs if value["job"]["id"] not in left_out)
    state = snapshot.restore(CLUSTER, replace(taken, jobs=kept))
    built, alloc, _ = scheduler(policy, Setting(cluster=CLUSTER))

    found = run_forward(
        Engine(state, built, alloc), AssumedFuture(targets=lambda live: (100.0, Outcome.SUCCEEDED)), waiting[-1]
    )

    assert math.isfinite(found.end_s)


@pytest.fixture(name="records")
def _records(tmp_path: Path) -> Iterator[Records]:
    chance = random.Random(5)
    jobs = [
        job(str(at), gpus=chance.choice((1, 2, 4)), priority=at % 3, estimate_s=chance.uniform(50.0, 200.0))
        for at in range(WAITING)
    ]
    jobs.append(job("needs", depends_on=(JobId("250"),), estimate_s=60.0))
    engine = with_jobs("priority", jobs, clock.now_s() - 10.0)
    names = [str(node.id) for node in CLUSTER.nodes]
    rows = [
        row_of(live, Record('{"run": "true"}', "owner"), engine.state, names, encode_job(live.job))
        for live in engine.state.jobs.values()
    ]
    records = Records(open_database(f"sqlite:///{tmp_path / 'rota.db'}"))
    records.write(WriteBatch(new_jobs=rows))()
    yield records
    records.close()


def forecast(records: Records, job_id: str, most: int) -> tuple[Forecast, int]:
    """Return a forecast with a queue of at most so many jobs, and how many were restored."""
    queue = LongQueue([JobId(job_id)], most)
    was = restored(records, Scheduling(cluster=CLUSTER, policy="priority", has_fixed_nodes=True), queue)
    found = Forecaster().forecast(was, Question(job_id=JobId(job_id)), queue, Budget(runs=8))
    return found, len(was.state.jobs)


@pytest.mark.parametrize("job_id", ["298", "150", "297"], ids=["middle", "early", "last"])
def test_sample_answers_as_the_whole_queue_does(records: Records, job_id: str) -> None:
    whole, _ = forecast(records, job_id, most=1000)
    part, restored_jobs = forecast(records, job_id, most=60)

    assert restored_jobs <= 60 + 8 + 2
    assert whole.start is not None
    assert part.start is not None
    assert whole.usual_s is not None
    assert part.usual_s is not None
    assert (part.usual_s - part.made_s) == pytest.approx(whole.usual_s - whole.made_s, rel=0.3)
    assert part.position == pytest.approx(whole.position, rel=0.2)
    assert "60 for " in part.basis.sentence()
    assert " for " not in whole.basis.sentence()


def test_dependencies_are_restored_with_a_sample(records: Records) -> None:
    found, _ = forecast(records, "needs", most=20)

    assert found.start is not None
    assert found.reason is None


def test_sample_follows_what_runs_take() -> None:
    pace = QueuePace()
    assert pace.most("las", 1.2) == MOST_WAITING, "before anything was seen"
    pace.see("las", waiting=1000, runs=2, seconds=1.2)
    assert pace.most("las", 1.2) == 250
    assert pace.most("fifo", 1.2) == MOST_WAITING, "each policy has its own pace"
    pace.see("las", waiting=250, runs=0, seconds=60.0)
    assert pace.most("las", 1.2) == LEAST_WAITING, "no run came to its end"
    pace.see("las", waiting=LEAST_WAITING, runs=40, seconds=1.2)
    assert pace.most("las", 1.2) == 1000
    pace.see("las", waiting=5, runs=1, seconds=60.0)
    assert pace.most("las", 1.2) == 1000, "a short queue says nothing"
