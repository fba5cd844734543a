"""Later arrivals: at the rate of the present stream, with what past batches held."""

from __future__ import annotations

import random
from statistics import median

import pytest

from builders import job
from rota.forecast.arrivals import Arrivals
from rota.forecast.durations import RunTimes
from rota.forecast.past import PastRun


def submitted(number: int, at_s: float, user: str = "ann", work_s: float | None = 30.0) -> PastRun:
    return PastRun(job=job(f"j{number}", user=user, priority=number % 2), submit_s=at_s, work_s=work_s)


def test_nothing_is_expected_before_enough_was_seen() -> None:
    found = Arrivals([submitted(0, 0.0), submitted(1, 10.0)], 20.0)

    assert not found.is_known
    assert found.jobs_per_hour == 0.0
    assert list(found.draw(0, RunTimes(), 10)) == []


def test_arrivals_follow_the_rate_and_look_like_past_ones() -> None:
    found = Arrivals([submitted(number, 10.0 * number) for number in range(30)], 300.0)

    later = [each for run in range(40) for each in found.draw(run, RunTimes(), 5)[:5]]

    assert found.jobs_per_hour == pytest.approx(360.0, rel=0.15)
    assert {each.job.priority for each in later} == {0, 1}
    assert {each.target for each in later} == {30.0}
    assert all(each.submit_s > 300.0 for each in later)
    first = [found.draw(run, RunTimes(), 5)[0].submit_s - 300.0 for run in range(200)]
    assert 4.0 < median(first) < 14.0


def test_members_of_an_array_arrive_together() -> None:
    past = [submitted(4 * batch + member, 100.0 * batch) for batch in range(10) for member in range(4)]

    later = Arrivals(past, 1000.0).draw(1, RunTimes(), 8)[:8]

    assert [each.submit_s == later[0].submit_s for each in later] == [True] * 4 + [False] * 4


def test_a_new_stream_is_not_measured_by_the_pause_before_it() -> None:
    old = [submitted(number, 10.0 * number) for number in range(10)]
    new = [submitted(20 + number, 100_000.0 + 2.0 * number) for number in range(10)]

    assert Arrivals([*old, *new], 100_020.0).jobs_per_hour == pytest.approx(1800.0, rel=0.3)


def test_stream_has_ended_if_nothing_came_for_long() -> None:
    past = [submitted(number, 10.0 * number) for number in range(30)]

    def shares_with_arrivals(now_s: float) -> float:
        found = Arrivals(past, now_s)
        return sum(found.draw(run, RunTimes(), 1)[0].submit_s < now_s + 60.0 for run in range(200)) / 200

    assert shares_with_arrivals(295.0) > 0.85
    assert shares_with_arrivals(400.0) < 0.2


def test_old_stream_goes_on_for_longer_than_a_young_one() -> None:
    young = [submitted(number, 10.0 * number) for number in range(10)]
    old = [submitted(number, 10.0 * number) for number in range(200)]

    def length_s(past: list[PastRun]) -> float:
        found = Arrivals(past, past[-1].submit_s + 1.0)
        return median(found.lasts_s(random.Random(run)) for run in range(300))

    assert length_s(young) == pytest.approx(90.0, rel=0.4)
    assert length_s(old) == pytest.approx(1990.0, rel=0.4)


def test_same_run_has_the_same_arrivals() -> None:
    past = [submitted(number, 10.0 * number) for number in range(30)]

    assert Arrivals(past, 300.0).draw(3, RunTimes(), 9)[:9] == Arrivals(past, 300.0).draw(3, RunTimes(), 9)[:9]
