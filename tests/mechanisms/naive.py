"""The list scheduler as one would write it on a napkin: clear the cluster, walk all jobs, take what fits."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class NaiveJob:
    """One job of `gpus` tasks; times and work are whole numbers, so that sums are exact."""

    seq: int
    submit_s: float
    gpus: int
    left_s: float
    running: bool = False
    attained: float = 0.0
    queue: int = 0
    entered_s: float = 0.0
    end_s: float = math.inf


Key = Callable[[NaiveJob], tuple[float, ...]]
THRESHOLDS = (64.0, 256.0)

KEYS: dict[str, Key] = {
    "fewest-gpus": lambda job: (job.gpus, job.seq),
    "srtf": lambda job: (job.left_s, job.seq),
    "srsf": lambda job: (job.left_s * job.gpus, job.gpus, job.seq),
    "fifo:backfill=true": lambda job: (not job.running, job.seq),
    "fifo": lambda job: (not job.running, job.seq),
}


def completion_times(devices: int, jobs: list[tuple[float, int, float]], policy: str) -> list[float]:
    """When each job (submit, gpus, seconds) ends."""
    key = KEYS[policy]
    coming = [NaiveJob(seq, *fields) for seq, fields in enumerate(jobs)]
    everyone = list(coming)
    active: list[NaiveJob] = []
    now_s = 0.0
    while coming or active:
        now_s = _next_moment(now_s, coming, active)
        active = [job for job in active if not _is_done(job, now_s)]
        while coming and coming[0].submit_s <= now_s:
            coming[0].entered_s = now_s
            active.append(coming.pop(0))
        for job in active:
            queue = bisect_right(THRESHOLDS, job.attained)
            if queue != job.queue:
                job.queue, job.entered_s = queue, now_s
        _walk(devices, sorted(active, key=key), strict=policy == "fifo")
    return [job.end_s for job in everyone]


def _next_moment(now_s: float, coming: list[NaiveJob], active: list[NaiveJob]) -> float:
    """Go to the next arrival, end or change of queue, and let everybody who runs get on with it."""
    then_s = coming[0].submit_s if coming else math.inf
    for job in active:
        if job.running:
            then_s = min(then_s, now_s + job.left_s)
            if job.queue < len(THRESHOLDS):
                then_s = min(then_s, now_s + (THRESHOLDS[job.queue] - job.attained) / job.gpus)
    for job in active:
        if job.running:
            job.left_s -= then_s - now_s
            job.attained += (then_s - now_s) * job.gpus
    return then_s


def _is_done(job: NaiveJob, now_s: float) -> bool:
    if job.left_s <= 0:
        job.end_s = now_s
    return job.left_s <= 0


def _walk(devices: int, ordered: list[NaiveJob], strict: bool) -> None:
    blocked = False
    for job in ordered:
        job.running = job.gpus <= devices and not blocked
        if job.running:
            devices -= job.gpus
        elif strict:
            blocked = True
