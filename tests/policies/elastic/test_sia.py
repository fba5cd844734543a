"""Sia by hand: the program's gain of a configuration is 1.1 - (goodput over the job's least)^-0.5."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from builders import job
from elastic_jobs import elastic, ends
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, Elastic
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.drivers.simulator.study import Setting, simulate
from rota.mechanisms.declare import Knowledge
from rota.mechanisms.elastic.rule import Candidate, SizePlan, SizeQuestion, Target
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import Costs, SpeedModel
from rota.policies import find_policy
from rota.policies.published.elastic.sia import Sia, SiaParams
from rota.traces.workload import Submission, Workload

FAST, SLOW = DeviceType("fast"), DeviceType("slow")
SPEEDS = Profiles(
    steps_per_s={(FAST, "m1", 1): 4.0, (SLOW, "m1", 1): 1.0, (FAST, "m2", 1): 2.0, (SLOW, "m2", 1): 1.0}, source="test"
)
ROOT2 = math.sqrt(2)


def typed(*works: tuple[str, float], restart_s: float = 0.0) -> dict[str, float | None]:
    """Jobs named by their model on one fast and one slow device."""
    setting = Setting(
        cluster=Cluster.uniform((FAST, 1, 1), (SLOW, 1, 1)),
        speed=SpeedModel(profiles=SPEEDS),
        costs=Costs(restart_s=restart_s),
    )
    submissions = tuple(Submission(job=job(model, model=model, work=work), submit_s=0.0) for model, work in works)
    rows = simulate(Workload(submissions=submissions, source="test", format="rota"), "sia", setting).history.jobs
    return {row.id: row.end_s for row in rows}


def test_the_fast_device_goes_to_who_gains_most_by_it() -> None:
    """m1 on fast: 1.1 - 4^-0.5 = 0.6 and m2 on slow 0.1; the other way round 1.1 - 2^-0.5 = 0.39 and 0.1.

    m1 ends at 400/4 = 100. At 120 m2 moves to the fast device and does its last 80 at speed 2.
    """
    assert typed(("m2", 200.0), ("m1", 400.0)) == {"m1": 100.0, "m2": 160.0}


def test_a_move_that_costs_more_than_it_brings_is_not_made() -> None:
    """A restart of 130 s at age 120 leaves (120 - 0)/(120 + 130) = 0.48 of goodput 2, which is below the 1 it has."""
    assert typed(("m2", 200.0), ("m1", 400.0), restart_s=130.0) == {"m1": 100.0, "m2": 200.0}


def test_sizes_double_while_that_is_worth_it() -> None:
    """One device each at 0; at 60 two each, as speed is taken as linear: 1.1 - 2^-0.5 > 1.1 - 1. a ends at
    60 + 40/1.414; at 120 b takes all four, as the speeds seen promise 1.78 against 1.414."""
    a_s = 60 + 40 / ROOT2
    b_s = 120 + (400 - 100 - (120 - a_s) * ROOT2) / 2

    assert ends("sia", elastic("a", 100.0), elastic("b", 400.0)) == {"a": round(a_s, 2), "b": round(b_s, 2)}


def test_with_too_few_devices_as_many_jobs_run_as_can() -> None:
    """Two devices, four jobs, one of which needs both: every job that gets nothing costs 1.1, so two small ones run."""
    jobs = (elastic("wide", 60.0, least=2), *(elastic(name, 60.0, most=1) for name in "abc"))

    found = ends("sia", *jobs, gpus=2)

    assert sorted(found[name] for name in "abc")[:2] == [60.0, 60.0]
    assert found["wide"] > 60.0


@pytest.mark.parametrize("options", ["power=0", "power=-9", "round_s=0", "idle=1"])
def test_parameters_that_make_no_sense_are_refused(options: str) -> None:
    with pytest.raises(RotaError, match=options.partition("=")[0]):
        find_policy("sia")[0].read(options)


def test_speed_that_is_known_at_each_size_need_not_be_learned() -> None:
    """Four fast devices at once, instead of one and then twice as many in every round."""
    speeds = {(FAST, "m", size): float(size) for size in (1, 2, 3, 4)}
    known = Profiles(steps_per_s=speeds, source="test", is_relative=True, sized=frozenset({"m"}))
    setting = Setting(cluster=Cluster.uniform((FAST, 4, 4)), speed=SpeedModel(profiles=known))
    bounds = Elastic(min_tasks=1, max_tasks=4)
    asked = replace(job("a", model="m", work=400.0, device_types=(FAST,)), elastic=bounds)
    work = Workload(submissions=(Submission(job=asked, submit_s=0.0),), source="test", format="rota")
    assert [row.end_s for row in simulate(work, "sia", setting).history.jobs] == [100.0]


def test_plan_is_completed_at_the_same_moment_where_speeds_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solved again, two equal jobs could swap without end."""
    known = Profiles(steps_per_s={(FAST, "m", 1): 1.0}, source="test", sized=frozenset({"m"}))
    rule = Sia(SiaParams(), Knowledge(speed=SpeedModel(profiles=known)))
    one, two = (
        Candidate(LiveJob(job(name, model="m"), seq, 0.0, 1.0), (1,), 1000) for seq, name in enumerate(("a", "b"))
    )
    solutions = iter([SizePlan({0: Target(1, FAST)}), SizePlan({1: Target(1, FAST)})])
    monkeypatch.setattr(rule, "_solution", lambda jobs, question: next(solutions))

    def asked(now_s: float) -> dict[int, Target]:
        inventory = Inventory(Cluster.uniform((FAST, 1, 1)))
        question = SizeQuestion(now_s, [one, two], 1000, inventory.pools, 1, inventory)
        return dict(rule.choose([one, two], question, 0).targets)

    assert asked(5.0) == {0: Target(1, FAST)}
    two.tasks = 1
    assert asked(5.0) == {0: Target(1, FAST), 1: Target(1)}
    assert asked(6.0) == {1: Target(1, FAST)}
