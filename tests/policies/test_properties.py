"""Whatever the policy, the placement, the jobs and the misfortunes: what must never happen does not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import ROUND_S, at_once, cluster, in_rounds, in_rounds_mostly_slow, job, node
from rota.core.engine.draft import Draft
from rota.core.engine.engine import Engine
from rota.core.engine.invariants import check
from rota.core.messages import events as told
from rota.core.messages.decisions import Cause, Decision, Stop, kinds_of
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import JobId, JobState, TenantId
from rota.core.state.state import State
from rota.drivers.simulator.run import run
from rota.drivers.simulator.study import Setting, scheduler, simulate
from rota.drivers.simulator.world import World
from rota.perf.speed.model import Costs
from rota.policies import find_policy
from rota.traces.workload import Submission, Workload
from strategies import Story, fits_one_type, stories

OPTIONS = [
    f"gavel/{name}=true,compat=none,round_s={ROUND_S:g}"
    for name in (
        "max_min_fairness_perf:elastic",
        "max_min_fairness_perf:cross_type",
        "max_min_fairness_packed:mixed_sharing",
    )
]
PLANNED = [
    "easy:reserve=0",
    "easy:reserve=2,window_s=40,resolution_s=4,group_s=8,depth=5,limits=true",
    "easy:reserve=0,interval_s=8",
]
IN_ROUNDS = [*in_rounds(), *OPTIONS]
POLICIES = [
    *at_once(),
    *in_rounds_mostly_slow(),
    *(pytest.param(each, marks=pytest.mark.slow) for each in OPTIONS),
    "fifo:backfill=true",
    *PLANNED,
    "tiresias:order=gittins,thresholds=20/60",
    "priority:aging=360",
    "las:consolidate_s=20",
    "salus:consolidate_s=20",
]
LEARNS = ("gittins", "tiresias:order=gittins")
"""Policies whose order depends on what they saw, which one that adopts their state did not."""

BY_SERVER = ["gandiva-fair", "gandiva", "olympian", "salus", "elasticflow", *PLANNED]
"""Policies under which jobs compete for servers, share devices or reserve nodes, so that it matters where a job is."""


class Watch:
    """A journal that checks the engine at every step, and asks it again whenever it has nothing to do."""

    def __init__(self, story: Story, policy: str) -> None:
        self.story = story
        self.policy = policy
        setting = Setting(cluster=story.cluster, placement=story.placement)
        built, alloc, _ = scheduler(policy, setting)
        self.engine = Engine(State(story.cluster), built, alloc, journal=self)
        self.ends: Counter[str] = Counter()
        self.ledger: dict[str, tuple[float, float, float]] = {}
        """Of each run: the work that it began with, when it began to do more, and how fast."""
        self._asking = False
        declared, options = find_policy(policy)
        self._declared = declared.kinds(options)

    def append(
        self,
        now_s: float,
        events: Sequence[told.Event],
        decisions: Sequence[Decision],
        waits: Sequence[tuple[JobId, Reason]],
    ) -> None:
        """One step is over."""
        check(self.engine.state)
        for event in events:
            self._weigh(event, now_s)
        for decision in decisions:
            self._match(decision)
        if not decisions and not self._asking:
            self._asking = True
            self._at_rest(now_s)
            self._asking = False

    def _match(self, decision: Decision) -> None:
        """The policy declares every kind of decision that it emits; stops that users ask for are not the policy's."""
        if not isinstance(decision, Stop) or decision.cause in (Cause.PREEMPTED, Cause.MOVED):
            undeclared = kinds_of(decision, self.engine.state.live(decision.job_id).job) - self._declared
            assert not undeclared, f"{self.policy} emits {undeclared}: {decision}"

    def _weigh(self, event: told.Event, now_s: float) -> None:
        """A stop keeps all work, a fault all but an interval's; a run that ends has done its work, once."""
        match event:
            case told.Started(name, rate, from_s):
                assert name not in self.ledger, "it runs twice"
                self.ledger[name] = (self.engine.state.live(name).work, from_s, rate)
            case told.Resumed(name, rate, from_s):
                self.ledger[name] = (self.engine.state.live(name).work, from_s, rate)
            case told.Suspended(name, work):
                assert work == pytest.approx(self._done(name, now_s))
                self.ledger[name] = (work, now_s, 0.0)
            case told.Resized(name, work, rate, from_s) | told.Moved(name, work, rate, from_s):
                assert work == pytest.approx(self._done(name, now_s))
                self.ledger[name] = (work, from_s, rate)
            case told.SpeedChanged(name, work, rate):
                assert work == pytest.approx(self._done(name, now_s))
                self.ledger[name] = (work, max(now_s, self.ledger[name][1]), rate)
            case told.Lapsed(name, work):
                assert work == pytest.approx(self._done(name, now_s))
                self.ledger[name] = (work, now_s, 0.0)
            case told.Stopped(name, work):
                assert work == pytest.approx(self._done(name, now_s))
                self.ledger.pop(name, None)
            case told.Interrupted(name, work):
                saves = self.engine.state.live(name).job.checkpoint
                interval_s = self.story.checkpoint_interval_s if saves is None else saves.interval_s
                done = self._done(name, now_s)
                at_most = interval_s * max(self.ledger[name][2], 1.0)
                assert done - at_most - 1e-6 <= work <= done + 1e-6
                del self.ledger[name]
            case told.JobEnded(name, _, work):
                self.ends[name] += 1
                assert self.ends[name] == 1
                assert work == pytest.approx(self.engine.state.live(name).job.work)
                assert work == pytest.approx(self._done(name, now_s))
                del self.ledger[name]

    def _done(self, name: str, now_s: float) -> float:
        if name not in self.ledger:
            return self.engine.state.live(JobId(name)).work
        work, from_s, rate = self.ledger[name]
        return work + max(now_s - from_s, 0.0) * rate

    def _at_rest(self, now_s: float) -> None:
        assert self.engine.step(now_s, [told.TimerFired()]) == []
        for live in list(self.engine.state.jobs.values()):
            reason = self.engine.explain(live.job.id)
            if live.state in (JobState.WAITING, JobState.HELD):
                assert reason is not None
                assert reason.code is not ReasonCode.NOT_CONSIDERED, live.job
                assert reason.sentence()
            else:
                assert reason is None
        if not self.policy.startswith(LEARNS):
            self._ask_a_stranger()

    def _ask_a_stranger(self) -> None:
        """A policy that adopts the state as it is has nothing to change in it."""
        setting = Setting(cluster=self.story.cluster, placement=self.story.placement)
        policy, alloc, _ = scheduler(self.policy, setting)
        twin = self.engine.fork(policy)
        check(twin.state)
        draft = Draft(twin.state.inventory, alloc, twin.state.now_s)
        policy.plan(draft)
        changed = {live.job.id: (was, live.placement) for live, was in draft.touched.items()}
        assert {name: change for name, change in changed.items() if change[0] != change[1]} == {}


def on_one_type(story: Story) -> Story:
    """The story of those jobs that rounds can place: whose devices can all be of one type."""
    chosen = []
    for submission in story.submissions:
        asked = replace(submission.job, depends_on=())
        if fits_one_type(asked, story.cluster, story.placement):
            chosen.append(replace(submission, job=asked))
    known = {submission.job.id for submission in chosen}
    left = [(at_s, event) for at_s, event in story.misfortunes if getattr(event, "job_id", None) in {None, *known}]
    return replace(story, submissions=tuple(chosen), misfortunes=tuple(left))


def live_through(story: Story, policy: str) -> State:
    """Run a story to its end under a policy, watched."""
    if policy in IN_ROUNDS:
        story = on_one_type(story)
    watch = Watch(story, policy)
    costs = Costs(
        restart_s=story.restart_s,
        checkpoint_interval_s=story.checkpoint_interval_s,
        checkpoint_s=story.checkpoint_s,
    )
    world = World(story.cluster, story.speed, costs)
    run(watch.engine, world, story.submissions, faults=iter(story.misfortunes))
    state = watch.engine.state
    assert all(live.state.is_final for live in state.jobs.values())
    assert len(state.jobs) == len(story.submissions)
    assert watch.ledger == {}
    return state


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@given(story=stories())
@settings(max_examples=5)
def test_nothing_goes_wrong(policy: str, story: Story) -> None:
    live_through(story, policy)


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
@given(story=stories())
@settings(max_examples=100)
def test_nothing_goes_wrong_at_length(policy: str, story: Story) -> None:
    live_through(story, policy)


@st.composite
def counted(draw: st.DrawFn) -> list[Submission]:
    """Jobs of tasks of one device, for which only the number of free devices matters."""
    now_s = 0.0
    submissions = []
    for number in range(draw(st.integers(1, 12))):
        now_s += draw(st.integers(0, 10))
        asked = job(
            f"j{number}",
            workers=draw(st.integers(1, 6)),
            work=float(draw(st.integers(1, 40))),
            priority=draw(st.integers(0, 2)),
            tenant=TenantId(draw(st.sampled_from(["red", "blue"]))),
        )
        submissions.append(Submission(job=asked, submit_s=now_s))
    return submissions


def ends(submissions: list[Submission], sizes: Sequence[int], policy: str) -> list[tuple[float | None, int]]:
    """When each job ended, and how often it was stopped before."""
    of = cluster(*(node(f"n{number}", size) for number, size in enumerate(sizes)))
    workload = Workload(submissions=tuple(submissions), source="test", format="rota")
    history = simulate(workload, policy, Setting(cluster=of, placement="any")).history
    return [(row.end_s, row.preemptions) for row in history.jobs]


@pytest.mark.slow
@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy not in BY_SERVER])
@given(submissions=counted(), sizes=st.permutations([1, 2, 3]))
@settings(max_examples=5)
def test_order_of_the_nodes_does_not_matter(policy: str, submissions: list[Submission], sizes: list[int]) -> None:
    assert ends(submissions, sizes, policy) == ends(submissions, [1, 2, 3], policy)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@given(submissions=counted())
@settings(max_examples=5)
def test_nobody_is_stopped_when_everybody_fits(policy: str, submissions: list[Submission]) -> None:
    gpus = sum(int(submission.job.gpus) for submission in submissions)
    soonest = [one.submit_s + (one.job.work or 0.0) for one in submissions]

    found = ends(submissions, [gpus], policy)

    assert [stops for _, stops in found] == [0] * len(submissions)
    if policy in IN_ROUNDS:
        late = [(end_s or math.inf) - soon_s for (end_s, _), soon_s in zip(found, soonest, strict=True)]
        assert all(-1e-9 <= seconds <= ROUND_S + 1e-9 for seconds in late)
    else:
        assert [end_s for end_s, _ in found] == soonest
