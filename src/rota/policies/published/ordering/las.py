"""Discretised two-dimensional least attained service: the job with the least device time goes first."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, NamedTuple

from rota.core.errors import RotaError
from rota.core.state.job_record import JobView
from rota.mechanisms.declare import Traits
from rota.mechanisms.ordering.declare import ordering
from rota.mechanisms.ordering.rule import Turn, later

TOLERANCE_GPU_S = 1e-6
"""Tolerance: a queue limit computed as a time and checked as a service may differ by rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LasParams:
    """Queue limits in device-seconds; a job past the last stays in the last queue.

    The defaults are those of the authors' simulator, whose third value (18,000) is never used there.
    """

    thresholds: tuple[float, ...] = (3250.0, 7200.0)

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
def least_attained_service(job: JobView, now_s: float, params: LasParams) -> Turn:
    """The least attained service goes first, compared by queue so that two jobs do not swap every second."""
    memo, until_s = queue_of(job, now_s, params.thresholds)
    return Turn((memo.queue, not job.holds, memo.entered_s, job.seq), until_s=until_s, memo=memo)
