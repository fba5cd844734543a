"""Rota's own policy on jobs of fixed size: levels, what is known beyond them, and the bound on waiting."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import World, job, on, start, stop
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.state.history import History
from rota.drivers.simulator.study import Setting, simulate
from rota.mechanisms.declare import Knowledge
from rota.perf.speed.model import Costs
from rota.perf.training.reports import OVERSTATES, REPORTS, SimulatedReports
from rota.placement import style
from rota.policies import find_policy
from rota.policies.own.levels import Levels
from rota.policies.own.order import SHORT, RankMemo, ServiceOrder
from rota.policies.own.params import RotaParams
from rota.policies.own.predictions import ENOUGH, GroupPredictor
from rota.tenancy.open import OpenAllocator
from rota.traces.workload import Submission, Workload

PLAIN = "rota:base_gpu_s=100,growth=2,margin=0,progress=false,declared=false,learned=false"


@pytest.mark.parametrize(
    ("gpu_s", "level"), [(0.0, 0), (99.0, 0), (100.0, 1), (199.0, 1), (200.0, 2), (1600.0, 5), (math.inf, 10_000)]
)
def test_levels_double(gpu_s: float, level: int) -> None:
    levels = Levels(100.0, 2.0)

    assert levels.of(gpu_s) == level


@given(gpu_s=st.floats(0, 1e12), growth=st.floats(1.01, 16))
def test_a_level_ends_above_the_service_in_it(gpu_s: float, growth: float) -> None:
    levels = Levels(150.0, growth)

    level = levels.of(gpu_s)

    assert gpu_s < levels.limit(level)
    assert level == 0 or gpu_s >= levels.limit(level - 1) - 1e-5


def test_starved_job_displaces_one_of_a_higher_level() -> None:
    world = World(gpus=4).running("fed", gpus=4, attained_gpu_s=200.0)

    assert world.submit("starved", gpus=4, policy=PLAIN) == [stop("fed")]
    assert world.stopped("fed") == [start("starved", on("n1", 4))]


def test_job_loses_its_devices_when_it_reaches_the_next_level() -> None:
    """Two devices use up the 100 device-seconds of the first level in 50 s."""
    world = World(gpus=2, policy=PLAIN)
    world.settle(world.submit("a", gpus=2))
    world.pass_s(10.0)
    assert world.submit("b", gpus=2) == []

    assert world.engine.wakeup_s == 50.0
    assert world.settle(world.timer(50.0)) == [stop("a"), start("b", on("n1", 2))]


def test_levels_are_looked_at_only_when_a_job_waits() -> None:
    world = World(gpus=2, policy=PLAIN)
    world.settle(world.submit("a", gpus=2))

    assert world.engine.wakeup_s == math.inf
    world.pass_s(250.0)
    assert world.settle(world.submit("b", gpus=2)) == [stop("a"), start("b", on("n1", 2))]
    assert world.engine.wakeup_s == 300.0


def test_job_that_just_started_is_not_stopped_while_a_restart_costs_more() -> None:
    world = World(gpus=1, policy=PLAIN + ",settle=3", restart_s=20.0)
    world.settle(world.submit("a"))
    world.settle(world.timer(100.0))
    world.settle(world.submit("b"))
    world.pass_s(50.0)
    world.settle(world.ended("b"))
    world.pass_s(10.0)

    assert world.submit("c") == []
    assert world.engine.wakeup_s == 150.0 + 3 * 20.0
    assert world.settle(world.timer(210.0)) == [stop("a"), start("c", on("n1", 1))]


def test_job_of_the_first_levels_displaces_all_above() -> None:
    world = World(gpus=1, policy=PLAIN.replace("margin=0", "margin=2")).running("fed", attained_gpu_s=800.0)

    assert world.submit("new") == [stop("fed")]


def test_first_level_lasts_for_five_restarts() -> None:
    world = World(gpus=1, policy=PLAIN, restart_s=60.0)
    world.settle(world.submit("a"))

    assert world.submit("b") == []
    assert world.engine.wakeup_s == 300.0


def test_users_take_turns_in_a_level_and_small_gangs_go_first() -> None:
    """One device is free at a time; the second and third job of `ann` wait for the first of `bob`."""
    world = World(gpus=2, policy=PLAIN)
    world.settle(world.submit("running", gpus=2))
    for name, user, gpus in (("a1", "ann", 1), ("a2", "ann", 1), ("a3", "ann", 1), ("b1", "bob", 1), ("c1", "cem", 2)):
        assert world.submit(job=replace(job(name, gpus=gpus), user=user)) == []

    assert world.settle(world.ended("running")) == [start("a1", on("n1", [0])), start("b1", on("n1", [1]))]


def test_priority_comes_before_levels() -> None:
    world = World(gpus=1, policy=PLAIN).running("urgent", attained_gpu_s=5000.0)
    live = world.live("urgent")
    live.job = replace(live.job, priority=1)

    assert world.submit("new") == []


def reporting(name: str, work: float, **claims: float) -> object:
    return replace(job(name, work=work), labels=tuple((label, f"{value:g}") for label, value in claims.items()))


def order(**params: object) -> ServiceOrder:
    values = RotaParams(**{"base_gpu_s": 100.0, "growth": 2.0, "margin": 0, **params})  # type: ignore[arg-type]  # names are checked by the dataclass
    return ServiceOrder(values, Knowledge(reports=SimulatedReports()))


@pytest.mark.parametrize(("attained_gpu_s", "keeps"), [(3000.0, True), (3300.0, False)])
def test_running_job_yields_only_to_one_of_far_less_service(attained_gpu_s: float, keeps: bool) -> None:
    """Levels end at 100, 200, 400, 800...; a job at the fourth displaces from the seventh on, with a margin of two."""
    fed = World(gpus=1, policy="fifo").running("fed", attained_gpu_s=attained_gpu_s)
    world = World(gpus=1, policy="fifo").running("other")
    world.submit("hungry")
    hungry = world.live("hungry")
    hungry.attained_milli_s = 500_000.0
    rule = order(margin=2)

    assert (rule.turn(fed.live("fed"), fed.now_s).key < rule.turn(hungry, world.now_s).key) is keeps


def level_after(seconds: float, rule: ServiceOrder, **claims: float) -> int:
    """The level of a job of 1,000 s that has run so long, looked at whenever the order asks for it."""
    world = World(gpus=1, policy="fifo")
    world.settle(world.submit(job=reporting("a", 1000.0, **claims)))
    now_s = 0.0
    while True:
        turn = rule.turn(world.live("a"), now_s)
        world.live("a").remember(turn.memo)
        if turn.until_s > seconds:
            return int(rule.turn(world.live("a"), seconds).key[1])
        now_s = turn.until_s


def test_job_that_reports_its_progress_rises_again_near_its_end() -> None:
    assert level_after(950.0, order(), **{REPORTS: 20.0}) == 0
    assert level_after(950.0, order(progress=False), **{REPORTS: 20.0}) == 4
    assert level_after(950.0, order()) == 4


def test_false_reports_are_believed_once() -> None:
    """A job that says early on that it is nearly done has what it claimed, and a first level more, then no trust."""
    lie = {REPORTS: 1000.0, OVERSTATES: 1000.0}

    assert level_after(150.0, order(), **lie) == 0
    assert level_after(950.0, order(), **lie) == 4


def test_predictor_trusts_only_what_came_true() -> None:
    steady, wild = GroupPredictor(), GroupPredictor()
    for number in range(ENOUGH):
        assert steady.predict("g") is None
        steady.learn("g", 1000.0)
        wild.learn("g", 10.0 ** (number % 4))

    assert steady.predict("g") == pytest.approx(1000.0)
    assert wild.predict("g") is None
    again = GroupPredictor()
    again.recall(steady.memory)
    assert again.predict("g") == pytest.approx(1000.0)


@pytest.mark.parametrize(("factor", "trusted"), [((10.0,), True), ((0.1, 10.0), False)], ids=["constant", "noise"])
def test_declared_lengths_are_corrected_or_ignored(factor: tuple[float, ...], trusted: bool) -> None:
    """Lengths that are always 10 times too long are divided by 10; those that are wrong either way are not used."""
    rule = order(learned=False)
    for number in range(20):
        world = World(gpus=1).running("a", work=500.0, attained_gpu_s=500.0)
        live = world.live("a")
        live.job = replace(live.job, estimate_s=500.0 * factor[number % len(factor)])
        rule.ended(live, world.now_s)

    found = rule.predicted_gpu_s(live)

    assert found == (pytest.approx(500.0 * factor[19 % len(factor)] / 10) if trusted else 0.0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("base_gpu_s=0", "base_gpu_s is 0"),
        ("growth=1", "growth is 1"),
        ("settle=-1", "settle is -1"),
        ("spread=-1", "spread is -1"),
    ],
)
def test_odd_parameters_are_refused(options: str, text: str) -> None:
    with pytest.raises(RotaError, match=text):
        find_policy("rota")[0].read(options)


@pytest.mark.parametrize(
    ("now_s", "level", "until_s"),
    [(400.0, 3, 500.0), (500.0, 2, 800.0), (1000.0, 4, 1600.0)],
    ids=["early", "urgent", "missed"],
)
def test_deadline_lifts_a_job_by_one_level_while_it_can_be_met(now_s: float, level: int, until_s: float) -> None:
    """It runs from 0 on one device, so that its service is the time."""
    world = World(gpus=1, policy="fifo")
    world.settle(world.submit(job=replace(job("a", work=1e6), deadline_s=1000.0)))
    live = world.live("a")

    found = order().turn(live, now_s)

    assert (found.key[1], found.until_s) == (level, until_s)
    assert order(deadlines=False).turn(live, now_s).key[1] == Levels(100.0, 2.0).of(now_s)


@given(
    predicted=st.one_of(st.just(0.0), st.floats(1.0, 20_000.0)),
    margin=st.sampled_from([0, 1, 2]),
    deadline_s=st.one_of(st.none(), st.floats(1.0, 5000.0)),
    workers=st.sampled_from([1, 2, 7, 8]),
    between=st.lists(st.floats(0, 1), min_size=1, max_size=3),
)
@settings(max_examples=120, deadline=None)
def test_place_of_a_running_job_stays_until_it_is_looked_at_again(
    predicted: float, margin: int, deadline_s: float | None, workers: int, between: list[float]
) -> None:
    """It runs from 0 on some of eight devices; a few looks are enough for its whole life."""
    world = World(gpus=8, policy="fifo")
    world.settle(world.submit(job=replace(job("a", workers=workers, work=1e6), deadline_s=deadline_s)))
    live, rule, now_s, looks = world.live("a"), order(margin=margin), 0.0, 0
    rule.counts_devices(world.engine.state.inventory)
    live.remember(RankMemo(predicted))
    while now_s < 30_000.0:
        turn = rule.turn(live, now_s)
        for part in between:
            then_s = now_s + part * max(turn.until_s - 0.002 - now_s, 0.0)
            assert rule.turn(live, then_s).key == turn.key
        now_s, looks = turn.until_s, looks + 1

    assert looks <= (2 if workers == 1 else 4) * Levels(100.0, 2.0).of(30_000.0 * workers) + 5


def test_price_of_spreading_decides_the_placement() -> None:
    declared = find_policy("rota")[0]

    assert declared.placement_with("") == "consolidate"
    assert declared.placement_with("spread=0.25") == "consolidate:relax_after=600,per_run=0.25"


@pytest.mark.parametrize(
    ("policy", "start_s"), [("rota:growth=2", 50.0), ("rota:growth=2,spread=0.25", 150.0)], ids=["spreads", "waits"]
)
def test_gang_waits_for_one_node_where_spreading_has_a_price(policy: str, start_s: float) -> None:
    """One device of each node is free from 50 s on; after 150 s a running job is of a higher level and gives way."""
    jobs = [(job(name, work=work), 0.0) for name, work in (("a", 900.0), ("b", 50.0), ("c", 900.0), ("d", 50.0))]
    jobs.append((job("gang", workers=2, work=20.0), 40.0))
    submissions = tuple(Submission(job=each, submit_s=at_s) for each, at_s in jobs)
    workload = Workload(submissions=submissions, source="test", format="rota")

    history = simulate(workload, policy, Setting(cluster=Cluster.uniform(("gpu", 4, 2)))).history

    assert history.jobs[4].start_s == pytest.approx(start_s)


def test_wait_for_one_node_grows_with_the_time_that_a_job_ran() -> None:
    live = World(gpus=1).running("a", attained_gpu_s=1000.0).live("a")

    stage = OpenAllocator(style("consolidate:relax_after=60,per_run=0.25")).stage

    assert stage(live, 309.0) == (0, 310.0)
    assert stage(live, 310.0)[0] == 1


# -- the bound -----------------------------------------------------------------------------------


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Submission, ...]:
    """Jobs of tasks of one device, long enough to pass several levels."""
    now_s = 0.0
    submissions = []
    for number in range(draw(st.integers(2, 14))):
        now_s += draw(st.integers(0, 300))
        asked = job(f"j{number}", workers=draw(st.integers(1, 4)), work=float(draw(st.integers(1, 3000))))
        submissions.append(Submission(job=asked, submit_s=now_s))
    return tuple(submissions)


def bound_s(history: History, at: int, *, devices: int, base: float, growth: float, margin: int) -> float:
    """The longest that a job may take: its own run, and what all may have up to its level on the devices it can't have.

    From the level on at which running jobs are kept, the level counts that ends `margin` levels later, and a gang may
    have more by the room that it leaves.
    """
    row = history.jobs[at]
    assert row.end_s is not None
    levels = Levels(base, growth)
    level = levels.of(row.gpu_s)
    if level > SHORT:
        level = max(levels.of(row.gpu_s * room(row.gpus, devices)), SHORT)
    limit = levels.limit(level + margin if level >= SHORT else level)
    had = [
        limit if level < SHORT else limit / room(other.gpus, devices)
        for other in history.jobs
        if other.end_s is not None and other.submit_s < row.end_s and other.end_s > row.submit_s
    ]
    return row.run_s + math.fsum(had) / (devices - row.gpus + 1)


def room(gpus: float, devices: int) -> float:
    return (devices - gpus + 1) / devices


@pytest.mark.slow
@given(
    submissions=workloads(),
    growth=st.sampled_from([1.5, 2.0, 4.0]),
    margin=st.sampled_from([0, 2]),
    restart_s=st.sampled_from([0.0, 5.0]),
)
@settings(max_examples=40, deadline=None)
def test_no_job_takes_longer_than_the_bound(
    submissions: tuple[Submission, ...], growth: float, margin: int, restart_s: float
) -> None:
    """No job waits longer than N jobs take to leave the levels up to its own."""
    workload = Workload(submissions=submissions, source="test", format="rota")
    setting = Setting(cluster=Cluster.uniform(("gpu", 4, 4)), placement="any", costs=Costs(restart_s=restart_s))
    policy = PLAIN.replace("margin=0", f"margin={margin}").replace("growth=2", f"growth={growth}")

    history = simulate(workload, policy, setting).history

    for at, row in enumerate(history.jobs):
        assert row.end_s is not None
        assert (
            row.end_s - row.submit_s <= bound_s(history, at, devices=4, base=100.0, growth=growth, margin=margin) + 1e-6
        )
