"""The limits of callers, with the defaults that a lab does not notice."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from rota.live.intake.quotas import JobQuota

MOST_DESCRIPTORS = 65_536
"""More are not asked for: programs that close all descriptors at their start take long where there are more."""
OWN_DESCRIPTORS = 256
"""Descriptors that the manager keeps for itself: database, folders, worker processes, notices of tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one manager; those of a token are for each token."""

    requests_per_second: float = 100.0
    requests_burst: int = 1000
    requests_at_once: int = 6
    """Requests of a token that are worked on together; others of it wait."""
    requests_waiting: int = 64
    streams: int = 64
    """Followed logs, event streams and open pages of a token."""
    jobs_per_second: float = 20.0
    jobs_burst: int = 10_000
    jobs_at_once: int = 1000
    waiting_jobs: int = 20_000
    """Unfinished jobs of a token that do not run."""
    connections: int = 2000

    @property
    def job_quota(self) -> JobQuota:
        """What the holder of one token may submit."""
        return JobQuota(
            per_second=self.jobs_per_second,
            burst=self.jobs_burst,
            at_once=self.jobs_at_once,
            waiting=self.waiting_jobs,
        )


def raise_descriptor_limit() -> int:
    """Raise the limit of open files as far as it may be raised; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def most_connections(wanted: int, descriptors: int, tasks: int) -> int:
    """Return how many connections leave the manager enough descriptors for itself and for this many tasks."""
    reserve = min(OWN_DESCRIPTORS + tasks, descriptors // 2)
    return max(min(wanted, descriptors - reserve), 8)
