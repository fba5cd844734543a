"""Jobs that are submitted one after the other: how alike they are, and what those that ended tell about the next."""

from __future__ import annotations

import math
import random
from statistics import fmean, median, pstdev

import pytest

from builders import job
from rota.core.model.job import JobId
from rota.forecast.durations import RunTimes
from rota.forecast.past import PastRun
from rota.forecast.succession import Likeness, ScoredJob, Succession

RUNS = range(200)


def scored(scores: list[float]) -> list[ScoredJob]:
    return [ScoredJob(id=JobId(f"e{at}"), score=score) for at, score in enumerate(scores)]


def arrays(count: int, length: int, *, spread: float, chance: random.Random) -> list[float]:
    """Scores of arrays: each has a centre of its own."""
    inner = math.sqrt(1.0 - spread**2)
    centres = [spread * chance.gauss(0.0, 1.0) for _ in range(count)]
    return [centre + inner * chance.gauss(0.0, 1.0) for centre in centres for _ in range(length)]


def test_independent_jobs_are_not_alike() -> None:
    totals = []
    for seed in range(20):
        chance = random.Random(seed)
        totals.append(Likeness([scored([chance.gauss(0.0, 1.0) for _ in range(120)])]).total)

    assert sum(total > 0 for total in totals) <= 2
    assert fmean(totals) < 0.03


def test_jobs_of_arrays_are_alike_by_what_they_share() -> None:
    found = Likeness([scored(arrays(40, 12, spread=0.8, chance=random.Random(1)))])

    assert found.total == pytest.approx(0.64, abs=0.2)
    assert Likeness([scored([0.1, 0.2, 0.1])]).total == 0.0


def test_next_jobs_are_like_the_last_and_like_each_other() -> None:
    past = arrays(40, 12, spread=0.9, chance=random.Random(2))
    past[-12:] = [1.5 + 0.1 * (at % 3) for at in range(12)]
    waiting = [ScoredJob(id=JobId(f"w{at}")) for at in range(6)]
    succession = Succession([*scored(past), *waiting], Likeness([scored(past)]))

    first = [succession.draw(run, waiting[0].id) for run in RUNS]
    both = [(succession.draw(run, waiting[0].id), succession.draw(run, waiting[1].id)) for run in RUNS]

    assert median(first) > 0.8
    middles = [fmean(each) for each in zip(*both, strict=True)]
    shared = fmean((one - middles[0]) * (other - middles[1]) for one, other in both)
    assert shared > 0.2 * pstdev(first) ** 2
    assert both == [(succession.draw(run, waiting[0].id), succession.draw(run, waiting[1].id)) for run in RUNS]


def test_jobs_that_run_for_long_tell_that_the_next_are_long() -> None:
    past = arrays(40, 12, spread=0.9, chance=random.Random(3))
    past[-4:] = [0.0, 0.0, 0.0, 0.0]
    running = [ScoredJob(id=JobId(f"r{at}"), exceeds=1.3) for at in range(8)]
    new = [ScoredJob(id=JobId(f"r{at}"), exceeds=-3.0) for at in range(8)]
    asked = ScoredJob(id=JobId("w"))
    likeness = Likeness([scored(past)])

    def usual(between: list[ScoredJob]) -> float:
        succession = Succession([*scored(past), *between, asked], likeness)
        return median(succession.draw(run, asked.id) for run in RUNS)

    assert usual(running) > usual(new) + 0.5
    drawn = Succession([*scored(past), *running, asked], likeness)
    assert min(drawn.draw(run, running[0].id, 1.3) for run in RUNS) >= 1.3


def test_unnamed_jobs_follow_the_array_that_they_come_with() -> None:
    """Half of the arrays are short, half are long; the waiting jobs come after short ones that ended."""
    chance = random.Random(4)
    past: list[PastRun] = []
    for array in range(30):
        usual_s = 20.0 if array % 3 == 2 or chance.random() < 0.3 else 4000.0
        for _ in range(10):
            at = len(past)
            work_s = usual_s * math.exp(chance.gauss(0.0, 0.3))
            past.append(PastRun(job=job(f"p{at}", user="ann"), submit_s=float(at), work_s=work_s))
    waiting = [PastRun(job=job(f"w{at}", user="ann"), submit_s=400.0 + at) for at in range(5)]
    times = RunTimes([*past, *waiting])

    short = sum(times.draw(run, waiting[0].job) < 100.0 for run in RUNS) / len(RUNS)
    others = [PastRun(job=job(f"o{at}", user="bob"), submit_s=400.0 + at) for at in range(2)]
    of_all = RunTimes([*past, *others])
    share = sum(each.work_s is not None and each.work_s < 100.0 for each in past) / len(past)

    assert short > share + 0.15
    assert sum(of_all.draw(run, others[0].job) < 100.0 for run in RUNS) / len(RUNS) == pytest.approx(share, abs=0.15)


def test_many_waiting_jobs_share_places() -> None:
    past = arrays(40, 12, spread=0.9, chance=random.Random(5))
    waiting = [ScoredJob(id=JobId(f"w{at}")) for at in range(900)]
    succession = Succession([*scored(past), *waiting], Likeness([scored(past)]))

    assert all(math.isfinite(succession.draw(0, each.id)) for each in waiting)
    assert len({round(succession.draw(0, each.id), 9) for each in waiting}) == 900
