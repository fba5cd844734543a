"""Declaration of co-location policies, and access to the job labels they read."""

from __future__ import annotations

import math
from functools import partial

from rota.core.model.job import Job
from rota.mechanisms.colocation.scheduler import ColocationScheduler
from rota.mechanisms.declare import by_rule

sharing = partial(by_rule, ColocationScheduler)


def label(job: Job, name: str) -> str | None:
    """Return the value of a job's label, None if it has none of that name."""
    return next((value for key, value in job.labels if key == name), None)


def number(job: Job, name: str, otherwise: float) -> float:
    """Return a job's label as a number; `otherwise` if the label is missing or not a finite number."""
    try:
        value = float(label(job, name) or math.nan)
    except ValueError:
        return otherwise
    return value if math.isfinite(value) else otherwise
