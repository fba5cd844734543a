"""The preemption guard under every policy that asks it: protected jobs keep their devices, and no job starves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import World, at_once, in_rounds, job, stop
from rota.core.engine.engine import Engine
from rota.core.engine.invariants import check
from rota.core.engine.preemption_guard import OPEN, PreemptionGuard
from rota.core.errors import RotaError
from rota.core.messages import events as told
from rota.core.messages.decisions import Cause, Decision, Move, Resize, Stop
from rota.core.messages.reasons import Reason
from rota.core.model.cluster import Cluster
from rota.core.model.job import OPPORTUNISTIC, Checkpoint, DeviceType, Job, JobId, TenantId
from rota.core.model.placement import Placement, same_devices
from rota.core.model.tenants import Share, TenantPlan
from rota.core.state.state import State
from rota.drivers.simulator.run import run
from rota.drivers.simulator.study import Setting, scheduler
from rota.drivers.simulator.world import World as SimulatedWorld
from rota.mechanisms.guarded import read_guard, with_guard
from rota.perf.speed.model import Costs
from rota.placement import style
from rota.policies import find_policy, names
from rota.tenancy import allocator
from strategies import Story, stories

MIN_RUN_S = 12.0
GUARD = f"protect=unsaved,min_run_s={MIN_RUN_S:g}"
SAVES = Checkpoint()


def guarded(policy: str, options: str = GUARD) -> str:
    """The policy with the guard's options."""
    return f"{policy},{options}" if ":" in policy else f"{policy}:{options}"


def asking() -> list[str]:
    """The policies that ask the guard, and one that consolidates."""
    return [*at_once(), "las:consolidate_s=20"]


class GuardWatch:
    """A journal that fails when a protected job is stopped, moved or resized. The rule is written out again here."""

    def __init__(self, story: Story, policy: str) -> None:
        built, alloc, _ = scheduler(policy, Setting(cluster=story.cluster, placement=story.placement))
        self.engine = Engine(State(story.cluster), built, alloc, journal=self)
        self.stops = 0
        self._held: dict[JobId, Placement] = {}
        """What each job held at the end of the last step."""

    def append(
        self,
        now_s: float,
        events: Sequence[told.Event],
        decisions: Sequence[Decision],
        waits: Sequence[tuple[JobId, Reason]],
    ) -> None:
        """One step is over."""
        check(self.engine.state)
        for decision in decisions:
            live = self.engine.state.live(decision.job_id)
            match decision:
                case Stop(cause=Cause.PREEMPTED | Cause.MOVED) | Move():
                    self._refuse_protected(live.job, live.preemptions, live.since_s, now_s)
                case Resize(placement=after) if not same_devices(self._held[decision.job_id], after):
                    self._refuse_protected(live.job, live.preemptions, live.since_s, now_s)
        jobs = self.engine.state.jobs.values()
        self._held = {live.job.id: live.placement for live in jobs if live.placement is not None}

    def _refuse_protected(self, job: Job, times: int, since_s: float, now_s: float) -> None:
        self.stops += 1
        saves = job.checkpoint is not None
        assert saves or job.preemptible or job.priority == OPPORTUNISTIC, f"{job.id} lost its work at {now_s}"
        least_s = MIN_RUN_S * (1 + times if saves else 2**times)
        assert now_s >= since_s + least_s, f"{job.id} ran for {now_s - since_s}, not {least_s}"


def live_through(story: Story, policy: str) -> GuardWatch:
    """Run a story to its end under a guarded policy, watched."""
    submissions = tuple(
        replace(each, job=replace(each.job, preemptible=number % 4 == 0))
        for number, each in enumerate(story.submissions)
    )
    watch = GuardWatch(story, policy)
    costs = Costs(
        restart_s=story.restart_s,
        checkpoint_interval_s=story.checkpoint_interval_s,
        checkpoint_s=story.checkpoint_s,
    )
    world = SimulatedWorld(story.cluster, story.speed, costs)
    run(watch.engine, world, submissions, faults=iter(story.misfortunes))
    assert all(live.state.is_final for live in watch.engine.state.jobs.values())
    return watch


@pytest.mark.slow
@pytest.mark.parametrize("policy", asking())
@given(story=stories())
@settings(max_examples=8)
def test_protected_jobs_keep_their_devices_and_every_job_ends(policy: str, story: Story) -> None:
    live_through(story, guarded(policy))


@pytest.mark.long
@pytest.mark.parametrize("policy", asking())
@given(story=stories())
@settings(max_examples=150)
def test_protected_jobs_keep_their_devices_at_length(policy: str, story: Story) -> None:
    live_through(story, guarded(policy))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["priority", "las", "srtf"])
@given(story=stories())
@settings(max_examples=15, deadline=None)
def test_protected_jobs_keep_their_devices_under_usual_policies(policy: str, story: Story) -> None:
    live_through(story, guarded(policy))


@pytest.mark.parametrize("policy", [each for each in in_rounds() if not each.startswith(("optimus", "pollux", "sia"))])
def test_policy_that_stops_by_rounds_refuses_the_guard(policy: str) -> None:
    with pytest.raises(RotaError, match="stops jobs by rounds and can't spare any"):
        World(policy=guarded(policy)).submit("j")


@pytest.mark.parametrize("policy", names())
def test_declaration_and_scheduler_agree_on_whether_the_guard_is_asked(policy: str) -> None:
    declared, options = find_policy(policy)

    assert declared.build(options, allocator("none", style("any"))).capabilities.asks_guard is declared.asks_guard


# -- single decisions --------------------------------------------------------------------------


@pytest.mark.parametrize("saves", [None, Checkpoint(interval_s=math.inf)], ids=["says nothing", "never saves"])
def test_job_that_cannot_resume_keeps_its_devices_from_any_priority(saves: Checkpoint | None) -> None:
    world = World(gpus=1).running("mine", checkpoint=saves)

    assert world.pass_s(1e6).submit("theirs", priority=1000, policy=guarded("priority")) == []
    assert world.engine.wakeup_s == math.inf


@pytest.mark.parametrize("fields", [{"checkpoint": SAVES}, {"preemptible": True}], ids=["saves", "preemptible"])
def test_job_is_stopped_once_it_has_run_long_enough(fields: dict[str, Any]) -> None:
    world = World(gpus=1).running("mine", **fields)

    assert world.pass_s(5).submit("theirs", priority=1, policy=guarded("priority")) == []
    assert world.engine.wakeup_s == MIN_RUN_S
    assert world.timer(at_s=MIN_RUN_S) == [stop("mine")]


def test_opportunistic_job_is_preemptible() -> None:
    world = World(gpus=1).running("filler", priority=OPPORTUNISTIC)

    assert world.pass_s(MIN_RUN_S).submit("j", policy=guarded("priority")) == [stop("filler")]


def test_protected_job_is_passed_over_for_the_next_victim() -> None:
    world = World(gpus=2).running("saves", checkpoint=SAVES).pass_s(1).running("younger")

    assert world.pass_s(60).submit("j", priority=1, policy=guarded("priority")) == [stop("saves")]


def test_borrowed_devices_are_reclaimed_from_a_job_that_cannot_resume() -> None:
    plan = TenantPlan(shares={TenantId(name): Share(guaranteed={DeviceType("gpu"): 1}) for name in ("red", "blue")})
    of = Cluster(nodes=Cluster.uniform(("gpu", 2, 2)).nodes, tenants=plan)
    world = World(of=of, tenancy="quota", policy=guarded("priority"))
    world.settle(world.submit("one", tenant="red"))
    world.settle(world.submit("borrows", tenant="red"))

    assert world.pass_s(1).submit("j", tenant="blue") == [stop("borrows")]


def test_published_policies_protect_no_job_by_default() -> None:
    world = World(gpus=1).running("mine")

    assert world.submit("theirs", priority=1, policy="priority") == [stop("mine")]
    assert find_policy("priority")[0].live == ""


# -- no job starves ----------------------------------------------------------------------------


@pytest.mark.slow
@given(
    length_s=st.floats(1.0, 5000.0),
    min_run_s=st.floats(1.0, 60.0),
    growth=st.sampled_from([1.5, 2.0, 3.0]),
    gaps_s=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=20),
)
@settings(max_examples=60, deadline=None)
def test_job_that_starts_over_ends_however_often_others_arrive(
    length_s: float, min_run_s: float, growth: float, gaps_s: list[float]
) -> None:
    """An attacker submits a more urgent job as soon as the last has ended; the victim loses its work each time."""
    options = f"protect=unsaved,min_run_s={min_run_s!r},min_run_growth={growth!r}"
    world = World(gpus=1, policy=guarded("priority", options))
    world.settle(world.submit("victim", preemptible=True))
    stops = lost_s = 0.0
    for attempt in range(60):
        live = world.live("victim")
        begun_s = world.now_s
        world.pass_s(gaps_s[attempt % len(gaps_s)])
        if world.now_s >= begun_s + length_s:
            break
        decisions = world.submit(f"a{attempt}", priority=5)
        if not decisions:
            wait_s = min(world.engine.wakeup_s, begun_s + length_s)
            assert wait_s < math.inf
            decisions = world.timer(at_s=wait_s)
        if not decisions or world.now_s >= begun_s + length_s:
            break
        assert decisions == [stop("victim")]
        stops += 1
        lost_s += world.now_s - begun_s
        world.settle(world.stopped("victim", work=0.0))
        world.pass_s(0.5)
        world.settle(world.ended(f"a{attempt}"))
        assert live.state.value == "running"
    else:
        pytest.fail("the victim never ended")
    assert stops <= 1 + max(math.log(length_s / min_run_s, growth), 0.0) + 1e-9
    assert lost_s <= stops * length_s


@given(times=st.integers(0, 500), saves=st.booleans())
def test_protected_time_grows_with_each_attempt(times: int, saves: bool) -> None:
    world = World(gpus=1).running("j", preemptible=True, checkpoint=SAVES if saves else None)
    guard = PreemptionGuard(protects_unsaved=True, min_run_s=10.0)
    live = world.live("j")
    live.preemptions = times
    before_s = guard.protected_until_s(live)
    live.preemptions = times + 1

    assert guard.protected_until_s(live) >= before_s
    assert times > 40 or guard.protected_until_s(live) > before_s


# -- options -----------------------------------------------------------------------------------


def test_options_of_the_guard_are_read_and_written() -> None:
    guard = PreemptionGuard(protects_unsaved=True, min_run_s=30.0, growth=3.0)

    assert read_guard(with_guard("aging=2", guard), "policy 'priority'") == ("aging=2", guard)
    assert with_guard("min_run_s=5", guard) == "min_run_s=5,protect=unsaved,min_run_growth=3"
    assert read_guard("aging=2", "policy 'priority'") == ("aging=2", OPEN)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("protect=all", "policy 'priority': protect is 'all'; it must be one of none, unsaved"),
        ("min_run_s=soon", "policy 'priority': min_run_s is 'soon'; it must be a number"),
        ("min_run_s=-1", "policy 'priority': min_run_s is -1; it must be a number of seconds of 0 or more"),
        ("min_run_s=nan", "policy 'priority': min_run_s is nan; it must be"),
        ("min_run_growth=1", "policy 'priority': min_run_growth is 1; it must be above 1"),
        ("min_run_s=1,min_run_s=2", "policy 'priority': parameter 'min_run_s' is given twice"),
    ],
)
def test_bad_options_are_refused_by_name(options: str, words: str) -> None:
    with pytest.raises(RotaError, match=f"^{words}"):
        find_policy("priority")[0].read(options)


def test_waiting_job_is_not_protected() -> None:
    world = World(gpus=1).running("j")
    world.submit("waits", job=job("waits", checkpoint=SAVES))

    assert PreemptionGuard(min_run_s=10.0).protected_until_s(world.live("waits")) == -math.inf
