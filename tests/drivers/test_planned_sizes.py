"""Sizes and types of elastic jobs under policies that do not see speeds at each size."""

from __future__ import annotations

import pytest

from rota.core.model.job import DeviceType, Elastic, Job, JobId, Role
from rota.drivers.simulator.planned_sizes import device_counts, on_any_type
from rota.perf.profiles.speed_table import Profiles
from rota.traces.workload import Submission

FAST, SLOW, SMALL = DeviceType("fast"), DeviceType("slow"), DeviceType("small")
SPEEDS = {FAST: (0, 2, 3, 4, 6, 7, 8, 9), SLOW: (0, 0, 0, 3, 3, 4, 4, 5), SMALL: (0, 0, 0, 0, 0, 0, 1, 1)}
"""Steps per second of the model on 1 to 8 devices; 0 where no plan fits into memory."""
PROFILES = Profiles(
    steps_per_s={
        (kind, "gpt", size): float(speed) for kind, row in SPEEDS.items() for size, speed in enumerate(row, 1)
    },
    source="test",
    sized=frozenset({"gpt"}),
)


def resized(
    types: tuple[DeviceType, ...],
    *,
    least: float = 0.5,
    asked: int = 4,
    model: str | None = "gpt",
    sizes: tuple[int, int] | None = (1, 8),
) -> Job:
    elastic = None if sizes is None else Elastic(min_tasks=sizes[0], max_tasks=sizes[1])
    job = Job(id=JobId("a"), roles=(Role(count=asked, device_types=types),), work=1.0, model=model, elastic=elastic)
    (changed,) = on_any_type([Submission(job=job, submit_s=0.0)], PROFILES, least)
    return changed.job


@pytest.mark.parametrize(
    ("types", "least", "asked", "low"),
    [
        ((FAST,), 0.0, 4, 2),
        ((FAST,), 0.5, 4, 2),
        ((FAST,), 0.5, 8, 5),
        ((FAST,), 0.9, 8, 8),
        ((FAST, SLOW), 0.0, 8, 4),
        ((FAST, SLOW), 0.5, 8, 5),
        ((FAST, SLOW), 0.5, 4, 4),
    ],
)
def test_least_size_fits_and_is_fast_enough_on_all_kept_types(
    types: tuple[DeviceType, ...], least: float, asked: int, low: int
) -> None:
    job = resized(types, least=least, asked=asked)
    assert job.elastic == Elastic(min_tasks=low, max_tasks=8)
    assert job.roles[0].count == asked, "the request stays"


def test_types_on_which_the_request_is_slow_or_does_not_fit_are_left() -> None:
    assert resized((FAST, SLOW, SMALL), asked=4).roles[0].device_types == (FAST, SLOW)
    assert resized((FAST, SLOW, SMALL), asked=4, least=0.0).roles[0].device_types == (FAST, SLOW)
    assert resized((FAST, SLOW, SMALL), asked=4, least=0.8).roles[0].device_types == (FAST,)
    assert resized((FAST, SLOW, SMALL), asked=8, least=0.0).roles[0].device_types == (FAST, SLOW, SMALL)


def test_request_that_fits_on_no_type_is_kept_as_it_is() -> None:
    job = resized((SMALL,), asked=4)
    assert job.roles[0].device_types == (SMALL,)
    assert job.elastic is not None
    assert job.elastic.max_tasks == 8


def test_jobs_of_one_size_and_of_other_models_stay_as_they_are() -> None:
    assert resized((FAST, SMALL), sizes=None).roles[0].device_types == (FAST, SMALL)
    other = resized((FAST, SMALL), model="resnet50")
    assert (other.elastic, other.roles[0].device_types) == (Elastic(min_tasks=1, max_tasks=8), (FAST, SMALL))
    assert resized((FAST, SMALL), model=None).elastic == Elastic(min_tasks=1, max_tasks=8)


def test_counts_are_all_sizes_of_an_elastic_job() -> None:
    pair = Job(
        id=JobId("a"),
        roles=(Role(count=2, device_milli=2000),),
        work=1.0,
        elastic=Elastic(min_tasks=1, max_tasks=3),
    )
    assert device_counts(pair) == [2, 4, 6]
    assert device_counts(Job(id=JobId("b"), roles=(Role(count=3),), work=1.0)) == [3]
    assert device_counts(Job(id=JobId("c"), roles=(Role(count=1, device_milli=500),), work=1.0)) == [1]
