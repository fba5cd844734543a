"""Jobs between their check and their arrival, and the latest jobs of each name."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.model.job import Job, JobId
from rota.live.loop.record import Record

MOST_NAMES = 10_000
"""Names whose latest jobs are kept in memory; those of others are read from the database."""
UNNAMED = JobId("unnamed")
"""The id of a job until it gets its own."""
REVISED = (
    "name",
    "priority",
    "estimate_s",
    "deadline_s",
    "time_limit_s",
    "max_restarts",
    "checkpoint",
    "preemptible",
)
"""Fields of a job that may change while it waits."""


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that was checked and has no id yet."""

    job: Job
    record: Record
    needs: list[JobId]


def keep_latest(known: dict[tuple[str, str], list[JobId]], new: dict[tuple[str, str], list[JobId]]) -> None:
    """Add the latest jobs of each tenant and name; the oldest names are dropped."""
    for names, ids in new.items():
        known.pop(names, None)
        known[names] = ids
    while len(known) > MOST_NAMES:
        del known[next(iter(known))]
