"""A sample of a long queue: what it holds, and what follows for the whole queue."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from rota.core.model.job import JobId
from rota.forecast.forward import HORIZON_S, RunResult
from rota.forecast.queue_sample import QueuedJob, QueueSample, needed_by, sampled


def queue(*priorities: int) -> list[QueuedJob]:
    return [QueuedJob(id=JobId(str(at)), priority=each) for at, each in enumerate(priorities)]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=200), st.integers(1, 50))
def test_sample_has_each_priority_in_proportion_and_is_bounded(priorities: list[int], most: int) -> None:
    waiting = queue(*priorities)

    found = sampled(waiting, (), most)

    if found is None:
        assert len(waiting) <= most
        return
    assert len(found) == most
    for priority in set(priorities):
        held = sum(waiting[int(name)].priority == priority for name in found)
        assert abs(held - most * priorities.count(priority) / len(priorities)) <= 1


def test_jobs_that_stand_for_themselves_are_not_in_the_sample() -> None:
    found = sampled(queue(*[0] * 10), {JobId("4"), JobId("5")}, most=3)

    assert found is not None
    assert len(found) == 3
    assert not {"4", "5"} & set(found)


def test_what_a_job_depends_on_is_needed_too() -> None:
    first, second = QueuedJob(id=JobId("a"), priority=0), QueuedJob(id=JobId("b"), priority=0, depends_on=(JobId("a"),))
    third = QueuedJob(id=JobId("c"), priority=0, depends_on=(JobId("b"), JobId("ended")))

    assert needed_by([JobId("c")], [first, second, third]) == {"a", "b", "c", "ended"}


def run(start_s: float, *, ahead: int, end_s: float = math.inf, stopped_s: float = 0.0) -> RunResult:
    names = tuple(JobId(str(at)) for at in range(ahead))
    return RunResult(start_s=start_s, end_s=end_s, ahead=names, starts_before=ahead, stopped_s=stopped_s)


SAMPLE = QueueSample(stands_for=5.0, waiting=500, jobs=frozenset(JobId(str(at)) for at in range(100)))


def test_start_is_as_many_times_later_as_more_jobs_are_ahead() -> None:
    found = SAMPLE.whole(run(110.0, ahead=9, end_s=150.0), now_s=10.0)

    assert found.start_s == 10.0 + 100.0 * (5 * 9 + 1) / 10
    assert found.end_s - found.start_s == 40.0
    assert SAMPLE.ahead(found) == 45.0


def test_next_job_starts_when_it_would() -> None:
    assert SAMPLE.whole(run(110.0, ahead=0, end_s=150.0), now_s=10.0) == run(110.0, ahead=0, end_s=150.0)


def test_time_without_devices_after_the_start_is_longer_too() -> None:
    assert SAMPLE.whole(run(20.0, ahead=0, end_s=50.0, stopped_s=10.0), now_s=10.0).end_s == 90.0


def test_job_that_runs_already_has_an_end() -> None:
    assert SAMPLE.whole(run(math.inf, ahead=0, end_s=50.0), now_s=10.0).end_s == 50.0


def test_start_beyond_the_horizon_is_none() -> None:
    found = SAMPLE.whole(run(0.5 * HORIZON_S, ahead=9, end_s=0.6 * HORIZON_S), now_s=0.0)

    assert (found.start_s, found.end_s) == (math.inf, math.inf)
