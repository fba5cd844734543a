"""Which jobs are alike: what a run time is a multiple of, and the groups from all jobs to those most like one."""

from __future__ import annotations

import math
from collections.abc import Hashable
from enum import Enum

from rota.core.model.job import Job
from rota.forecast.past import PastRun, kind_of


class Base(Enum):
    """What a run time is a multiple of; the mean and spread of the logarithm of the multiple, and the usual spread."""

    ESTIMATE = (0.0, 0.4, 0.3)
    LIMIT = (math.log(0.4), 0.8, 0.5)
    SECOND = (math.log(1800.0), 1.8, 0.3)

    @property
    def mean(self) -> float:
        """The mean before anything is known."""
        return self.value[0]

    @property
    def spread(self) -> float:
        """The standard deviation before anything is known."""
        return self.value[1]

    @property
    def within(self) -> float:
        """The standard deviation among like jobs before anything is known."""
        return self.value[2]


def base_of_key(key: Hashable) -> Base:
    """Return what the run times of a group or sequence are multiples of."""
    assert isinstance(key, tuple)
    base = key[0]
    assert isinstance(base, Base)
    return base


def sequence_of(job: Job, base: Base) -> Hashable:
    """Return the sequence of submissions that a job belongs to: those of its owner and its size."""
    return base, job.user or str(job.tenant), job.gpu_milli


def base_of(job: Job) -> Base:
    """Return what the run time of a job is a multiple of."""
    if job.estimate_s:
        return Base.ESTIMATE
    return Base.LIMIT if job.time_limit_s else Base.SECOND


def scale_of(job: Job, base: Base) -> float | None:
    """Return the seconds that a run time is a multiple of; None if the job does not say."""
    match base:
        case Base.ESTIMATE:
            return job.estimate_s or None
        case Base.LIMIT:
            return job.time_limit_s or None
        case Base.SECOND:
            return 1.0


Keys = tuple[tuple[Hashable, str], ...]
"""Groups with the names of their levels, from all jobs to those most alike."""


def by_name(run: PastRun, base: Base) -> Keys:
    """Return the groups of a job whose name ran before."""
    owner, name = run.job.user or str(run.job.tenant), kind_of(run.job.name)
    groups: list[tuple[Hashable, str]] = [((base, "all"), "all"), ((base, "user", owner), "user")]
    if run.command:
        groups.append(((base, "command", owner, run.command), "command"))
    groups.append(((base, "name", owner, name), "name"))
    if name != run.job.name:
        groups.append(((base, "exact name", owner, run.job.name), "exact name"))
    if base is Base.SECOND:
        groups.append(((base, "name and size", owner, run.job.name, run.job.gpu_milli), "name and size"))
    return tuple(groups)


def by_size(run: PastRun, base: Base) -> Keys:
    """Return the groups of a job of a new name."""
    owner, size = run.job.user or str(run.job.tenant), run.job.gpu_milli
    if base is not Base.SECOND:
        return ((base, "all"), "all"), ((base, "user", owner), "user")
    return (
        ((base, "all"), "all"),
        ((base, "size", size), "size"),
        ((base, "user and size", owner, size), "user and size"),
    )
