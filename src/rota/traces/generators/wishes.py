"""Wishes that generated jobs may have beside their size: bounds within which it may be chosen, and deadlines.

They are drawn apart from the jobs, so that a seed gives the same jobs with and without them.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from rota.core.errors import RotaError
from rota.core.model.job import Elastic, Job
from rota.perf.training.goodput import TRAININGS
from rota.traces.workload import Submission

MODELS = tuple(TRAININGS)
AT_MOST = 64
"""No job grows beyond so many devices."""
GROWTH = 8
"""By how much a job may grow beyond what it asks for."""
TIGHTNESS = (0.5, 1.5)
"""A deadline lies so many run times after the submission (Gu et al., ASPLOS 2023); 1 more for jobs of fixed size,
which can't make up for time lost."""


def wishes(
    submissions: tuple[Submission, ...], *, elastic: float, deadlines: float, seed: int
) -> tuple[Submission, ...]:
    """Make this share of the jobs elastic, and give that share of those that have none a deadline."""
    for share, name in ((elastic, "elastic"), (deadlines, "deadlines")):
        if not 0 <= share <= 1:
            raise RotaError(f"{name} is {share:g}; it must be a share of the jobs, from 0 to 1")
    if not elastic and not deadlines:
        return submissions
    rng = Random(f"wishes {seed}")
    return tuple(_with_wishes(one, elastic, deadlines, rng) for one in submissions)


def _with_wishes(one: Submission, elastic: float, deadlines: float, rng: Random) -> Submission:
    """Every job uses up the same number of draws, whatever it gets."""
    is_elastic, model = rng.random() < elastic, rng.choice(MODELS)
    is_due, tightness = rng.random() < deadlines, rng.uniform(*TIGHTNESS)
    job = one.job
    if is_elastic:
        job = resizable(job, model)
    if is_due and job.deadline_s is None and job.work is not None:
        slack = tightness if is_elastic else tightness + 1.0
        job = replace(job, deadline_s=round(one.submit_s + slack * job.work, 3))
    return replace(one, job=job)


def resizable(job: Job, model: str) -> Job:
    """The same job with a model whose training is known, from one task to several times what it asks for."""
    asked = job.roles[0].count
    most = max(asked, min(GROWTH * asked, AT_MOST))
    return replace(job, model=model, elastic=Elastic(min_tasks=1, max_tasks=most))
