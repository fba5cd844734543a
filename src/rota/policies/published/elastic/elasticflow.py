"""ElasticFlow (Gu et al., ASPLOS 2023): a job is admitted if its deadline can be kept without breaking another's.

In order of deadline, each job is given the least number of devices with which it ends in time, after what those
before it have reserved: its minimum satisfactory share. What is left goes where one device more brings most. A job
whose deadline can't be promised is not dropped as in the paper: it runs on what the others leave, like one
without a deadline. Sizes divide nodes without a rest, and smaller jobs move where a share would be in fragments.
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
"""How far work that is planned may fall short by rounding, as a part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticFlowParams:
    """`compact`: only sizes that share out nodes without a rest; `restarts`: so many restarts are planned for."""

    compact: bool = True
    restarts: int = 1

    def __post_init__(self) -> None:
        if self.restarts < 0:
            raise RotaError(f"restarts is {self.restarts}; it must not be negative")


class Future:
    """Free devices from now on, as steps: `free_milli[i]` from `starts_s[i]` to the next."""

    def __init__(self, now_s: float, free_milli: int, ends_s: Iterable[float]) -> None:
        times = sorted({now_s, *(end_s for end_s in ends_s if now_s < end_s < math.inf)})
        self.starts_s = np.array(times)
        self.free_milli = np.full(len(times), free_milli, dtype=np.int64)

    def least_share(self, found: Candidate, curve: Curve, left: float, due_s: float) -> tuple[int, float] | None:
        """Reserve the least share that ends in time; the tasks from now on and until when, or None if none does."""
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
        """Take the share until the work is done; the step in which that happens is split there."""
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
class _Promise:
    """A job with its curve, the work that it has left with what a restart costs, and its deadline."""

    found: Candidate
    curve: Curve
    left: float
    due_s: float


class ElasticFlow(DefaultSizeRule):
    """Remembers to whom a deadline was promised, and to whom not."""

    moves = True

    def __init__(self, params: ElasticFlowParams, knowledge: Knowledge) -> None:
        self._curves = ScalingCurves(knowledge.speed, compact=params.compact)
        self._restart_s = knowledge.restart_s * params.restarts
        self._promised: dict[int, bool] = {}

    @property
    def memory(self) -> Any:
        """Numbers of jobs that were admitted, and of those that were not."""
        return [[seq, is_promised] for seq, is_promised in self._promised.items()]

    def recall(self, memory: Any) -> None:
        """Promises are kept."""
        self._promised = dict(memory)

    def left(self, live: LiveJob) -> None:
        """Its deadline does not matter any more."""
        self._promised.pop(live.seq, None)

    def plan(self, question: SizeQuestion) -> SizePlan:
        """The least shares of those with a promise, and the rest to where it brings most."""
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
        _share_out_rest(curves, levels, free_milli)
        first = sorted(levels, key=lambda seq: not self._promised.get(seq))
        targets = {seq: Target(curves[seq][1][levels[seq]][0]) for seq in first if levels[seq] >= 0}
        return SizePlan(targets, until_s if until_s > question.now_s else math.inf)

    def _promise(self, found: Candidate, curve: Curve, question: SizeQuestion) -> _Promise:
        due_s = found.live.job.deadline_s
        left = found.left(question.now_s) + self._restart_s * curve[0][1]
        return _Promise(found, curve, left, math.inf if due_s is None else due_s)

    def _admit(self, due: list[_Promise], question: SizeQuestion) -> None:
        """Promise a newcomer its deadline if all that were promised can still be kept."""
        kept = [one for one in due if self._promised.get(one.found.seq)]
        new = [one for one in due if one.found.seq not in self._promised]
        if new:
            self._admit_some(new, kept, _fill(kept, question)[0], question)

    def _admit_some(self, new: list[_Promise], kept: list[_Promise], broken: set[int], question: SizeQuestion) -> None:
        """All of them if that breaks no promise more; else one half, then the other, down to the one that does."""
        if _fill([*kept, *new], question)[0] <= broken:
            kept.extend(new)
            self._promised |= {one.found.seq: True for one in new}
        elif len(new) == 1:
            self._promised[new[0].found.seq] = False
        else:
            half = len(new) // 2
            self._admit_some(new[:half], kept, broken, question)
            self._admit_some(new[half:], kept, broken, question)


def _fill(promises: list[_Promise], question: SizeQuestion) -> tuple[set[int], dict[int, tuple[int, float]]]:
    """Reserve least shares in order of deadline; whose deadline can't be kept, and the others' shares from now on.

    Who can't be on time any more has no share and contends for what the others leave.
    """
    future = Future(question.now_s, question.free_milli, (one.due_s for one in promises))
    broken: set[int] = set()
    shares: dict[int, tuple[int, float]] = {}
    for one in sorted(promises, key=lambda one: (one.due_s, one.found.seq)):
        share = future.least_share(one.found, one.curve, one.left, one.due_s)
        if share is None:
            broken.add(one.found.seq)
        else:
            shares[one.found.seq] = share
    return broken, shares


def _share_out_rest(curves: dict[int, tuple[Candidate, Curve]], levels: dict[int, int], free_milli: int) -> None:
    """One step more for the job of which the added devices come nearest to the worth of its first ones.

    Among equals whoever has fewer steps goes first: of jobs that gain in proportion, all run before any grows.
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
    summary="Deadlines are promised as long as all can be kept; each such job has the least share that keeps its own.",
    differs="a job whose deadline can't be kept is not dropped; it runs on what the others leave.",
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
