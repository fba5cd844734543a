"""With known run times and no later arrivals, a forward run equals what then happens, under every policy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import at_once, in_rounds
from rota.core.engine.engine import Engine
from rota.core.messages.decisions import Decision, Resume, Start, Stop
from rota.core.model.cluster import Cluster
from rota.core.model.job import Checkpoint, JobId, TenantId
from rota.core.model.tenants import ANY_TYPE, Share, TenantPlan
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
IN_ROUNDS = in_rounds()
WITH_QUOTAS = [
    pytest.param(each, marks=() if each in QUICK else pytest.mark.long)
    for each in ("fifo:backfill=true", *at_once(tenancy=True))
]
ROUNDING = 1e-12
"""A run that goes on from a moment adds the same times up in other steps."""
NEVER_SAVES = Checkpoint(interval_s=math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What starts and the like cost, beyond what the story says."""

    load_s: float = 0.0
    resume_s: float = 0.0
    move_s: float | None = None
    resize_s: float | None = None


@st.composite
def prices(draw: st.DrawFn) -> Prices:
    return Prices(
        load_s=draw(st.sampled_from([0.0, 0.0, 1.5])),
        resume_s=draw(st.sampled_from([0.0, 2.5])),
        move_s=draw(st.sampled_from([None, 1.25])),
        resize_s=draw(st.sampled_from([None, 0.75])),
    )


class Course:
    """A simulation that can be looked at after each moment: when each job was started, and when it ended."""

    def __init__(self, story: Story, policy: str, extra: Prices, tenancy: str = "none") -> None:
        in_rounds = policy in IN_ROUNDS  # such policies leave no time for stops
        costs = Costs(
            restart_s=story.restart_s,
            checkpoint_interval_s=story.checkpoint_interval_s,
            checkpoint_s=0.0 if in_rounds else story.checkpoint_s,
            load_s=extra.load_s,
            resume_s=extra.resume_s,
            move_s=extra.move_s,
            resize_s=extra.resize_s,
        )
        self.setting = Setting(
            cluster=story.cluster, placement=story.placement, speed=story.speed, costs=costs, tenancy=tenancy
        )
        self.policy = policy
        built, alloc, _ = scheduler(policy, self.setting)
        self.engine = Engine(State(story.cluster), built, alloc)
        self.world = World(story.cluster, self.setting.speed, self.setting.costs, overlaps=self.engine.overlaps)
        self.submissions = {each.job.id: each for each in story.submissions}
        self.clock = MomentClock(self.engine, self.world, story.submissions, iter(story.misfortunes))
        self.over_s = max((at_s for at_s, _ in story.misfortunes), default=0.0)
        self.starts: dict[JobId, list[float]] = {}
        self.stops_s: dict[JobId, float] = {}

    @property
    def is_surprised_no_more(self) -> bool:
        """Whether all has arrived, and all misfortunes are over."""
        return self.clock.arrived == len(self.submissions) and self.engine.state.now_s >= self.over_s

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
            elif isinstance(each, Stop):
                self.stops_s[each.job_id] = now_s

    def forecast(self, job_id: JobId) -> tuple[float, float]:
        """Return the next start of a job and its end, by a forward run that is told the true work of each job."""
        policy, alloc, _ = scheduler(self.policy, self.setting)
        copy = self.engine.fork(policy, allocator=alloc)
        future = AssumedFuture(
            targets=self._target, costs=self.setting.costs, speed=self.setting.speed, stops_s=self.stops_s
        )
        found = run_forward(copy, future, job_id)
        return found.start_s, found.end_s

    def _target(self, live: LiveJob) -> tuple[float, Outcome]:
        submission = self.submissions[live.job.id]
        return submission.target, submission.outcome


def possible(story: Story, policy: str) -> Story:
    """The story of the jobs that fit whatever happens, some of which never save."""
    fitting = [each for each in story.submissions if fits_one_type(each.job, story.cluster, story.placement)]
    if policy in IN_ROUNDS:
        fitting = [replace(each, job=replace(each.job, depends_on=())) for each in fitting]
    kept: set[JobId] = set()
    chosen = []
    for number, each in enumerate(fitting):
        if set(each.job.depends_on) <= kept:
            job = replace(each.job, checkpoint=NEVER_SAVES) if number % 3 == 1 else each.job
            chosen.append(replace(each, job=job))
            kept.add(job.id)
    last_s = max((each.submit_s for each in chosen), default=0.0)
    over_s = max((at_s for at_s, _ in story.misfortunes), default=0.0)
    squeezed = min(last_s / over_s, 1.0) if over_s else 1.0  # most jobs are there after them
    there_s: dict[JobId | None, float] = {None: 0.0}
    there_s.update((each.job.id, each.submit_s + 0.25) for each in chosen)
    left = [
        (max(at_s * squeezed, there_s[job_id]), event)
        for at_s, event in story.misfortunes
        if (job_id := getattr(event, "job_id", None)) in there_s
    ]
    left.sort(key=lambda each: each[0])
    return replace(story, submissions=tuple(chosen), misfortunes=tuple(left))


def forecasts_come_true(course: Course, moments: int) -> None:
    """Once nothing surprising is left, and some moments after, each forecast is what then happens."""
    while not course.is_surprised_no_more and course.advance():
        pass
    while moments and course.advance():
        moments -= 1
    asked_s = course.engine.state.now_s
    open_jobs = [live.job.id for live in course.engine.state.jobs.values() if not live.state.is_final]
    told = {job_id: course.forecast(job_id) for job_id in open_jobs}
    before = {job_id: len(course.starts.get(job_id, [])) for job_id in open_jobs}

    while course.advance():
        pass

    for job_id in open_jobs:
        later = course.starts.get(job_id, [])[before[job_id] :]
        ended_s = course.engine.state.jobs[job_id].ended_s
        happened = (later[0] if later else math.inf, math.inf if ended_s is None else ended_s)
        assert told[job_id] == pytest.approx(happened, rel=ROUNDING), (job_id, asked_s)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@settings(deadline=None, max_examples=12)
@given(story=stories(), extra=prices(), moments=st.integers(0, 4))
def test_forecast_with_known_run_times_is_what_happens(policy: str, story: Story, extra: Prices, moments: int) -> None:
    """Gangs, fractions, elastic jobs, dependencies, jobs that never save; nodes lost, drained and reserved before."""
    forecasts_come_true(Course(possible(story, policy), policy, extra), moments)


@pytest.mark.slow
@pytest.mark.parametrize("policy", WITH_QUOTAS)
@settings(deadline=None, max_examples=12)
@given(story=stories(), extra=prices(), guaranteed=st.integers(0, 4), moments=st.integers(0, 4))
def test_forecast_under_quotas_is_what_happens(
    policy: str, story: Story, extra: Prices, guaranteed: int, moments: int
) -> None:
    """A tenant whose guarantee others use takes it back."""
    devices = sum(story.cluster.devices_by_type.values())
    plan = TenantPlan(shares={TenantId("red"): Share(guaranteed={ANY_TYPE: min(guaranteed, devices)})})
    of = Cluster(nodes=story.cluster.nodes, tenants=plan)
    forecasts_come_true(Course(possible(replace(story, cluster=of), policy), policy, extra, "quota"), moments)
