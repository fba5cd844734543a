"""Rota's own policy where speeds of pairs are measured: jobs that gain share devices, and levels still decide."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import job
from rota.core.messages.decisions import DecisionKind
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, Elastic, Job
from rota.core.state.history import History
from rota.drivers.simulator.study import Setting, simulate
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import Costs, SpeedModel
from rota.policies import find_policy
from rota.policies.own.levels import Levels
from rota.policies.own.order import SHORT
from rota.traces.workload import Submission, Workload

GPU = DeviceType("gpu")
LIGHT, HEAVY, LOPSIDED, UNKNOWN, WIDE = "light", "heavy", "lopsided", "unknown", "wide"
ALONE = 1.0
PAIRS = {
    (LIGHT, LIGHT): (0.8, 0.8),
    (LIGHT, HEAVY): (0.6, 0.55),
    (HEAVY, HEAVY): (0.5, 0.5),
    (LIGHT, LOPSIDED): (1.0, 0.4),
}
SPEED = SpeedModel(
    profiles=Profiles(
        steps_per_s={(GPU, model, 1): ALONE for model in (LIGHT, HEAVY, LOPSIDED, UNKNOWN)}
        | {(GPU, WIDE, devices): float(devices) for devices in (1, 2, 3)},
        pairs={
            (GPU, *names, 1): rates
            for (one, other), (first, second) in PAIRS.items()
            for names, rates in (((one, other), (first, second)), ((other, one), (second, first)))
        },
        source="test",
    )
)
SHARES = "rota:sharing=true,base_gpu_s=100,growth=2,margin=0"


def history_of(
    jobs: list[tuple[Job, float]], policy: str = SHARES, *, gpus: int = 1, restart_s: float = 0.0
) -> History:
    workload = Workload(
        submissions=tuple(Submission(job=each, submit_s=at_s) for each, at_s in jobs), source="test", format="rota"
    )
    setting = Setting(cluster=Cluster.uniform(("gpu", gpus, gpus)), speed=SPEED, costs=Costs(restart_s=restart_s))
    return simulate(workload, policy, setting).history


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        (LIGHT, LIGHT, True),
        (LIGHT, HEAVY, False),
        (HEAVY, HEAVY, False),
        (LIGHT, LOPSIDED, False),
        (LIGHT, UNKNOWN, False),
    ],
    ids=["gain", "gain-too-small", "no-gain", "one-too-slow", "not-measured"],
)
def test_jobs_share_devices_only_where_both_were_measured_to_gain(one: str, other: str, share: bool) -> None:
    """Of 90 s of work each: together at 0.8 of their speed, or one after the other."""
    rows = history_of([(job("a", work=90.0, model=one), 0.0), (job("b", work=90.0, model=other), 0.0)]).jobs

    assert [row.end_s for row in rows] == (pytest.approx([112.5, 112.5]) if share else [90.0, 180.0])


def test_without_the_switch_or_without_pairs_nothing_is_shared() -> None:
    jobs = [(job("a", work=90.0, model=LIGHT), 0.0), (job("b", work=90.0, model=LIGHT), 0.0)]

    assert [row.end_s for row in history_of(jobs, "rota").jobs] == [90.0, 180.0]
    assert DecisionKind.SHARE not in find_policy("rota")[0].kinds("")
    assert DecisionKind.SHARE in find_policy("rota")[0].kinds("sharing=true")


def test_job_of_the_first_levels_displaces_one_with_which_it_does_not_gain() -> None:
    """The long one has had more than a first level, and is in nothing but the way of the short one."""
    rows = history_of(
        [(job("long", work=1000.0, model=HEAVY), 0.0), (job("short", work=50.0, model=HEAVY), 500.0)]
    ).jobs

    assert [row.end_s for row in rows] == [1050.0, 550.0]
    assert rows[0].preemptions == 1


def test_place_of_a_running_job_is_looked_at_again_without_an_event() -> None:
    """Both wait for one device; the first gives way when it reaches the next level, after 100 s."""
    rows = history_of([(job("a", work=150.0, model=HEAVY), 0.0), (job("b", work=50.0, model=HEAVY), 10.0)]).jobs

    assert [row.end_s for row in rows] == pytest.approx([200.0, 150.0], abs=1e-3)


@pytest.mark.parametrize(("policy", "end_s"), [(SHARES, 1566.7), (SHARES + ",elastic=false", 4000.0)])
def test_elastic_job_grows_while_no_job_waits(policy: str, end_s: float) -> None:
    """Alone for 300 s, it grows to three devices; a gang gets two of them at once, and they stay free for 300 s."""
    wide = replace(job("wide", work=4000.0, model=WIDE), elastic=Elastic(min_tasks=1, max_tasks=3))
    gang = job("gang", workers=2, work=100.0, model=WIDE)

    rows = history_of([(wide, 0.0), (gang, 1000.0)], policy, gpus=3).jobs

    assert [row.end_s for row in rows] == pytest.approx([end_s, 1050.0], abs=0.1)


@st.composite
def workloads(draw: st.DrawFn) -> list[tuple[Job, float]]:
    now_s = 0.0
    jobs = []
    for number in range(draw(st.integers(2, 12))):
        now_s += draw(st.integers(0, 200))
        model = draw(st.sampled_from([LIGHT, HEAVY, LOPSIDED, UNKNOWN]))
        jobs.append((job(f"j{number}", work=float(draw(st.integers(1, 2000))), model=model), now_s))
    return jobs


@pytest.mark.slow
@given(jobs=workloads(), margin=st.sampled_from([0, 2]), restart_s=st.sampled_from([0.0, 5.0]))
@settings(max_examples=30, deadline=None)
def test_no_job_takes_longer_than_twice_the_bound(jobs: list[tuple[Job, float]], margin: int, restart_s: float) -> None:
    """Two jobs on a device have half of its service each, so that it takes twice as long until they have had theirs."""
    history = history_of(jobs, SHARES.replace("margin=0", f"margin={margin}"), gpus=2, restart_s=restart_s)

    levels = Levels(100.0, 2.0)
    for row in history.jobs:
        assert row.end_s is not None
        present = sum(
            other.end_s is not None and other.submit_s < row.end_s and other.end_s > row.submit_s
            for other in history.jobs
        )
        level = levels.of(row.gpu_s)
        limit = levels.limit(level + margin if level >= SHORT else level)
        assert row.end_s - row.submit_s <= row.run_s + 2 * present * limit / 2 + 1e-6
