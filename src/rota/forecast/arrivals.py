"""Later submissions, at a learned rate, with the sizes, priorities and owners of past ones.

Submissions that come together, such as the members of an array, are one batch. The time between batches is exponential
with a rate that is itself uncertain; what a batch holds is that of a past one. How long its jobs run is what those ran,
where that is known. Of the end of a stream of submissions only its age is known. Seen from any moment of a stream, what
is left of it is as likely longer as shorter than its age (Gott, 1993). The longer no batch has come, the likelier the
stream has ended. After its end, batches arrive at the rate of the whole past.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import overload

from rota.core.model.job import Job, JobId
from rota.forecast.chance import generator
from rota.forecast.durations import RunTimes
from rota.forecast.past import PastRun
from rota.traces.workload import Submission

TOGETHER_S = 1.0
"""Submissions of one owner that are closer than this belong together."""
FEWEST = 4
"""Batches from which on a rate is known."""
LATEST = 48
"""How many of the latest batches tell the rate."""
MOST_KINDS = 256
"""How many of the latest batches tell what arrives."""
PAUSE = 12.0
"""A gap of so many times the usual one separates two streams of submissions."""
DRIFT = 0.25
"""Standard deviation of the logarithm by which the rate may change."""


@dataclass(frozen=True, slots=True)
class _Batch:
    at_s: float
    runs: tuple[PastRun, ...]


class Arrivals:
    """The learned arrivals."""

    def __init__(self, past: Sequence[PastRun] = (), now_s: float = 0.0) -> None:
        self._batches = _batches(past)[-MOST_KINDS:]
        self._now_s = now_s
        stream = _last_stream(self._batches)
        latest = stream[-LATEST:]
        self._count = len(latest) - 1
        self._over_s = max(now_s - latest[0].at_s, 1e-3) if latest else 0.0
        self._age_s = max(now_s - stream[0].at_s, 1e-3) if stream else 0.0
        rest = len(self._batches) - len(stream)
        self._has_ended = self._ended_share(latest) if self.is_known else 0.0
        self._later_rate = rest / (now_s - self._batches[0].at_s) if rest else 0.0
        """Batches per second of the whole past, once the present stream has ended."""

    def _ended_share(self, latest: Sequence[_Batch]) -> float:
        """Return how likely the stream has ended: no batch has come since, or the rate is by chance so low."""
        rate = self._count / max(latest[-1].at_s - latest[0].at_s, 1e-3)
        goes_on = math.exp(-min(rate * (self._now_s - latest[-1].at_s), 700.0))
        ended = (1.0 - goes_on) / (rate * self._age_s)
        return ended / (ended + goes_on)

    @property
    def is_known(self) -> bool:
        """Whether enough is known of past arrivals to expect more."""
        return self._count + 1 >= FEWEST

    @property
    def jobs_per_hour(self) -> float:
        """The expected number of jobs that arrive in an hour."""
        if not self.is_known:
            return 0.0
        latest = self._batches[-LATEST:]
        return 3600.0 * self._count / self._over_s * sum(len(each.runs) for each in latest) / len(latest)

    def draw(self, run: int, times: RunTimes, most: int) -> Sequence[Submission]:
        """Return at most so many later submissions of one run, in order of time; made as they are looked at."""
        return _LaterArrivals(self, run, times, most) if self.is_known else ()

    def rate(self, chance: random.Random) -> float:
        """Return a rate of batches that the past allows."""
        return chance.gammavariate(self._count, 1.0 / self._over_s) * math.exp(DRIFT * chance.gauss(0.0, 1.0))

    def lasts_s(self, chance: random.Random) -> float:
        """Return for how long the present stream goes on; 0 if it has ended in the silence since the last batch."""
        if chance.random() < self._has_ended:
            return 0.0
        return self._age_s * (1.0 / max(chance.random(), 1e-6) - 1.0)

    @property
    def later_rate(self) -> float:
        """The rate of batches after the present stream."""
        return self._later_rate

    def batch(self, chance: random.Random) -> Sequence[PastRun]:
        """Return the jobs of a past batch."""
        return self._batches[chance.randrange(len(self._batches))].runs

    @property
    def now_s(self) -> float:
        """When later begins."""
        return self._now_s


class _LaterArrivals(Sequence[Submission]):
    """The later submissions of one run."""

    def __init__(self, arrivals: Arrivals, run: int, times: RunTimes, most: int) -> None:
        self._arrivals = arrivals
        self._run = run
        self._times = times
        self._most = most
        self._chance = generator(run, "arrivals")
        self._rate = arrivals.rate(self._chance)
        self._until_s = arrivals.now_s + arrivals.lasts_s(self._chance)
        self._at_s = arrivals.now_s
        self._made: list[Submission] = []

    def __len__(self) -> int:
        return self._most

    @overload
    def __getitem__(self, at: int) -> Submission: ...

    @overload
    def __getitem__(self, at: slice) -> list[Submission]: ...

    def __getitem__(self, at: int | slice) -> Submission | list[Submission]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(self._most))]
        while len(self._made) <= at:
            self._add()
        return self._made[at]

    def _add(self) -> None:
        at_s = self._at_s + self._chance.expovariate(self._rate) if self._rate else math.inf
        if at_s > self._until_s:
            self._rate, self._until_s = self._arrivals.later_rate, math.inf
            at_s = self._at_s + self._chance.expovariate(self._rate) if self._rate else math.inf
        self._at_s = at_s
        for like in self._arrivals.batch(self._chance):
            job = _another(like.job, self._run, len(self._made))
            work_s = self._times.draw(self._run, job, like.command) if like.work_s is None else like.work_s
            self._made.append(Submission(job=job, submit_s=self._at_s, hidden_work=work_s))


def _another(job: Job, run: int, number: int) -> Job:
    """Return a job like a past one."""
    own = JobId(f"later-{run}-{number}")
    return replace(job, id=own, depends_on=(), deadline_s=None, array=None, array_limit=None)


def _last_stream(batches: Sequence[_Batch]) -> Sequence[_Batch]:
    """Return the latest batches that follow each other without an unusually long gap."""
    gaps = [after.at_s - before.at_s for before, after in pairwise(batches)]
    if not gaps:
        return batches
    longest_s = PAUSE * sorted(gaps)[len(gaps) // 2]
    for at in range(len(gaps) - 1, -1, -1):
        if gaps[at] > longest_s:
            return batches[at + 1 :]
    return batches


def _batches(past: Sequence[PastRun]) -> list[_Batch]:
    groups: list[list[PastRun]] = []
    for each in sorted(past, key=lambda run: run.submit_s):
        first = groups[-1][0] if groups else None
        if first is not None and each.submit_s - first.submit_s <= TOGETHER_S and first.job.user == each.job.user:
            groups[-1].append(each)
        else:
            groups.append([each])
    return [_Batch(group[0].submit_s, tuple(group)) for group in groups]
