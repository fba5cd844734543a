"""What a workload is like, in numbers: sizes, run times, outcomes, and the load it asks for over time.

Demand is what there would be if every job started the moment it is submitted and ran alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from rota.core.model.job import WHOLE
from rota.traces.workload import Submission, Workload

QUANTILES = {
    "min": 0.0,
    "p10": 0.1,
    "p25": 0.25,
    "median": 0.5,
    "p75": 0.75,
    "p90": 0.9,
    "p99": 0.99,
    "max": 1.0,
}
BINS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeClass:
    """Jobs of about one size: their number, share of all jobs, and share of all device time."""

    gpus: str
    jobs: int
    job_share: float
    gpu_time_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A workload in numbers. What needs seconds is None where work is in steps.

    `offered_gpus` is all device time over the span of arrivals: the load that is offered to a cluster.
    """

    jobs: int
    span_s: float
    gpu_hours: float | None
    offered_gpus: float | None
    tenants: int
    users: int
    outcomes: dict[str, int]
    sizes: tuple[SizeClass, ...]
    work_unit: str
    work: dict[str, float]
    bin_s: float
    load_gpus: tuple[float, ...]


def describe(workload: Workload, *, bins: int = BINS) -> Description:
    """Measure a workload; `load_gpus` has `bins` equal bins from the first submission to the last."""
    submissions = workload.submissions
    first_s, last_s = submissions[0].submit_s, submissions[-1].submit_s
    in_seconds = not workload.counts_steps
    gpu_s = sum(_gpu_s(submission) for submission in submissions) if in_seconds else None
    span_s = last_s - first_s
    bin_s = span_s / bins
    return Description(
        jobs=len(submissions),
        span_s=span_s,
        gpu_hours=None if gpu_s is None else gpu_s / 3600,
        offered_gpus=None if gpu_s is None or not span_s else gpu_s / span_s,
        tenants=len({submission.job.tenant for submission in submissions}),
        users=len({submission.job.user for submission in submissions} - {""}),
        outcomes=_outcomes(submissions),
        sizes=_sizes(submissions, gpu_s),
        work_unit="s" if in_seconds else "steps",
        work=_quantiles(sorted(_run(submission) for submission in submissions)),
        bin_s=bin_s,
        load_gpus=demand(submissions, first_s, bin_s, bins) if in_seconds and span_s else (),
    )


def _run(submission: Submission) -> float:
    """What the job will really do of its work."""
    return (submission.job.work or 0.0) * submission.ends_at


def _gpu_s(submission: Submission) -> float:
    return submission.job.gpus * _run(submission)


def _outcomes(submissions: Sequence[Submission]) -> dict[str, int]:
    counts = Counter(submission.outcome.value for submission in submissions)
    return dict(counts.most_common())


def _quantiles(ordered: Sequence[float]) -> dict[str, float]:
    """Named quantiles (`sorted[int(q * n)]`) and the mean."""
    last = len(ordered) - 1
    found = {name: ordered[min(last, int(q * len(ordered)))] for name, q in QUANTILES.items()}
    return {**found, "mean": sum(ordered) / len(ordered)}


def _sizes(submissions: Sequence[Submission], gpu_s: float | None) -> tuple[SizeClass, ...]:
    members: dict[int, list[Submission]] = {}
    for submission in submissions:
        members.setdefault(_size_class(submission.job.gpu_milli), []).append(submission)
    return tuple(
        SizeClass(
            gpus=_range(alike),
            jobs=len(alike),
            job_share=len(alike) / len(submissions),
            gpu_time_share=sum(map(_gpu_s, alike)) / gpu_s if gpu_s else None,
        )
        for _, alike in sorted(members.items())
    )


NO_DEVICE, FRACTION = -2, -1


def _size_class(gpu_milli: int) -> int:
    """Powers of two: class n holds up to 2**n devices and more than half as many."""
    if gpu_milli == 0:
        return NO_DEVICE
    if gpu_milli < WHOLE:
        return FRACTION
    return (-(-gpu_milli // WHOLE) - 1).bit_length()


def _range(alike: Sequence[Submission]) -> str:
    """The sizes that a class really has."""
    least = min(submission.job.gpus for submission in alike)
    most = max(submission.job.gpus for submission in alike)
    return f"{least:g}" if least == most else f"{least:g}-{most:g}"


def demand(submissions: Sequence[Submission], first_s: float, bin_s: float, bins: int) -> tuple[float, ...]:
    """Mean devices wanted in each bin if every job starts when it is submitted.

    A job fills whole bins between its first and its last; those are added as a step up and a step down, so
    that the cost does not grow with the length of jobs.
    """
    steps = [0.0] * (bins + 1)
    parts = [0.0] * (bins + 1)
    for submission in submissions:
        gpus = submission.job.gpus
        begin = (submission.submit_s - first_s) / bin_s
        end = min(begin + _run(submission) / bin_s, float(bins))
        head, tail = min(int(begin), bins), int(end)
        if head == tail:
            parts[head] += gpus * (end - begin)
            continue
        parts[head] += gpus * (head + 1 - begin)
        parts[tail] += gpus * (end - tail)
        steps[head + 1] += gpus
        steps[tail] -= gpus
    return tuple(max(0.0, whole + part) for whole, part in zip(accumulate(steps), parts, strict=True))[:bins]
