"""With known run times and no later arrivals, a forward run equals what then happens, under every policy."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings

from builders import at_once, in_rounds
from rota.core.engine.engine import Engine
from rota.core.messages.decisions import Decision, Resume, Start
from rota.core.model.job import Checkpoint, JobId
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.drivers.simulator.run import MomentClock
from rota.drivers.simulator.study import Setting, scheduler
from rota.drivers.simulator.world import World
from rota.forecast.forward import AssumedFuture, run_forward
from rota.perf.speed.model import Costs
from rota.traces.workload import Outcome
from strategies import Story, fits_one_type, stories

QUICK = ("fifo:backfill=true", "priority", "las", "afs-l")
SLOW = ("srsf", "tiresias", "e-las", "rota", "themis", "gandiva", "antman", "afs-p", "liquid")
"""One or two of each family; all others are tried by `make test-long`."""
POLICIES = [
    *QUICK,
    *(pytest.param(each, marks=pytest.mark.slow) for each in at_once() if each in SLOW),
    *(pytest.param(each, marks=pytest.mark.long) for each in at_once() if each not in (*QUICK, *SLOW)),
    *(pytest.param(each, marks=pytest.mark.long) for each in in_rounds()),
    pytest.param("priority:aging=360", marks=pytest.mark.slow),
    pytest.param("las:consolidate_s=20", marks=pytest.mark.slow),
]

NEVER_SAVES = Checkpoint(interval_s=math.inf)


class Course:
    """A simulation that can be looked at after each moment: when each job was started, and when it ended."""

    def __init__(self, story: Story, policy: str) -> None:
        costs = Costs(restart_s=story.restart_s, checkpoint_interval_s=story.checkpoint_interval_s)
        self.setting = Setting(cluster=story.cluster, placement=story.placement, speed=story.speed, costs=costs)
        self.policy = policy
        built, alloc, _ = scheduler(policy, self.setting)
        self.engine = Engine(State(story.cluster), built, alloc)
        self.world = World(story.cluster, self.setting.speed, self.setting.costs, overlaps=self.engine.overlaps)
        self.submissions = {each.job.id: each for each in story.submissions}
        self.clock = MomentClock(self.engine, self.world, story.submissions, iter(()))
        self.starts: dict[JobId, list[float]] = {}

    def advance(self) -> bool:
        """Take one moment; return whether there was one."""
        moment = self.clock.next_moment()
        if moment is None:
            return False
        now_s, happened = moment
        decisions = self.engine.step(now_s, happened)
        while decisions:
            self._note(decisions, now_s)
            decisions = self.engine.step(now_s, self.world.carry_out(decisions, now_s))
        return True

    def _note(self, decisions: list[Decision], now_s: float) -> None:
        for each in decisions:
            if isinstance(each, Start | Resume):
                self.starts.setdefault(each.job_id, []).append(now_s)

    def forecast(self, job_id: JobId) -> tuple[float, float]:
        """Return the next start of a job and its end, by a forward run that is told the true work of each job."""
        policy, alloc, _ = scheduler(self.policy, self.setting)
        copy = self.engine.fork(policy, allocator=alloc)
        future = AssumedFuture(targets=self._target, costs=self.setting.costs, speed=self.setting.speed)
        found = run_forward(copy, future, job_id)
        return found.start_s, found.end_s

    def _target(self, live: LiveJob) -> tuple[float, Outcome]:
        submission = self.submissions[live.job.id]
        return submission.target, submission.outcome


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@settings(deadline=None, max_examples=6)
@given(story=stories())
def test_forecast_with_known_run_times_is_what_happens(policy: str, story: Story) -> None:
    fitting = tuple(each for each in story.submissions if fits_one_type(each.job, story.cluster, story.placement))
    kept = {each.job.id for each in fitting}
    fitting = tuple(
        replace(each, job=replace(each.job, checkpoint=NEVER_SAVES)) if number % 3 == 1 else each
        for number, each in enumerate(fitting)
        if set(each.job.depends_on) <= kept
    )
    course = Course(replace(story, submissions=fitting), policy)
    while course.clock.arrived < len(fitting):
        course.advance()
    asked_s = course.engine.state.now_s
    open_jobs = [live.job.id for live in course.engine.state.jobs.values() if not live.state.is_final]
    told = {job_id: course.forecast(job_id) for job_id in open_jobs}
    before = {job_id: len(course.starts.get(job_id, [])) for job_id in open_jobs}

    while course.advance():
        pass

    for job_id in open_jobs:
        later = course.starts.get(job_id, [])[before[job_id] :]
        ended_s = course.engine.state.jobs[job_id].ended_s
        assert told[job_id] == (later[0] if later else math.inf, ended_s), (job_id, asked_s)
