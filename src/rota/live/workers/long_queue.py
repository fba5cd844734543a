"""The rows of a long queue, of which only a sample is decoded and run forward."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rota.core.codec.values import decode_job
from rota.core.model.job import Job, JobId, JobState
from rota.forecast.past import PastRun
from rota.forecast.queue_sample import MOST_WAITING, QueuedJob, QueueSample, needed_by, sampled

LATEST = 500
"""How many of the latest waiting jobs tell what arrives, where only a sample is run forward."""


LEAST_WAITING = 200
USUAL_S = 1e-4
"""Seconds of a forward run per waiting job, before any was seen."""
WANTED_RUNS = 8


class QueuePace:
    """How many waiting jobs forward runs have time for, by policy: as many as several runs were seen to have."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def most(self, policy: str, seconds: float) -> int:
        """Return the number of waiting jobs with which enough runs take so many seconds of all processes."""
        fitting = seconds / WANTED_RUNS / self._seconds.get(policy, USUAL_S)
        return int(min(max(fitting, LEAST_WAITING), MOST_WAITING))

    def see(self, policy: str, waiting: int, runs: int, seconds: float) -> None:
        """Take a forecast: so many runs, or none that came to its end, took so many seconds of all processes."""
        if waiting >= LEAST_WAITING:
            self._seconds[policy] = seconds / max(runs, 1) / waiting


class LongQueue:
    """Chooses among the rows of unfinished jobs for a question about some of them."""

    def __init__(self, asked: Iterable[JobId], most: int = MOST_WAITING) -> None:
        self._asked = list(asked)
        self._most = most
        self.sample = QueueSample()
        """What the chosen rows stand for."""
        self.latest: list[PastRun] | None = None
        """The latest submissions, where only a sample of the queue is decoded; without commands."""

    def __call__(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Return the rows to decode: all, or a sample of those that wait, with what they depend on."""
        if len(rows) <= self._most:
            return rows
        fresh = [row for row in rows if row.started_s is None and row.state == JobState.WAITING.value]
        queue = [_queued(row) for row in fresh]
        themselves = needed_by(self._asked, queue)
        chosen = sampled(queue, themselves, self._most)
        if chosen is None:
            return rows
        several = sum(each.id not in themselves for each in queue)
        self.sample = QueueSample(stands_for=several / len(chosen), waiting=len(queue), jobs=frozenset(chosen))
        left_out = {each.id for each in queue} - needed_by([*chosen, *themselves], queue)
        self.latest = [PastRun(job=_job(row), submit_s=row.submitted_s) for row in fresh[-LATEST:]]
        return [row for row in rows if row.id not in left_out]


def _queued(row: Any) -> QueuedJob:
    value = json.loads(row.job)
    needed = tuple(JobId(name) for name in value.get("depends_on", ()))
    return QueuedJob(id=JobId(row.id), priority=value.get("priority", 0), depends_on=needed)


def _job(row: Any) -> Job:
    return decode_job(json.loads(row.job))
