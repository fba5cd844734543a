"""Workloads made of others, in small steps that can be chained: a step is a name and a value, such as `load=0.9`.

Each step takes a workload and returns another; none changes its input. Dependencies on jobs that a step leaves out are
dropped with them, and deadlines move with the submission of their job.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.traces.workload import Submission, Workload


def demand_gpu_s(workload: Workload) -> float:
    """Device-seconds that all jobs need; unknown, and refused, where work is in steps."""
    if workload.counts_steps:
        raise RotaError(
            f"{workload.source}: its work is in steps, so that its load is not known; "
            "scale its times by a factor instead (`rota trace transform ... stretch=0.5`)"
        )
    return sum(each.target * each.job.gpus for each in workload.submissions)


def span_s(workload: Workload) -> float:
    """From the first submission to the last."""
    submissions = workload.submissions
    return submissions[-1].submit_s - submissions[0].submit_s if submissions else 0.0


def offered_load(workload: Workload, devices: float) -> float:
    """The mean demand between the first and the last submission, as a fraction of so many devices."""
    length_s = span_s(workload)
    if length_s <= 0:
        raise RotaError(f"{workload.source}: all jobs are submitted at one moment; they have no load over time")
    return demand_gpu_s(workload) / length_s / devices


def stretched(workload: Workload, factor: float) -> Workload:
    """The jobs with the times between submissions multiplied, from the first on."""
    if not workload.submissions:
        return workload
    zero_s = workload.submissions[0].submit_s
    return replace(
        workload,
        submissions=tuple(moved(each, zero_s + factor * (each.submit_s - zero_s)) for each in workload.submissions),
    )


def scaled_to_load(workload: Workload, load: float, devices: float) -> Workload:
    """The jobs with times stretched so that their demand is `load` of so many devices."""
    return stretched(workload, offered_load(workload, devices) / load)


def moved(each: Submission, submit_s: float) -> Submission:
    """A submission at another time; a deadline keeps its distance."""
    job = each.job
    if job.deadline_s is not None:
        job = replace(job, deadline_s=job.deadline_s + submit_s - each.submit_s)
    return replace(each, job=job, submit_s=submit_s)


def kept(workload: Workload, submissions: Sequence[Submission], *, from_zero: bool = True) -> Workload:
    """A workload of some of the submissions; what depends on others no longer does."""
    if not submissions:
        raise RotaError(f"{workload.source}: no job is left")
    zero_s = submissions[0].submit_s if from_zero else 0.0
    return replace(
        workload,
        submissions=tuple(moved(each, each.submit_s - zero_s) for each in depending_on_known(submissions)),
    )


def depending_on_known(submissions: Sequence[Submission]) -> tuple[Submission, ...]:
    """Submissions whose jobs depend on each other only, no longer on jobs that are not among them."""
    known = {each.job.id for each in submissions}
    return tuple(_without(each, known) for each in submissions)


def _without(each: Submission, known: set[JobId]) -> Submission:
    needs = each.job.depends_on
    if all(one in known for one in needs):
        return each
    return replace(each, job=replace(each.job, depends_on=tuple(one for one in needs if one in known)))


def window_of_jobs(workload: Workload, first: int, jobs: int) -> Workload:
    """So many consecutive jobs, with time counted from the first of them."""
    return kept(workload, workload.submissions[first : first + jobs])


def sliced_by_time(workload: Workload, from_s: float, until_s: float) -> Workload:
    """The jobs submitted in [from_s, until_s) after the first submission."""
    zero_s = workload.submissions[0].submit_s if workload.submissions else 0.0
    return kept(workload, [each for each in workload.submissions if from_s <= each.submit_s - zero_s < until_s])


def sampled(workload: Workload, fraction: float, seed: int) -> Workload:
    """Each job with a probability, independently; times stay as they are."""
    rng = random.Random(f"sample {seed}")
    return kept(workload, [each for each in workload.submissions if rng.random() < fraction], from_zero=False)


def filtered(workload: Workload, keep: Callable[[Submission], bool]) -> Workload:
    """The jobs for which a condition holds."""
    return kept(workload, [each for each in workload.submissions if keep(each)], from_zero=False)


def merged_with(workload: Workload, others: Sequence[Workload]) -> Workload:
    """Several workloads at once, each from time 0; if ids clash, all get the number of their workload as a prefix."""
    if not others:
        return workload
    everything = [workload, *others]
    if len({each.counts_steps for each in everything}) > 1:
        raise RotaError("workloads in seconds and in steps can't be merged; convert one of them first")
    ids = [each.job.id for one in everything for each in one.submissions]
    clash = len(set(ids)) < len(ids)
    together = [
        _renamed(moved(each, each.submit_s - one.submissions[0].submit_s), f"{number}-" if clash else "")
        for number, one in enumerate(everything, start=1)
        for each in one.submissions
    ]
    together.sort(key=lambda each: each.submit_s)
    return replace(
        workload, submissions=tuple(together), source=" + ".join(one.source for one in everything), cluster=None
    )


def _renamed(each: Submission, prefix: str) -> Submission:
    if not prefix:
        return each
    job = each.job
    needs = tuple(JobId(prefix + one) for one in job.depends_on)
    array = None if job.array is None else JobId(prefix + job.array)
    return replace(each, job=replace(job, id=JobId(prefix + job.id), depends_on=needs, array=array))
