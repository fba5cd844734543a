"""Rota's own policy between the users of a tenant: equal demand gets equal usage over time, in however many jobs."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import World, job
from rota.core.messages.events import TimerFired
from rota.core.model.cluster import Cluster
from rota.core.model.job import TenantId
from rota.core.state.history import History
from rota.drivers.simulator.study import Setting, simulate
from rota.mechanisms.declare import Knowledge
from rota.perf.speed.model import Costs
from rota.placement import style
from rota.policies import find_policy
from rota.policies.own.levels import Levels
from rota.policies.own.order import SHORT
from rota.policies.own.params import RotaParams
from rota.tenancy.open import OpenAllocator
from rota.traces.workload import Submission, Workload

DEVICES = 8
SIZE_S = 1200.0
HOURS = 36.0


def demand(users: dict[str, int], *, seed: int, hours: float = HOURS, load: float = 3.0) -> Workload:
    """Jobs of users of one tenant who ask for the same at the same times, each splitting its jobs in so many parts."""
    submissions = []
    for user, parts in users.items():
        rng = random.Random(seed)
        now_s = 0.0
        for number in range(10_000):
            now_s += rng.expovariate(load / len(users) * DEVICES / (1.5 * SIZE_S * math.exp(0.5)))
            if now_s > hours * 3600:
                break
            workers, work = rng.choice((1, 2)), SIZE_S * rng.lognormvariate(0.0, 1.0)
            for part in range(parts):
                asked = replace(job(f"{user}-{number}-{part}", workers=workers, work=work / parts), user=user)
                submissions.append(Submission(job=asked, submit_s=now_s))
    submissions.sort(key=lambda each: each.submit_s)
    return Workload(submissions=tuple(submissions), source="test", format="rota")


def simulated(workload: Workload, policy: str) -> History:
    setting = Setting(cluster=Cluster.uniform(("gpu", DEVICES, 4)), costs=Costs(restart_s=5.0))
    return simulate(workload, policy, setting).history


def share_of(user: str, history: History) -> float:
    """The user's part of the device time of jobs that ended in the second half of the time."""
    used = {"": 1e-9}
    for row in history.jobs:
        if row.end_s is not None and HOURS * 1800 < row.end_s <= HOURS * 3600:
            used[row.user] = used.get(row.user, 0.0) + row.gpu_s
    return used.get(user, 0.0) / math.fsum(used.values())


def completion_s(user: str, history: History) -> float:
    """The mean time from submission to the end of the last part, over the user's jobs."""
    spans: dict[str, tuple[float, float]] = {}
    for row in history.jobs:
        assert row.end_s is not None
        if row.user == user:
            whole = row.id.rpartition("-")[0]
            start_s, end_s = spans.get(whole, (row.submit_s, 0.0))
            spans[whole] = (start_s, max(end_s, row.end_s))
    return statistics.mean(end_s - start_s for start_s, end_s in spans.values())


@pytest.mark.slow
@given(seed=st.integers(0, 99), parts=st.sampled_from([1, 10]))
@settings(max_examples=4, deadline=None)
def test_usage_of_users_of_equal_demand_converges(seed: int, parts: int) -> None:
    """Three times as much is asked for as there is; one user may split its jobs."""
    workload = demand({"ann": parts, "bob": 1}, seed=seed)

    assert share_of("ann", simulated(workload, "rota:lenient=4")) == pytest.approx(0.5, abs=0.15)


@pytest.mark.slow
def test_user_who_splits_gets_nearly_all_unless_the_past_counts() -> None:
    """The same workload by how leniently the past counts."""
    workload = demand({"ann": 10, "bob": 1}, seed=1)

    shares = [share_of("ann", simulated(workload, f"rota:{rule}")) for rule in ("half_life_s=0", "lenient=16")]

    assert shares[0] > 0.85
    assert shares[1] < 0.75


@pytest.mark.slow
@given(seed=st.integers(0, 99))
@settings(max_examples=2, deadline=None)
def test_splitting_gains_hardly_anything(seed: int) -> None:
    """A user's jobs end hardly earlier in ten parts than whole, though the parts of a job can run at once."""
    whole = simulated(demand({"ann": 1, "bob": 1}, seed=seed), "rota:lenient=4")
    split = simulated(demand({"ann": 10, "bob": 1}, seed=seed), "rota:lenient=4")

    assert completion_s("ann", split) > 0.8 * completion_s("ann", whole)
    assert completion_s("bob", split) < 1.3 * completion_s("bob", whole)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=8, deadline=None)
def test_one_user_per_tenant_changes_nothing(seed: int) -> None:
    made = demand({"ann": 3, "bob": 1, "cem": 1}, seed=seed, hours=6.0)
    alone = tuple(replace(each, job=replace(each.job, tenant=TenantId(each.job.user))) for each in made.submissions)
    workload = replace(made, submissions=alone)

    assert simulated(workload, "rota").jobs == simulated(workload, "rota:half_life_s=0").jobs


def flooded(policy: str, *, limit_s: float = 60_000.0) -> World:
    """A device on which `ann` ran jobs of 140 s for 17 hours, and `bob` a long job since; another of `ann` waits."""
    world = World(gpus=1, policy=policy)
    number = 0
    while world.now_s < limit_s:
        world.settle(world.submit(job=replace(job(f"a{number}"), user="ann")))
        world.pass_s(140.0)
        world.settle(world.ended(f"a{number}"))
        number += 1
    world.settle(world.submit(job=replace(job("b"), user="bob")))
    world.settle(world.timer(world.now_s + 1500.0))
    world.settle(world.submit(job=replace(job("last"), user="ann")))
    return world


@pytest.mark.parametrize(("policy", "displaces"), [("rota:lenient=16", False), ("rota:half_life_s=0", True)])
def test_user_who_flooded_does_not_displace_another(policy: str, displaces: bool) -> None:
    world = flooded(policy)

    assert world.live("last").holds is displaces


def test_long_job_in_the_past_holds_up_no_short_one() -> None:
    """`ann` had ten hours, but in one job; at the level of a new job she had no more than others."""
    world = World(gpus=1, policy="rota")
    world.settle(world.submit(job=replace(job("long"), user="ann")))
    world.settle(world.timer(36_000.0))
    world.settle(world.ended("long"))
    world.settle(world.submit(job=replace(job("b"), user="bob")))
    world.settle(world.timer(37_500.0))

    world.settle(world.submit(job=replace(job("last"), user="ann")))

    assert world.live("last").holds


def test_the_past_fades() -> None:
    """After ten half-lives without jobs, the user displaces others again."""
    world = flooded("rota:half_life_s=86400,lenient=4")
    assert not world.live("last").holds

    world.settle(world.ended("last"))
    world.settle(world.ended("b"))
    world.pass_s(10 * 86400.0)
    world.settle(world.submit(job=replace(job("c"), user="bob")))
    world.settle(world.timer(world.now_s + 1500.0))
    world.settle(world.submit(job=replace(job("again"), user="ann")))

    assert world.live("again").holds


def test_restart_keeps_the_past_of_users() -> None:
    """A policy that takes over in the middle of a run ranks users as the former one did."""
    world = flooded("rota")
    declared, options = find_policy("rota")
    twin = world.engine.fork(declared.build(options, OpenAllocator(style("consolidate")), Knowledge()))
    now_s = world.now_s + 600.0

    twin.step(now_s, [TimerFired()])
    world.timer(now_s)

    assert sum(world.engine.state.past["rota"]["default\tann"][:-1]) > 50_000.0
    for user, service in world.engine.state.past["rota"].items():
        assert twin.state.past["rota"][user] == pytest.approx(service)


# -- the bound -----------------------------------------------------------------------------------


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Submission, ...]:
    """Jobs of tasks of one device of two users, long enough to pass several levels."""
    now_s = 0.0
    submissions = []
    for number in range(draw(st.integers(2, 16))):
        now_s += draw(st.integers(0, 300))
        asked = job(f"j{number}", workers=draw(st.integers(1, 4)), work=float(draw(st.integers(1, 3000))))
        submissions.append(Submission(job=replace(asked, user=draw(st.sampled_from("ab"))), submit_s=now_s))
    return tuple(submissions)


@pytest.mark.slow
@given(submissions=workloads(), margin=st.sampled_from([0, 2]), half_life_s=st.sampled_from([600.0, 6e5]))
@settings(max_examples=40, deadline=None)
def test_users_ahead_wait_as_if_their_jobs_had_that_service(
    submissions: tuple[Submission, ...], margin: int, half_life_s: float
) -> None:
    """The bound holds with the level of what the user is ahead by, which is less than all that it had."""
    workload = Workload(submissions=submissions, source="test", format="rota")
    setting = Setting(cluster=Cluster.uniform(("gpu", 4, 4)), placement="any")
    policy = f"rota:base_gpu_s=100,growth=2,margin={margin},learned=false,users=false,half_life_s={half_life_s:g}"

    history = simulate(workload, policy, setting).history

    levels = Levels(100.0, 2.0)
    for row in history.jobs:
        assert row.end_s is not None
        ahead = math.fsum(each.gpu_s for each in history.jobs if each.user == row.user)
        level = max(levels.of(row.gpu_s), levels.of(ahead / RotaParams().lenient))
        limit = levels.limit(level + margin if level >= SHORT else level)
        had = [
            limit if level < SHORT else limit / ((4 - other.gpus + 1) / 4)
            for other in history.jobs
            if other.end_s is not None and other.submit_s < row.end_s and other.end_s > row.submit_s
        ]
        assert row.end_s - row.submit_s <= row.run_s + math.fsum(had) / (4 - row.gpus + 1) + 1e-6
