"""Queues by attained service: the queue of a job, and its place in the list of that queue."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any, NamedTuple

from rota.core.state.job_record import JobView
from rota.mechanisms.ordering.rule import Turn, later

TOLERANCE_GPU_S = 1e-6
"""Tolerance: a queue limit computed as a time and checked as a service may differ by rounding."""
NEVER_S = -1e300
"""A moment before all others that JSON can hold."""


class QueueMemo(NamedTuple):
    """The queue of a job, since when it is there, and the service from which it counts."""

    queue: int
    entered_s: float
    attained_from_gpu_s: float = 0.0
    run_from_s: float = 0.0
    waited_from_s: float = 0.0


def _remembered(memo: Any) -> QueueMemo | None:
    """A job's memo; from a database or a journal it comes as a list."""
    return memo if memo is None or type(memo) is QueueMemo else QueueMemo(*memo)


def queue_of(job: JobView, now_s: float, thresholds: tuple[float, ...]) -> tuple[QueueMemo, float]:
    """The job's queue by its attained service, and when it will leave it."""
    memo = _remembered(job.memo)
    attained = job.attained_gpu_s(now_s) - (memo.attained_from_gpu_s if memo else 0.0)
    queue = bisect_right(thresholds, attained + TOLERANCE_GPU_S)
    if memo is None:
        memo = QueueMemo(queue, now_s)
    elif queue != memo.queue:
        memo = memo._replace(queue=queue, entered_s=now_s)
    until_s = math.inf
    if job.progress_rate and job.gpus and queue < len(thresholds):
        until_s = later(now_s, (thresholds[queue] - attained) / job.gpus)
    return memo, until_s


class ListMemo(NamedTuple):
    """A job's queue, and its last stop and start there: what its place in the list of the queue follows from."""

    queue: int
    entered_s: float
    stopped_s: float = NEVER_S
    started_s: float = NEVER_S


def place_in_list(job: JobView, memo: ListMemo, now_s: float) -> tuple[ListMemo, tuple[float, ...]]:
    """The job's place in the list of its queue, as in the authors' simulator.

    There, each queue is a list that is partitioned after every walk: running jobs before waiting ones, both in their
    order. So a job that starts goes behind those that run already, one that is preempted goes before those that wait
    already, and one that enters the queue goes to the end, behind waiting jobs for this walk even if it runs. Of jobs
    that start or stop together, the order before that decides.
    """
    entered_s, since_s = memo.entered_s, job.since_s
    if job.holds:
        if since_s > entered_s:
            return _started(memo, since_s), (0.0, since_s, 0.0, *_place_waiting(memo))
        if since_s < entered_s == now_s:
            return _started(memo, entered_s), (1.0, 1.0, entered_s, 0.0)
        return _started(memo, entered_s), (0.0, entered_s, 1.0, 0.0, 0.0, 0.0)
    if since_s > entered_s and memo.started_s > NEVER_S:
        memo = ListMemo(memo.queue, entered_s, since_s, memo.started_s)
    return memo, (1.0, *_place_waiting(memo))


def _started(memo: ListMemo, started_s: float) -> ListMemo:
    """The memo of a job that started then; the same object if it is known."""
    if memo.started_s == started_s:
        return memo
    return ListMemo(memo.queue, memo.entered_s, memo.stopped_s, started_s)


def _place_waiting(memo: ListMemo) -> tuple[float, float, float]:
    """The place among waiting jobs: the last that was preempted first, then those that entered, in order."""
    if memo.stopped_s > memo.entered_s:
        return 0.0, -memo.stopped_s, memo.started_s
    return 1.0, memo.entered_s, 0.0


def _listed(memo: Any) -> ListMemo | None:
    """A job's memo; from a database or a journal it comes as a list, of an older version without its stop and start."""
    if memo is None or type(memo) is ListMemo:
        return memo
    return ListMemo(*memo) if len(memo) == len(ListMemo._fields) else ListMemo(*memo[:2])


def turn_in_list(job: JobView, now_s: float, limits: tuple[float, ...]) -> Turn:
    """The job's place in the order: by its queue, and within it by its place in the list."""
    attained = job.attained_gpu_s(now_s)
    queue = bisect_right(limits, attained + TOLERANCE_GPU_S)
    memo = _listed(job.memo)
    if memo is None or memo.queue != queue:
        memo = ListMemo(queue, now_s)
    memo, place = place_in_list(job, memo, now_s)
    until_s = math.inf
    if job.progress_rate and job.gpus and queue < len(limits):
        until_s = later(now_s, (limits[queue] - attained) / job.gpus)
    passes = job.holds and place[0] == 1.0
    return Turn((queue, *place, job.seq), until_s=until_s, memo=memo, again=passes)
