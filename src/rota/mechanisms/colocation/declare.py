"""The family of co-location policies: a rule admits jobs to devices in use, the co-location scheduler places them."""

from __future__ import annotations

import math

from rota.core.engine.protocols import Policy
from rota.core.model.job import Job
from rota.mechanisms.colocation.checked import CheckedColocationRule
from rota.mechanisms.colocation.rule import ColocationRule
from rota.mechanisms.colocation.scheduler import ColocationScheduler
from rota.mechanisms.declare import MOVES, SHARES
from rota.mechanisms.family import Build, Family


def _schedule(rule: ColocationRule, build: Build) -> Policy:
    return ColocationScheduler(rule, build.allocator, name=build.name)


colocation = Family(schedule=_schedule, check=CheckedColocationRule, emits=SHARES | MOVES)


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
