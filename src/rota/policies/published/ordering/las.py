"""Discretised two-dimensional least attained service: the job with the least device time goes first."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rota.core.errors import RotaError
from rota.core.state.job_record import JobView
from rota.mechanisms.declare import Traits
from rota.mechanisms.ordering.declare import ordering
from rota.mechanisms.ordering.rule import Turn
from rota.mechanisms.ordering.service_queues import TOLERANCE_GPU_S, turn_in_list

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
        return turn_in_list(job, now_s, self._queues.limits)

    def ended(self, job: JobView, now_s: float) -> bool:
        """Learn the size of a job that ended."""
        return self._queues.learn(job.attained_gpu_s(now_s))
