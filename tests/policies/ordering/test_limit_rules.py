"""Queue limits by rule, and the Gittins index with jobs that have not ended."""

from __future__ import annotations

import math

import pytest

from builders import World, on, start, stop
from rota.policies.published.ordering.gittins import index_of, weighted_index, with_censored
from rota.policies.published.ordering.las import FIRST_LIMITS, GEOMETRIC, LimitRule, QueueLimits


def test_geometric_limits_double() -> None:
    limits = QueueLimits((1.0,), LimitRule.GEOMETRIC).limits

    assert limits == GEOMETRIC
    assert limits[:3] == (600.0, 1200.0, 2400.0)


def test_observed_limits_are_quantiles_of_ended_jobs() -> None:
    queues = QueueLimits((3250.0,), LimitRule.OBSERVED)

    changes = [queues.learn(float(size)) for size in range(1, FIRST_LIMITS + 1)]

    assert changes == [False] * (FIRST_LIMITS - 1) + [True]
    assert queues.limits == (9.0, 13.0, 16.0)
    assert len(queues.memory) == FIRST_LIMITS


def test_published_limits_never_change() -> None:
    queues = QueueLimits((3250.0,), LimitRule.PUBLISHED)

    assert not any(queues.learn(5.0) for _ in range(100))
    assert (queues.limits, queues.memory) == ((3250.0,), None)


@pytest.mark.parametrize("policy", ["las", "tiresias", "gittins"])
def test_geometric_las_lets_a_starved_job_displace_one_past_600(policy: str) -> None:
    """The published first limit is 3,250 device-seconds."""
    world = World(gpus=1).running("fed", attained_gpu_s=700.0)
    assert world.submit("starved", policy=f"{policy}:rule=geometric") == [stop("fed")]
    assert world.stopped("fed") == [start("starved", on("n1", 1))]

    same = World(gpus=1).running("fed", attained_gpu_s=700.0)
    assert same.submit("starved", policy=policy) == []


def test_censored_jobs_lend_their_weight_to_larger_ones() -> None:
    assert with_censored([10.0, 30.0], [20.0]) == [(10.0, 1.0), (30.0, 2.0)]
    assert with_censored([10.0], [20.0]) == [(10.0, 1.0), (math.inf, 1.0)]
    assert with_censored([10.0, 30.0], []) == [(10.0, 1.0), (30.0, 1.0)]


def test_jobs_that_still_run_lower_the_index() -> None:
    """Two of three jobs ended by 10; the third has had 100 so far, so that an early end is less likely."""
    ended = [10.0, 10.0]

    assert weighted_index(with_censored(ended, [100.0]), 0.0, 20.0) == pytest.approx(2 / (10 + 10 + 20))
    assert index_of(ended, 0.0, 20.0) == pytest.approx(2 / 20)
