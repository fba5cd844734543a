"""What follows from the limits of callers: the quota of submissions, and how many connections there may be."""

from __future__ import annotations

import resource

from rota.files.up_file import LimitsPart
from rota.live.intake.quotas import JobQuota

MOST_DESCRIPTORS = 65_536
"""More are not asked for: programs that close all descriptors at their start take long where there are more."""
OWN_DESCRIPTORS = 256
"""Descriptors that the manager keeps for itself: database, folders, worker processes, notices of tasks."""


def job_quota(limits: LimitsPart) -> JobQuota:
    """Return what the holder of one token may submit."""
    return JobQuota(
        per_second=limits.jobs_per_second,
        burst=limits.jobs_burst,
        at_once=limits.jobs_at_once,
        waiting=limits.waiting_jobs,
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
