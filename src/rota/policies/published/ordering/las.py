"""Discretised two-dimensional least attained service: the job with the least device time goes first."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from rota.core.errors import RotaError
from rota.core.state.job_record import JobView
from rota.mechanisms.declare import Traits
from rota.mechanisms.ordering.declare import ordering
from rota.mechanisms.ordering.rule import Turn, later

TOLERANCE_GPU_S = 1e-6
"""Tolerance: a queue limit computed as a time and checked as a service may differ by rounding."""


NEVER_S = -1e300
"""A moment before all others that JSON can hold."""
GEOMETRIC = tuple(600.0 * 2.0**doublings for doublings in range(40))
"""Limits that double: a job of any size passes logarithmically many, and none waits behind much larger ones."""
FIRST_LIMITS = 16
"""Jobs that must have ended before limits are taken from their sizes; then again at each doubling."""
QUANTILES = (0.5, 0.8, 0.95)


class LimitRule(Enum):
    """Where queue limits come from."""

    PUBLISHED = "published"
    GEOMETRIC = "geometric"
    OBSERVED = "observed"


class QueueLimits:
    """The queue limits in force: given, doubling, or learned from the sizes of ended jobs."""

    def __init__(self, thresholds: tuple[float, ...], rule: LimitRule) -> None:
        self._rule = rule
        self.limits = GEOMETRIC if rule is LimitRule.GEOMETRIC else thresholds
        self._sizes: list[float] = []
        self._next_lesson = FIRST_LIMITS

    @property
    def memory(self) -> Any:
        """The observed sizes; None where they are not needed."""
        return tuple(self._sizes) if self._rule is LimitRule.OBSERVED else None

    def learn(self, size_gpu_s: float) -> bool:
        """Add the size of a job that ended; return whether the limits changed."""
        if self._rule is not LimitRule.OBSERVED:
            return False
        insort(self._sizes, size_gpu_s)
        if len(self._sizes) < self._next_lesson:
            return False
        self._next_lesson = 2 * len(self._sizes)
        found = [self._sizes[int(part * len(self._sizes))] for part in QUANTILES]
        limits = tuple(sorted({limit for limit in found if limit > TOLERANCE_GPU_S}))
        is_changed = limits != self.limits
        self.limits = limits
        return is_changed


@dataclass(frozen=True, slots=True, kw_only=True)
class LasParams:
    """Queue limits in device-seconds; a job past the last stays in the last queue.

    The default `thresholds` are those of the authors' simulator, whose third value (18,000) is never used there. Other
    rules than `published` replace them: `geometric` limits double from 600 device-seconds without end; `observed`
    limits are the 50th, 80th and 95th percentiles of the sizes of jobs that ended, once enough have.
    """

    thresholds: tuple[float, ...] = (3250.0, 7200.0)
    rule: LimitRule = LimitRule.PUBLISHED

    def __post_init__(self) -> None:
        check_thresholds(self.thresholds)


def check_thresholds(thresholds: tuple[float, ...]) -> None:
    """Refuse limits that do not increase from above 0."""
    if any(low >= high for low, high in zip((0.0, *thresholds), thresholds, strict=False)):
        text = "/".join(f"{limit:g}" for limit in thresholds)
        raise RotaError(f"thresholds are {text}; they must increase, from above 0")


class QueueMemo(NamedTuple):
    """The queue of a job, since when it is there, and the service from which it counts."""

    queue: int
    entered_s: float
    attained_from_gpu_s: float = 0.0
    run_from_s: float = 0.0
    waited_from_s: float = 0.0


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


def _remembered(memo: Any) -> QueueMemo | None:
    """A job's memo; from a database or a journal it comes as a list."""
    return memo if memo is None or type(memo) is QueueMemo else QueueMemo(*memo)


def _listed(memo: Any) -> ListMemo | None:
    """A job's memo; from a database or a journal it comes as a list, of an older version without its stop and start."""
    if memo is None or type(memo) is ListMemo:
        return memo
    return ListMemo(*memo) if len(memo) == len(ListMemo._fields) else ListMemo(*memo[:2])


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


@ordering(
    "las",
    cites="Gu et al., NSDI 2019 (Discretized 2D-LAS)",
    preempts=True,
    traits=Traits(
        scheduling_input="attained service (time x devices)",
        dimensions="time and space",
        priority="by attained service, in queues",
        preemption="yes",
        placement="consolidated",
        intrusiveness="checkpoint",
    ),
)
class least_attained_service:  # noqa: N801 - named as the policy function that it stands for
    """The least attained service goes first, compared by queue so that two jobs do not swap every second."""

    def __init__(self, params: LasParams) -> None:
        self._queues = QueueLimits(params.thresholds, params.rule)

    @property
    def memory(self) -> Any:
        """The observed sizes, where limits are learned."""
        return self._queues.memory

    def turn(self, job: JobView, now_s: float) -> Turn:
        """The job's place in the order."""
        limits = self._queues.limits
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

    def ended(self, job: JobView, now_s: float) -> bool:
        """Learn the size of a job that ended."""
        return self._queues.learn(job.attained_gpu_s(now_s))
