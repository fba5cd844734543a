"""Speeds that past runs on this machine show: by device type, by size, and on shared devices."""

from __future__ import annotations

import math
import random

import pytest

from builders import job
from rota.core.model.job import DeviceType, Elastic, Role
from rota.forecast.past import PastRun, RanOn
from rota.forecast.speeds import PlacementLearner, at_reference, observed_speeds
from rota.perf.speed.model import SpeedModel

TYPES = {"n1": DeviceType("fast"), "n2": DeviceType("slow")}


def run(work_s: float, node: str = "n1", *, tasks: int = 1, shared: bool = False, elastic: bool = False) -> PastRun:
    asked = job(name="train", user="ann", roles=(Role(count=4),), elastic=Elastic(min_tasks=1, max_tasks=4))
    plain = job(name="train", user="ann")
    where = RanOn(node=node, tasks=tasks, shared=shared)
    return PastRun(job=asked if elastic else plain, submit_s=0.0, work_s=work_s, ran_on=where)


def test_slower_type_is_seen() -> None:
    past = [run(100.0), run(102.0), run(98.0), run(200.0, "n2"), run(204.0, "n2"), run(196.0, "n2")]

    found = observed_speeds(past, TYPES)

    assert found.type_speed == {"fast": 1.0, "slow": pytest.approx(0.5, rel=0.01)}
    assert at_reference(past[3], found, TYPES).work_s == pytest.approx(100.0, rel=0.01)


def test_too_few_runs_show_nothing() -> None:
    assert observed_speeds([run(100.0), run(300.0, "n2")], TYPES) == SpeedModel()


def test_growth_of_elastic_jobs_is_seen() -> None:
    """Drivers count work in proportion to the size; runs of one size after the other show how seconds really fall."""
    past = [run(100.0 / tasks**0.5 * tasks / 4, tasks=tasks, elastic=True) for tasks in (1, 2, 4, 1, 2, 4)]

    found = observed_speeds(past, TYPES)

    assert found.scaling == pytest.approx(0.5, abs=1e-3)
    assert at_reference(past[0], found, TYPES).work_s == pytest.approx(50.0, rel=1e-2)


def test_jobs_that_grow_in_proportion_are_seen_as_drivers_count_them() -> None:
    past = [run(25.0, tasks=tasks, elastic=True) for tasks in (1, 2, 4, 1, 2, 4)]

    found = observed_speeds(past, TYPES)

    assert found.scaling == pytest.approx(1.0)
    assert at_reference(past[0], found, TYPES).work_s == pytest.approx(25.0)


def test_like_jobs_that_ask_for_more_say_nothing_of_growth() -> None:
    """Each ran at the size that it asked for, and as long as the others; a few at half of it took twice as long."""

    def asks(count: int, tasks: int, seconds: float) -> PastRun:
        made = job(
            f"{count}-{tasks}", name="train", user="ann", workers=count, elastic=Elastic(min_tasks=1, max_tasks=8)
        )
        return PastRun(job=made, submit_s=0.0, work_s=seconds * tasks / count, ran_on=RanOn(node="n1", tasks=tasks))

    full = [asks(count, count, 100.0) for count in (1, 2, 4, 8, 1, 2, 4, 8)]

    assert observed_speeds(full, TYPES).scaling == 1.0, "nothing is known"
    assert observed_speeds([*full, asks(8, 4, 200.0), asks(2, 1, 200.0)], TYPES).scaling == pytest.approx(1.0)


def test_growth_that_few_scattered_runs_tell_counts_little() -> None:
    chance = random.Random(1)
    lengths = [math.exp(chance.gauss(0.0, 0.5)) for _ in range(12)]
    past = [run(100.0 * each, tasks=4 - at % 2, elastic=True) for at, each in enumerate(lengths)]

    assert observed_speeds(past, TYPES).scaling > 0.8


def test_slowdown_on_shared_devices_is_seen() -> None:
    past = [*[run(100.0)] * 3, *[run(125.0, shared=True)] * 3]

    assert observed_speeds(past, TYPES).device_neighbour == pytest.approx(0.8)


def test_only_jobs_that_stayed_in_one_place_count() -> None:
    learner = PlacementLearner()
    on = [["n1", [0], 1, 0, 1000]]
    learner.take({"t": 0.0, "in": [], "out": [{"order": "start", "job_id": name, "on": on} for name in ("a", "b")]})
    learner.take({"t": 1.0, "in": [], "out": [{"order": "stop", "job_id": "b", "cause": "preempted"}]})
    learner.take({"t": 2.0, "in": [], "out": [{"order": "start", "job_id": "b", "on": on}]})

    assert learner.where("a") == RanOn(node="n1", tasks=1)
    assert learner.where("b") is None
