"""How policies that share devices introduce themselves: a rule that says who may share them with whom."""

from __future__ import annotations

import math
from functools import partial

from rota.core.model.job import Job
from rota.mechanisms.colocation.scheduler import ColocationScheduler
from rota.mechanisms.declare import by_rule

sharing = partial(by_rule, ColocationScheduler)


def label(job: Job, name: str) -> str | None:
    """What a job's label of that name says, if it has one."""
    return next((value for key, value in job.labels if key == name), None)


def number(job: Job, name: str, otherwise: float) -> float:
    """The number that a job's label says; what stands otherwise if it has none, or one that is no finite number."""
    try:
        said = float(label(job, name) or math.nan)
    except ValueError:
        return otherwise
    return said if math.isfinite(said) else otherwise
