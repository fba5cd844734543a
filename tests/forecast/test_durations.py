"""Distributions of run times: declarations, history, shrinkage, and time already run."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from statistics import fmean, median

import pytest

from builders import job
from rota.core.model.job import Job
from rota.forecast.durations import KnownFrom, RunTimes
from rota.forecast.past import PastRun

RUNS = range(200)


def ran(name: str, work_s: float, *, user: str = "ann", estimate_s: float | None = None, gpus: float = 1) -> PastRun:
    asked = job(f"{name}-{work_s}", name=name, user=user, estimate_s=estimate_s, gpus=gpus)
    return PastRun(job=asked, submit_s=0.0, work_s=work_s)


def drawn(times: RunTimes, asked: Job, *, done_s: float = 0.0) -> list[float]:
    return sorted(times.draw(run, asked, done_s=done_s) for run in RUNS)


def test_one_short_run_does_not_outweigh_a_declared_hour() -> None:
    times = RunTimes([ran("train", 1.0), ran("train", 2.0, estimate_s=3600.0)])

    found = drawn(times, job("new", name="train", user="ann", estimate_s=3600.0))

    assert 60.0 < median(found) < 3600.0
    assert median(drawn(RunTimes([ran("train", 1.0)]), job("new", name="train", user="ann", estimate_s=3600.0))) > 2000


def test_declared_estimates_are_corrected_by_what_the_user_declared_before() -> None:
    careful = [ran(f"a{at}", 50.0 + at, user="ann", estimate_s=2 * (50.0 + at)) for at in range(20)]
    exact = [ran(f"b{at}", 80.0 + at, user="bob", estimate_s=80.0 + at) for at in range(20)]
    times = RunTimes([*careful, *exact])

    assert median(drawn(times, job("x", name="x", user="ann", estimate_s=1000.0))) == pytest.approx(500.0, rel=0.2)
    assert median(drawn(times, job("y", name="y", user="bob", estimate_s=1000.0))) == pytest.approx(1000.0, rel=0.2)


def test_history_of_the_name_is_used_without_a_declaration() -> None:
    past = [ran("short", 10.0 + at % 3) for at in range(10)] + [ran("long", 1000.0 + at % 30) for at in range(10)]
    times = RunTimes(past)

    found = drawn(times, job("next", name="long", user="ann"))

    assert median(found) == pytest.approx(1015.0, rel=0.15)
    assert times.known(job("next", name="long", user="ann")) is KnownFrom.HISTORY
    assert RunTimes().known(job("next", name="long", user="ann")) is KnownFrom.GUESS
    assert RunTimes().known(job("next", name="long", estimate_s=5.0)) is KnownFrom.DECLARED


def test_job_that_runs_already_runs_longer_than_that() -> None:
    past = [ran("mixed", 10.0) for _ in range(10)] + [ran("mixed", 1000.0) for _ in range(10)]
    times = RunTimes(past)
    asked = job("next", name="mixed", user="ann")

    after = drawn(times, asked, done_s=100.0)

    assert min(after) >= 100.0
    assert median(after) == pytest.approx(1000.0, rel=0.4)
    assert min(drawn(times, asked, done_s=50_000.0)) >= 50_000.0


def test_jobs_that_still_run_are_not_forgotten() -> None:
    """Half of the jobs are long; when few of these have ended, those that run tell that they are."""
    order = [0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 1, 0]
    places = [[float(at) for at, kind in enumerate(order) if kind == wanted] for wanted in (0, 1)]
    ended = [replace(ran("any", 10.0 + at), submit_s=at_s) for at, at_s in enumerate(places[0])] + [ran("any", 1000.0)]
    running = [
        PastRun(job=job(f"r{at}", name="any", user="ann"), submit_s=at_s, done_s=400.0 + 10 * at)
        for at, at_s in enumerate(places[1])
    ]

    def long_share(times: RunTimes) -> float:
        return sum(each > 300.0 for each in drawn(times, job("next", name="any", user="ann"))) / len(RUNS)

    assert long_share(RunTimes(ended)) < 0.3
    assert long_share(RunTimes([*ended, *running])) == pytest.approx(0.5, abs=0.2)
    assert RunTimes([*ended, *running]).past_runs == 11


def test_same_run_draws_the_same_for_the_same_job() -> None:
    times = RunTimes([ran("train", float(at)) for at in range(5, 30)])
    first, second = job("one", name="train", user="ann"), job("two", name="train", user="ann")

    assert [times.draw(run, first) for run in RUNS] == [times.draw(run, first) for run in reversed(RUNS)][::-1]
    assert times.draw(0, first) != times.draw(0, second)


def test_spread_of_like_jobs_is_the_spread_of_the_forecast() -> None:
    steady = RunTimes([ran("train", 100.0 + 0.1 * at) for at in range(30)])
    wild = RunTimes([ran("train", 10.0 * 1.3**at) for at in range(30)])
    asked = job("next", name="train", user="ann")

    narrow, wide = drawn(steady, asked), drawn(wild, asked)

    assert narrow[190] / narrow[10] < 1.6 < wide[190] / wide[10]


def test_running_jobs_count_by_when_they_were_submitted() -> None:
    """Long jobs that were submitted long ago are not the latest, although they have not ended."""
    running = [PastRun(job=job(f"r{at}", user="ann"), submit_s=float(at), done_s=90_000.0) for at in range(600)]
    ended = [PastRun(job=job(f"e{at}", user="ann"), submit_s=1000.0 + at, work_s=50.0 + at % 9) for at in range(600)]

    found = drawn(RunTimes([*ended, *running]), job("next", user="bob"))

    assert median(found) < 1000.0


def test_lengths_are_learned_where_half_of_the_jobs_still_run() -> None:
    """All that is known of them is that they are longer than the ended ones, which are the shorter half."""
    found = []
    for seed in range(12):
        chance, past = random.Random(seed), []
        for at in range(200):
            work_s, age_s = math.exp(chance.gauss(5.0, 1.5)), 2.0 * (200 - at)
            over = work_s if work_s < age_s else None
            past.append(
                PastRun(job=job(f"p{at}", user="ann"), submit_s=float(at), work_s=over, done_s=min(work_s, age_s))
            )
        found.append(fmean(math.log(each) for each in drawn(RunTimes(past), job("next", user="bob"))))

    assert fmean(found) == pytest.approx(5.0, abs=0.3)
