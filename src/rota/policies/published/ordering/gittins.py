"""Two-dimensional Gittins index: the job most likely to finish per unit of service goes first.

The size distribution is learned from jobs that ended; until enough have, and inside the last queue, the order is
that of attained service.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rota.core.errors import RotaError
from rota.core.state.job_record import JobView
from rota.mechanisms.declare import Traits
from rota.mechanisms.ordering.declare import ordering
from rota.mechanisms.ordering.rule import Turn, later
from rota.mechanisms.ordering.service_queues import QueueMemo, queue_of
from rota.policies.published.ordering.las import LimitRule, QueueLimits, check_thresholds

FIRST_LESSON = 16
"""The index is first computed after this many ended jobs, and again at each doubling."""
MOST_STEPS = 1000
SAMPLE = 4096
"""The number of sizes kept; of a longer history, evenly spaced quantiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GittinsParams:
    """Queue limits in device-seconds, by `thresholds` or a `rule` as in `las`; `steps`: index readings per queue.

    With `censored`, jobs that have not ended count as larger than what they had (Kaplan and Meier, 1958). Without it,
    as published, the sample holds only ended jobs, so that long jobs are missing from it at first.
    """

    thresholds: tuple[float, ...] = (3250.0, 7200.0)
    steps: int = 8
    rule: LimitRule = LimitRule.PUBLISHED
    censored: bool = False

    def __post_init__(self) -> None:
        check_thresholds(self.thresholds)
        if not 1 <= self.steps <= MOST_STEPS:
            raise RotaError(f"steps is {self.steps}; it must be from 1 to {MOST_STEPS}")


def index_of(sizes: Sequence[float], attained: float, quantum: float) -> float:
    """P(S - a <= D | S > a) / E[min(S - a, D) | S > a] over a sorted sample of sizes S, with a quantum D.

    Gu et al. give a queue's upper limit as D. 0 when nothing in the sample is larger than a.
    """
    return weighted_index([(size, 1.0) for size in sizes], attained, quantum)


def weighted_index(sample: Sequence[tuple[float, float]], attained: float, quantum: float) -> float:
    """The index over a sample of sizes with weights; an infinite size is that of a job known only to be larger."""
    done = spent = 0.0
    for size, weight in sample:
        rest = size - attained
        if rest <= 0:
            continue
        if rest <= quantum:
            done += weight
            spent += weight * rest
        else:
            spent += weight * quantum
    return done / spent if spent else 0.0


def with_censored(ended: Sequence[float], running: Sequence[float]) -> list[tuple[float, float]]:
    """Redistribute the weight of each running job evenly over all larger ones (Kaplan and Meier).

    What is left of it behind the largest ended job goes to an infinite size.
    """
    events = sorted([(size, False) for size in ended] + [(had, True) for had in running])
    sample: list[tuple[float, float]] = []
    weight, left = 1.0, len(events)
    for size, is_running in events:
        left -= 1
        if not is_running:
            sample.append((size, weight))
        elif left:
            weight *= (left + 1) / left
        else:
            sample.append((math.inf, weight))
    return sample


class SizeTable:
    """The index at evenly spaced services of each queue but the last, from the observed sizes."""

    def __init__(self, thresholds: tuple[float, ...], steps: int) -> None:
        self._thresholds = thresholds
        self._steps = max(steps, 1)
        self._sizes: list[float] = []
        self._next_lesson = FIRST_LESSON
        self._rows: list[list[float]] = []

    @property
    def memory(self) -> Any:
        """The observed sizes."""
        return tuple(self._sizes)

    def learn(self, size_gpu_s: float, running: Callable[[], Sequence[float]] | None = None) -> bool:
        """Add the size of a job that ended; return whether the table changed.

        `running` returns the service that running jobs had, if they are to be counted as censored.
        """
        insort(self._sizes, size_gpu_s)
        if len(self._sizes) < self._next_lesson:
            return False
        self._next_lesson = 2 * len(self._sizes)
        if len(self._sizes) > SAMPLE:
            self._sizes = self._sizes[:: len(self._sizes) // (SAMPLE // 2)]
        lows = (0.0, *self._thresholds)
        sample = with_censored(self._sizes, running() if running else ())
        self._rows = [
            [weighted_index(sample, low + step * (high - low) / self._steps, high) for step in range(self._steps)]
            for low, high in zip(lows, self._thresholds, strict=False)
        ]
        return True

    def limit(self, thresholds: tuple[float, ...]) -> None:
        """Change the queue limits; the index is read again from the next lesson on."""
        self._thresholds = thresholds
        self._rows = []

    def read(self, queue: int, attained: float) -> tuple[float, float]:
        """The index in a queue at a service, and the service at which it is read next."""
        if queue >= len(self._thresholds) or not self._rows:
            return 0.0, math.inf
        low = self._thresholds[queue - 1] if queue else 0.0
        width = (self._thresholds[queue] - low) / self._steps
        step = min(max(int((attained - low) / width + 1e-9), 0), self._steps - 1)
        return self._rows[queue][step], low + (step + 1) * width


def gittins_turn(job: JobView, now_s: float, memo: QueueMemo, until_s: float, table: SizeTable) -> Turn:
    """The job's place: by queue, then by index, then running before waiting, then by time of entry."""
    attained = job.attained_gpu_s(now_s) - memo.attained_from_gpu_s
    index, next_gpu_s = table.read(memo.queue, attained)
    if job.progress_rate and job.gpus and next_gpu_s < math.inf:
        until_s = min(until_s, later(now_s, (next_gpu_s - attained) / job.gpus))
    return Turn((memo.queue, -index, not job.holds, memo.entered_s, job.seq), until_s=until_s, memo=memo)


@ordering(
    "gittins",
    cites="Gu et al., NSDI 2019 (Discretized 2D-Gittins); Gittins, J. Royal Stat. Soc. B 1979",
    preempts=True,
    traits=Traits(
        prior_knowledge="size distribution (learned)",
        scheduling_input="attained service (time x devices)",
        dimensions="time and space",
        priority="by Gittins index, in queues",
        preemption="yes",
        placement="consolidated",
        intrusiveness="checkpoint",
    ),
)
class gittins_index:  # noqa: N801 - named as the policy function that it stands for
    """The job most likely to end per unit of service goes first, by the sizes of ended jobs."""

    def __init__(self, params: GittinsParams) -> None:
        self._params = params
        self._queues = QueueLimits(params.thresholds, params.rule)
        self._table = SizeTable(self._queues.limits, params.steps)
        self._alive: dict[int, JobView] = {}
        """Jobs that have not ended, where they count as censored."""

    @property
    def memory(self) -> Any:
        """The observed sizes."""
        return self._table.memory

    def turn(self, job: JobView, now_s: float) -> Turn:
        """The job's place in the order."""
        if self._params.censored:
            self._alive[job.seq] = job
        memo, until_s = queue_of(job, now_s, self._queues.limits)
        return gittins_turn(job, now_s, memo, until_s, self._table)

    def ended(self, job: JobView, now_s: float) -> bool:
        """Learn the size of a job that ended."""
        self._alive.pop(job.seq, None)
        size = job.attained_gpu_s(now_s)
        if self._queues.learn(size):
            self._table.limit(self._queues.limits)
        if not self._params.censored:
            return self._table.learn(size)
        return self._table.learn(
            size, lambda: [had for each in self._alive.values() if (had := each.attained_gpu_s(now_s))]
        )
