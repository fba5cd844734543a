"""Sizes and types of jobs whose model is planned; loads nothing of the planner, so that other runs start quickly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rota.core.model.job import WHOLE, Elastic, Job
from rota.perf.profiles.speed_table import Speeds
from rota.traces.workload import Submission

BEST, FIXED = "plans", "plans:fixed"
NAMES = (BEST, FIXED)
"""What `--profiles` can be for speeds by plan: the best plan wherever a job runs, or the plan of its request."""


def device_counts(job: Job) -> list[int]:
    """Return every number of devices that a job may run on."""
    if job.elastic is None:
        return [max(job.gpu_milli // WHOLE, 1)]
    each = job.roles[0].device_milli
    return [max(tasks * each // WHOLE, 1) for tasks in range(job.elastic.min_tasks, job.elastic.max_tasks + 1)]


def on_any_type(submissions: Sequence[Submission], profiles: Speeds, least: float) -> tuple[Submission, ...]:
    """Return the submissions for a policy that does not see speeds at each size when it places a job.

    Elastic jobs of planned models keep the types on which their requested size reaches this part of the best speed, and
    the sizes that fit on all of these types and reach this part of the speed at the requested size.
    """
    return tuple(
        replace(submission, job=_on_any_type(submission.job, profiles, least))
        if submission.job.elastic is not None
        and submission.job.model is not None
        and profiles.has_sizes(submission.job.model)
        else submission
        for submission in submissions
    )


def _on_any_type(job: Job, profiles: Speeds, least: float) -> Job:
    assert job.elastic is not None
    role, model = job.roles[0], str(job.model)
    each = role.device_milli // WHOLE
    speeds = {kind: profiles.rate(kind, model, role.count * each) or 0.0 for kind in role.device_types}
    best = max(speeds.values(), default=0.0)
    kept = tuple(kind for kind, speed in speeds.items() if speed > 0 and speed >= least * best)
    sizes = range(job.elastic.min_tasks, role.count + 1)

    def is_enough(size: int) -> bool:
        rates = [(profiles.rate(kind, model, size * each) or 0.0, speeds[kind]) for kind in kept]
        return all(rate > 0 and rate >= least * at_request for rate, at_request in rates)

    low = next((size for size in sizes if is_enough(size)), role.count)
    bounds = Elastic(min_tasks=low, max_tasks=job.elastic.max_tasks)
    return replace(job, elastic=bounds, roles=(replace(role, device_types=kept or role.device_types),))
