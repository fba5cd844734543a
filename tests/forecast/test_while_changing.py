"""Forecasts while orders are under way and users intervene: wherever there is none, there is a reason."""

from __future__ import annotations

import math
import random

import pytest

from builders import at_once, cluster, in_rounds, job, node
from rota.core.engine.engine import Engine
from rota.core.messages.decisions import Decision
from rota.core.messages.events import (
    Event,
    JobArrived,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobRequeued,
    NodeBack,
    NodeDrained,
    NodeLost,
    NodeReserved,
    NodeUndrained,
    TimerFired,
)
from rota.core.model.job import Checkpoint, Elastic, Job, JobId, JobState, NodeId, Role
from rota.core.model.labels import RESERVED, Taint
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import Phase
from rota.core.state.state import State
from rota.drivers.simulator.study import Setting, scheduler
from rota.drivers.simulator.world import World
from rota.forecast.durations import RunTimes
from rota.forecast.past import PastRun
from rota.forecast.predict import Assumptions, Budget, Question, predict
from rota.forecast.value import Forecast, NoForecast
from rota.traces.workload import Submission

POLICIES = ("fifo:backfill=true", "priority", "las:thresholds=20/80", "afs-p:evict_s=20", "gandiva")
EVERY_POLICY = [
    pytest.param(each, marks=() if each in ("rota", "antman", "themis", "e-las") else pytest.mark.long)
    for each in (*at_once(), *in_rounds())
]
PAST = [PastRun(job=job(f"p{at}", name="train", user="ann"), submit_s=at, work_s=30.0 + at) for at in range(8)]
ASSUMED = Assumptions(times=RunTimes(PAST))
STEPS = 14
NODES = ("n1", "n2")


class Disturbed:
    """A cluster under random interventions, whose driver leaves every third order unanswered."""

    def __init__(self, policy: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.policy = policy
        self.setting = Setting(cluster=cluster(*(node(name, 4) for name in NODES)))
        built, alloc, _ = scheduler(policy, self.setting)
        self.engine = Engine(State(self.setting.cluster), built, alloc)
        self.world = World(self.setting.cluster, self.setting.speed, self.setting.costs)
        self.now_s = 0.0
        self.jobs = 0
        self.in_rounds = policy in in_rounds()
        self.lost: set[NodeId] = set()

    def disturb(self) -> None:
        """Let some time pass, and something happen; carry out a part of the orders."""
        self.now_s += self.chance.uniform(0.1, 15.0)
        happened = [*self.world.pop_due(self.now_s), *self._interventions()]
        decisions = self.engine.step(self.now_s, happened or [TimerFired()])
        for _ in range(3):
            carried: list[Decision] = [each for each in decisions if self.chance.random() < 0.67]
            if not carried:
                return
            decisions = self.engine.step(self.now_s, self.world.carry_out(carried, self.now_s))

    def _interventions(self) -> list[Event]:
        open_jobs = [live for live in self.engine.state.jobs.values() if not live.state.is_final]
        kind = self.chance.choice(
            ("arrive", "arrive", "arrive", "cancel", "hold", "release", "requeue", "drain", "back", "lose", "reserve")
        )
        if kind in ("drain", "back", "lose", "reserve"):
            return self._of_node(kind, NodeId(self.chance.choice(NODES)))
        if kind == "arrive" or not open_jobs:
            return [self._arrival() for _ in range(self.chance.randint(1, 3))]
        return _asked(kind, self.chance.choice(open_jobs))

    def _of_node(self, kind: str, node_id: NodeId) -> list[Event]:
        if kind == "lose" and node_id not in self.lost:
            self.lost.add(node_id)
            lost = NodeLost(node_id)
            return [lost, *self.world.lose(lost, self.now_s)]
        if node_id in self.lost:
            self.lost.discard(node_id)
            return [NodeBack(node_id)]
        if kind == "reserve":
            is_open = self.chance.random() < 0.5
            return [NodeReserved(node_id, () if is_open else (Taint(RESERVED, "course"),))]
        return [NodeDrained(node_id) if kind == "drain" else NodeUndrained(node_id)]

    def _arrival(self) -> JobArrived:
        self.jobs += 1
        tasks = self.chance.choice((1, 1, 2, 4, 8))
        earlier = [JobId(f"j{self.jobs - 1}")] if self.jobs > 1 and not self.in_rounds else []
        is_part = tasks == 1 and not self.in_rounds and self.chance.random() < 0.3
        work_s = self.chance.uniform(5.0, 120.0)
        made: Job = job(
            f"j{self.jobs}",
            name="train",
            user="ann",
            roles=(Role(count=tasks, device_milli=300 if is_part else 1000),),
            depends_on=tuple(earlier) if self.chance.random() < 0.15 else (),
            priority=self.chance.choice((0, 0, 5)),
            elastic=Elastic(min_tasks=1, max_tasks=tasks) if not is_part and self.chance.random() < 0.4 else None,
            checkpoint=Checkpoint(interval_s=self.chance.choice((0.0, math.inf))),
            estimate_s=self.chance.choice((None, work_s)),
        )
        self.world.expect(Submission(job=made, submit_s=self.now_s, hidden_work=work_s))
        return JobArrived(made)

    def forecast(self, job_id: JobId) -> Forecast:
        """Forecast a job from this state."""

        def copy() -> Engine:
            built, alloc, _ = scheduler(self.policy, self.setting)
            return self.engine.fork(built, allocator=alloc)

        return predict(self.engine, copy, Question(job_id=job_id), ASSUMED, budget=Budget(runs=2))


def _asked(kind: str, live: LiveJob) -> list[Event]:
    job_id = live.job.id
    if kind == "cancel":
        return [JobCancelled(job_id)]
    if kind == "requeue" and live.phase is Phase.RUNNING:
        return [JobRequeued(job_id)]
    if kind == "release" and live.state is JobState.HELD:
        return [JobReleased(job_id)]
    return [JobHeld(job_id)] if live.state is JobState.WAITING else []


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(each, marks=pytest.mark.long) for each in range(3, 60))])
def test_forecast_is_never_missing_without_a_reason(policy: str, seed: int) -> None:
    never_missing(policy, seed)


@pytest.mark.parametrize("policy", EVERY_POLICY)
@pytest.mark.parametrize("seed", range(100, 103))
def test_forecast_under_every_policy_is_never_missing_without_a_reason(policy: str, seed: int) -> None:
    never_missing(policy, seed)


def never_missing(policy: str, seed: int) -> None:
    """Disturb a cluster; each forecast has a start and an end, or says why not, and neither is in the past."""
    disturbed = Disturbed(policy, seed)
    for step in range(STEPS):
        disturbed.disturb()
        if step % 5 < 4:
            continue
        for job_id in list(disturbed.engine.state.jobs):
            found = disturbed.forecast(job_id)
            start_s = None if found.start is None else found.start.median_s
            end_s = None if found.end is None else found.end.median_s
            assert found.reason is not None or (start_s is not None and end_s is not None), (job_id, found)
            assert start_s is None or start_s >= disturbed.now_s
            assert end_s is None or end_s >= (start_s or disturbed.now_s)


@pytest.mark.parametrize("policy", [*at_once(), *in_rounds()])
def test_start_is_forecast_while_another_job_is_being_cancelled(policy: str) -> None:
    """A policy that takes over this state, as after a restart, must not plan for the job that ends with its stop."""
    disturbed = Disturbed(policy, 0)
    engine, world = disturbed.engine, disturbed.world
    jobs = [job(f"j{at}", name="train", user="ann", roles=(Role(count=4),), estimate_s=30.0) for at in range(3)]
    for each in jobs:
        world.expect(Submission(job=each, submit_s=0.0, hidden_work=30.0))
    decisions = engine.step(0.0, [JobArrived(each) for each in jobs])
    while decisions:
        decisions = engine.step(0.0, world.carry_out(decisions, 0.0))
    running = [live.job.id for live in engine.state.jobs.values() if live.state is JobState.RUNNING]
    assert running, "some run, and their stops are not answered"
    engine.step(5.0, [JobCancelled(each) for each in running[:1]])

    for each in jobs:
        found = disturbed.forecast(each.id)
        assert found.reason is not None or (found.start is not None and found.end is not None)
    assert disturbed.forecast(running[0]).reason is NoForecast.CANCELLED
