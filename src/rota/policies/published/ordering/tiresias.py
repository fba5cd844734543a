"""Tiresias: attained service in queues, promotion of starved jobs, and consolidation only for models that need it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rota.core.errors import RotaError
from rota.core.state.job_record import JobView
from rota.mechanisms.declare import Traits
from rota.mechanisms.ordering.declare import ordering
from rota.mechanisms.ordering.rule import Turn
from rota.mechanisms.ordering.service_queues import QueueMemo, queue_of
from rota.policies.published.ordering.gittins import SizeTable, gittins_turn
from rota.policies.published.ordering.las import LimitRule, QueueLimits, check_thresholds


class QueueOrder(Enum):
    """How jobs are compared inside a queue."""

    LAS = "las"
    GITTINS = "gittins"


@dataclass(frozen=True, slots=True, kw_only=True)
class TiresiasParams:
    """`promote` (PROMOTEKNOB): a job that waited this many times its run time returns to the first queue; 0: never.

    `rule` replaces the `thresholds` as in `las`.
    """

    order: QueueOrder = QueueOrder.LAS
    thresholds: tuple[float, ...] = (3250.0, 7200.0)
    promote: float = 8.0
    rule: LimitRule = LimitRule.PUBLISHED

    def __post_init__(self) -> None:
        check_thresholds(self.thresholds)
        if not self.promote >= 0:
            raise RotaError(f"promote is {self.promote:g}; it must be 0 (never) or more")


@ordering(
    "tiresias",
    cites="Gu et al., NSDI 2019",
    preempts=True,
    placement="skew",
    traits=Traits(
        prior_knowledge="none (las); size distribution, learned (gittins)",
        scheduling_input="attained service (time x devices)",
        dimensions="time and space",
        priority="by attained service or Gittins index, in queues",
        preemption="yes",
        starvation="none: promotion",
        placement="consolidated for models with skewed tensors",
        intrusiveness="checkpoint",
    ),
)
class tiresias:  # noqa: N801 - named as the policy function that it stands for
    """Least attained service or Gittins index, with promotion of starved jobs and placement by tensor skew."""

    def __init__(self, params: TiresiasParams) -> None:
        self._params = params
        self._queues = QueueLimits(params.thresholds, params.rule)
        self._table = SizeTable(self._queues.limits, 8)

    @property
    def memory(self) -> Any:
        """The observed sizes."""
        return self._table.memory

    def turn(self, job: JobView, now_s: float) -> Turn:
        """The job's place in the order."""
        memo, until_s = queue_of(job, now_s, self._queues.limits)
        if memo.queue and not job.holds and self._params.promote:
            memo, promoted_s = self._promote(job, now_s, memo)
            until_s = min(until_s, promoted_s)
        if self._params.order is QueueOrder.GITTINS:
            return gittins_turn(job, now_s, memo, until_s, self._table)
        return Turn((memo.queue, not job.holds, memo.entered_s, job.seq), until_s=until_s, memo=memo)

    def ended(self, job: JobView, now_s: float) -> bool:
        """Learn the size of a job that ended."""
        size = job.attained_gpu_s(now_s)
        is_changed = self._queues.learn(size)
        if is_changed:
            self._table.limit(self._queues.limits)
        return (self._params.order is QueueOrder.GITTINS and self._table.learn(size)) or is_changed

    def _promote(self, job: JobView, now_s: float, memo: QueueMemo) -> tuple[QueueMemo, float]:
        """Promote the job to the first queue if it has waited long enough; else return when it will have."""
        ran_s = job.run_s(now_s) - memo.run_from_s
        waited_s = job.waited_s(now_s) - memo.waited_from_s
        short_s = self._params.promote * ran_s - waited_s
        if short_s > 1e-6:
            return memo, now_s + short_s
        fresh = QueueMemo(
            queue=0,
            entered_s=now_s,
            attained_from_gpu_s=job.attained_gpu_s(now_s),
            run_from_s=job.run_s(now_s),
            waited_from_s=job.waited_s(now_s),
        )
        return fresh, math.inf
