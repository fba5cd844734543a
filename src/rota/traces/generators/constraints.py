"""Constraints of generated jobs besides their size: bounds of elastic jobs, and deadlines.

They have their own random stream, so that a seed gives the same jobs with and without them.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from rota.core.errors import RotaError
from rota.core.model.job import Elastic, Job
from rota.perf.training.goodput import TRAININGS
from rota.traces.workload import Submission

MODELS = tuple(TRAININGS)
_STREAM = "wishes"
"""The name of the random stream; another one would change every generated trace."""
AT_MOST = 64
"""The largest size of an elastic job, in devices."""
GROWTH = 8
"""The largest size of an elastic job, relative to what it asks for."""
TIGHTNESS = (0.5, 1.5)
"""The time from submission to deadline in run times (Gu et al., ASPLOS 2023); 1 more for jobs of fixed size,
which can't catch up."""


def constrained(
    submissions: tuple[Submission, ...], *, elastic: float, deadlines: float, seed: int
) -> tuple[Submission, ...]:
    """Make this share of the jobs elastic, and give that share of those that have none a deadline."""
    for share, name in ((elastic, "elastic"), (deadlines, "deadlines")):
        if not 0 <= share <= 1:
            raise RotaError(f"{name} is {share:g}; it must be a share of the jobs, from 0 to 1")
    if not elastic and not deadlines:
        return submissions
    rng = Random(f"{_STREAM} {seed}")
    return tuple(_with_constraints(one, elastic, deadlines, rng) for one in submissions)


def _with_constraints(one: Submission, elastic: float, deadlines: float, rng: Random) -> Submission:
    """Add constraints to one job; every job takes the same number of random values."""
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
    """The job as an elastic one: with a model of known training, from one task to several times its size."""
    asked = job.roles[0].count
    most = max(asked, min(GROWTH * asked, AT_MOST))
    return replace(job, model=model, elastic=Elastic(min_tasks=1, max_tasks=most))
