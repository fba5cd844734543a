"""ElasticFlow (Gu et al., ASPLOS 2023): a job is admitted if its deadline and all earlier guarantees can be met.

In order of deadline, each job reserves its minimum satisfactory share: the fewest devices with which it ends in time,
given the reservations of the jobs before it. Leftover devices go where one more brings most. A job that is not admitted
is not dropped as in the paper: it runs on leftover devices, like a job without a deadline. Sizes divide nodes evenly,
and smaller jobs move where a share would be fragmented.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import RotaError
from rota.core.model.job import WHOLE
from rota.core.state.job_record import LiveJob
from rota.mechanisms.declare import Knowledge, Traits
from rota.mechanisms.elastic.declare import elastic
from rota.mechanisms.elastic.rule import Candidate, DefaultSizeRule, SizePlan, SizeQuestion, Target
from rota.mechanisms.elastic.scaling import Curve, ScalingCurves

_SLACK = 1e-9
"""Relative shortfall of planned work that is tolerated as rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticFlowParams:
    """`compact`: only sizes that divide nodes evenly; `restarts`: number of restarts to allow time for."""

    compact: bool = True
    restarts: int = 1

    def __post_init__(self) -> None:
        if self.restarts < 0:
            raise RotaError(f"restarts is {self.restarts}; it must not be negative")


class Future:
    """Free devices over time, as steps: `free_milli[i]` from `starts_s[i]` to the next."""

    def __init__(self, now_s: float, free_milli: int, ends_s: Iterable[float]) -> None:
        times = sorted({now_s, *(end_s for end_s in ends_s if now_s < end_s < math.inf)})
        self.starts_s = np.array(times)
        self.free_milli = np.full(len(times), free_milli, dtype=np.int64)

    def minimum_share(self, found: Candidate, curve: Curve, left: float, due_s: float) -> tuple[int, float] | None:
        """Reserve the minimum satisfactory share; return the present tasks and until when, None if none suffices."""
        count = int(np.searchsorted(self.starts_s, due_s))
        if not count:
            return None
        tasks = np.array([0, *(size for size, _ in curve)])
        speeds = np.array([0.0, *(speed for _, speed in curve)])
        ends_s = np.append(self.starts_s[1:count], min(due_s, self._end_s(count)))
        lengths = ends_s - self.starts_s[:count]
        room = np.searchsorted(tasks, self.free_milli[:count] // max(found.per_task_milli, 1), side="right") - 1
        for level in range(1, len(tasks)):
            share = np.minimum(room, level)
            done = np.cumsum(speeds[share] * lengths)
            if share.any() and done[-1] >= left * (1 - _SLACK):
                return self._reserve(found, tasks[share], speeds[share], done, left)
        return None

    def _end_s(self, count: int) -> float:
        return float(self.starts_s[count]) if count < len(self.starts_s) else math.inf

    def _reserve(
        self, found: Candidate, tasks: NDArray[np.int64], speeds: NDArray[Any], done: NDArray[Any], left: float
    ) -> tuple[int, float]:
        """Reserve the share until the work is done, and split the step in which that happens."""
        last = max(int(np.searchsorted(done, left * (1 - _SLACK))), int(np.argmax(speeds > 0)))
        before = float(done[last - 1]) if last else 0.0
        end_s = float(self.starts_s[last]) + max(left - before, 0.0) / float(speeds[last])
        if end_s < self._end_s(last + 1) and end_s > self.starts_s[last]:
            self.starts_s = np.insert(self.starts_s, last + 1, end_s)
            self.free_milli = np.insert(self.free_milli, last + 1, self.free_milli[last])
        self.free_milli[: last + 1] -= tasks[: last + 1] * found.per_task_milli
        changes = np.flatnonzero(tasks[: last + 1] != tasks[0])
        until_s = float(self.starts_s[changes[0]]) if changes.size else end_s
        return int(tasks[0]), until_s


@dataclass(slots=True)
class _DeadlineJob:
    """A job with its scaling curve, its remaining work including restarts, and its deadline."""

    found: Candidate
    curve: Curve
    left: float
    due_s: float


class ElasticFlow(DefaultSizeRule):
    """Rule that remembers which jobs were admitted and which were not."""

    defragments = True

    def __init__(self, params: ElasticFlowParams, knowledge: Knowledge) -> None:
        self._curves = ScalingCurves(knowledge.speed, compact=params.compact)
        self._restart_s = knowledge.restart_s * params.restarts
        self._promised: dict[int, bool] = {}

    @property
    def memory(self) -> Any:
        """Sequence numbers of jobs that were admitted, and of those that were not."""
        return [[seq, is_promised] for seq, is_promised in self._promised.items()]

    def recall(self, memory: Any) -> None:
        """Restore both sets."""
        self._promised = dict(memory)

    def forget(self, live: LiveJob) -> None:
        """Drop a job that has ended."""
        self._promised.pop(live.seq, None)

    def plan(self, question: SizeQuestion) -> SizePlan:
        """Give admitted jobs their minimum satisfactory shares, and leftover devices where they bring most."""
        curves = {found.seq: (found, self._curves.of(found, question)) for found in question.candidates}
        due = [self._promise(found, curve, question) for found, curve in curves.values() if curve]
        self._admit([one for one in due if one.due_s < math.inf], question)
        kept = [one for one in due if self._promised.get(one.found.seq)]
        _, shares = _fill(kept, question)
        free_milli = question.free_milli
        levels = {seq: -1 for seq, (_, curve) in curves.items() if curve}
        until_s = math.inf
        for one in kept:
            tasks, share_until_s = shares.get(one.found.seq, (0, math.inf))
            until_s = min(until_s, share_until_s)
            if tasks:
                levels[one.found.seq] = [size for size, _ in one.curve].index(tasks)
                free_milli -= tasks * one.found.per_task_milli
        _allocate_leftovers(curves, levels, free_milli)
        first = sorted(levels, key=lambda seq: not self._promised.get(seq))
        targets = {seq: Target(curves[seq][1][levels[seq]][0]) for seq in first if levels[seq] >= 0}
        return SizePlan(targets, until_s if until_s > question.now_s else math.inf)

    def _promise(self, found: Candidate, curve: Curve, question: SizeQuestion) -> _DeadlineJob:
        due_s = found.live.job.deadline_s
        left = found.remaining_work(question.now_s) + self._restart_s * curve[0][1]
        return _DeadlineJob(found, curve, left, math.inf if due_s is None else due_s)

    def _admit(self, due: list[_DeadlineJob], question: SizeQuestion) -> None:
        """Admit new jobs whose deadlines can be guaranteed without breaking an earlier guarantee."""
        kept = [one for one in due if self._promised.get(one.found.seq)]
        new = [one for one in due if one.found.seq not in self._promised]
        if new:
            self._admit_some(new, kept, _fill(kept, question)[0], question)

    def _admit_some(
        self, new: list[_DeadlineJob], kept: list[_DeadlineJob], broken: set[int], question: SizeQuestion
    ) -> None:
        """Admit all of these jobs if that breaks no guarantee; else bisect them."""
        if _fill([*kept, *new], question)[0] <= broken:
            kept.extend(new)
            self._promised |= {one.found.seq: True for one in new}
        elif len(new) == 1:
            self._promised[new[0].found.seq] = False
        else:
            half = len(new) // 2
            self._admit_some(new[:half], kept, broken, question)
            self._admit_some(new[half:], kept, broken, question)


def _fill(due_jobs: list[_DeadlineJob], question: SizeQuestion) -> tuple[set[int], dict[int, tuple[int, float]]]:
    """Reserve shares in order of deadline; return the jobs that miss theirs, and the present shares of the others.

    A job that cannot meet its deadline any more has no share and competes for leftover devices.
    """
    future = Future(question.now_s, question.free_milli, (one.due_s for one in due_jobs))
    broken: set[int] = set()
    shares: dict[int, tuple[int, float]] = {}
    for one in sorted(due_jobs, key=lambda one: (one.due_s, one.found.seq)):
        share = future.minimum_share(one.found, one.curve, one.left, one.due_s)
        if share is None:
            broken.add(one.found.seq)
        else:
            shares[one.found.seq] = share
    return broken, shares


def _allocate_leftovers(curves: dict[int, tuple[Candidate, Curve]], levels: dict[int, int], free_milli: int) -> None:
    """Grow the job whose next step is most efficient relative to its first, repeatedly.

    Ties go to the job with fewer steps: among jobs that scale linearly, all start before any grows.
    """
    heap: list[tuple[float, int, int]] = []

    def offer(seq: int) -> None:
        found, curve = curves[seq]
        level = levels[seq] + 1
        if level == len(curve):
            return
        tasks, speed = curve[level]
        had, before = curve[level - 1] if level else (0, 0.0)
        first = curve[0][1] / max(found.gpus(curve[0][0]), 1 / WHOLE)
        worth = (speed - before) / max(found.gpus(tasks - had), 1 / WHOLE) / first
        if worth > 0:
            heapq.heappush(heap, (-worth, level, seq))

    for seq in levels:
        offer(seq)
    while heap:
        _, _, seq = heapq.heappop(heap)
        found, curve = curves[seq]
        level = levels[seq] + 1
        milli = (curve[level][0] - (curve[level - 1][0] if level else 0)) * found.per_task_milli
        if milli <= free_milli:
            free_milli -= milli
            levels[seq] = level
            offer(seq)


elasticflow = elastic(
    "elasticflow",
    ElasticFlow,
    cites="Gu et al., ASPLOS 2023",
    summary="Deadlines are guaranteed while all can be met; each admitted job gets its minimum satisfactory share.",
    differs="a job whose deadline cannot be met is not dropped; it runs on leftover devices.",
    params=ElasticFlowParams,
    traits=Traits(
        prior_knowledge="run time, speed by size, deadline",
        scheduling_input="deadline, speed by size",
        dimensions="time and space",
        priority="earliest deadline",
        preemption="yes, and resizing",
        placement="consolidated",
        intrusiveness="elastic training",
    ),
)
