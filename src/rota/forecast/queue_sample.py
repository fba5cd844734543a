"""A sample of a long queue: some of the waiting jobs stand for all, so that a forward run takes a bounded time.

A queue of which every n-th job is there moves on as quickly as the whole one, but a job has an n-th as many ahead of
it. Its start comes after so many others at the pace that was seen, and therefore later in proportion. Later arrivals
come at their own rate: in an n-th of the time there is an n-th of them. The job that is asked about and those that it
depends on stand for themselves, as does every job that has started.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from rota.core.model.job import JobId
from rota.forecast.forward import HORIZON_S, RunResult

MOST_WAITING = 1000
"""Waiting jobs that a forward run has at most, but for those that stand for themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """What a sample goes by: a waiting job, its priority, and what it needs."""

    id: JobId
    priority: int
    depends_on: tuple[JobId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSample:
    """The sample of a queue; of a short one, all of it."""

    stands_for: float = 1.0
    """How many jobs each job of the sample stands for."""
    waiting: int = 0
    """How many jobs wait in all, if only a sample of them is run forward."""
    jobs: frozenset[JobId] = frozenset()
    """The sample."""

    def ahead(self, found: RunResult) -> float:
        """Return how many waiting jobs start before the one that is asked about."""
        chosen = sum(name in self.jobs for name in found.ahead)
        return len(found.ahead) + (self.stands_for - 1.0) * chosen

    def whole(self, found: RunResult, now_s: float) -> RunResult:
        """Return what becomes of the job in the whole queue, given what became of it with the sample."""
        more = self.stands_for - 1.0
        if not more:
            return found
        themselves = sum(name not in self.jobs for name in found.ahead)
        share = max(found.starts_before - themselves, 0) / (found.starts_before + 1)
        later_s = more * share * (found.start_s - now_s) if math.isfinite(found.start_s) else 0.0
        until_s = now_s + HORIZON_S
        start_s, end_s = found.start_s + later_s, found.end_s + later_s + more * found.stopped_s
        return replace(
            found,
            start_s=start_s if start_s <= until_s else math.inf,
            end_s=end_s if end_s <= until_s else math.inf,
        )


def sampled(waiting: Sequence[QueuedJob], whole: Iterable[JobId], most: int = MOST_WAITING) -> Collection[JobId] | None:
    """Return which of the waiting jobs, in order of submission, stand for all; None if all are to be run forward.

    `whole` are jobs that stand for themselves. The sample has jobs of every priority and from every part of the queue.
    """
    themselves = set(whole)
    others = [each for each in waiting if each.id not in themselves]
    if len(others) <= most:
        return None
    ordered = sorted(others, key=lambda each: -each.priority)
    every = len(ordered) / most
    return {ordered[int((turn + 0.5) * every)].id for turn in range(most)}


def needed_by(asked: Iterable[JobId], waiting: Sequence[QueuedJob]) -> set[JobId]:
    """Return jobs and all waiting ones that they depend on, whether directly or not."""
    by_id = {each.id: each for each in waiting}
    found: set[JobId] = set()
    left = list(asked)
    while left:
        job_id = left.pop()
        if job_id not in found:
            found.add(job_id)
            left += by_id[job_id].depends_on if job_id in by_id else ()
    return found
