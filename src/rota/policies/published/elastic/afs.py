"""Apathetic Future Share (Hwang et al., NSDI 2021): trade short jobs against jobs that scale well.

Devices are allocated one by one. Of two jobs the shorter one gets the next device, unless the longer one gains more
from it than the shorter one would lose: (p_b' - p_b) / p_b' > (p_a' - p_a) / p_a, where p is the present speed and p'
the speed with one more. Sizes are fractions of a node by powers of two, or whole nodes; a step of several devices
counts per device. AFS-P does not know the lengths of jobs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import RotaError
from rota.mechanisms.declare import Knowledge, Traits
from rota.mechanisms.elastic.declare import elastic
from rota.mechanisms.elastic.rule import Candidate, DefaultSizeRule, SizePlan, SizeQuestion, Target
from rota.mechanisms.elastic.scaling import Curve, ScalingCurves

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class AfsParams:
    """`compact`: only sizes that divide nodes evenly."""

    compact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AfsPParams(AfsParams):
    """As AFS-L; with more jobs than devices, a job that ran `evict_s` seconds yields to jobs that ran less."""

    evict_s: float = 7200.0

    def __post_init__(self) -> None:
        if not self.evict_s > 0:
            raise RotaError(f"evict_s is {self.evict_s:g}; it must be above 0")


class DeviceAllocation:
    """Allocation in progress: the size of each job, and what one more step would gain.

    Per device, `gain` is relative to the speed before the step (what the shorter job loses without it), `reach` is
    relative to the speed after it (what the longer job wins).
    """

    def __init__(self, jobs: list[Candidate], curves: list[Curve], now_s: float, free_milli: int) -> None:
        self._jobs = jobs
        self._curves = curves
        self.left = np.array([found.remaining_work(now_s) for found in jobs])
        self._level = [-1] * len(jobs)
        self._free_milli = free_milli
        self.has = np.zeros(len(jobs), dtype=np.bool_)
        self.length = np.array([left / curve[0][1] for left, curve in zip(self.left, curves, strict=True)])
        self.gain, self.reach = np.zeros(len(jobs)), np.zeros(len(jobs))
        self.wants = np.ones(len(jobs), dtype=np.bool_)
        for at in range(len(jobs)):
            self._look_ahead(at)

    def _look_ahead(self, at: int) -> None:
        curve, level = self._curves[at], self._level[at]
        if level + 1 == len(curve):
            self.wants[at] = False
            return
        tasks, speed = curve[level + 1]
        had, before = curve[level] if level >= 0 else (0, 0.0)
        gpus = max(self._jobs[at].gpus(tasks - had), 1e-9)
        if speed <= before:
            self.wants[at] = False
            return
        self.gain[at] = (speed - before) / before / gpus if before else np.inf
        self.reach[at] = (speed - before) / speed / gpus

    def give(self, at: int) -> None:
        """Grow a job by one step if enough devices are left."""
        curve, level = self._curves[at], self._level[at]
        had = curve[level][0] if level >= 0 else 0
        milli = (curve[level + 1][0] - had) * self._jobs[at].per_task_milli
        if milli > self._free_milli:
            self.wants[at] = False
            return
        self._free_milli -= milli
        self._level[at] += 1
        self.has[at] = True
        self.length[at] = self.left[at] / curve[level + 1][1]
        self._look_ahead(at)

    @property
    def targets(self) -> dict[int, Target]:
        """Return the allocation in order of submission."""
        return {
            found.seq: Target(curve[level][0])
            for found, curve, level in zip(self._jobs, self._curves, self._level, strict=True)
            if level >= 0
        }


class AfsL(DefaultSizeRule):
    """AFS with known job lengths."""

    def __init__(self, params: AfsParams, knowledge: Knowledge) -> None:
        self._curves = ScalingCurves(knowledge.speed, compact=params.compact)

    def plan(self, question: SizeQuestion) -> SizePlan:
        """Allocate devices until no job can grow."""
        allocation = start_allocation(question, self._curves)
        while (order := self._order(allocation)).size:
            gain, reach = allocation.gain[order], allocation.reach[order]
            best = 0
            while (better := np.flatnonzero(reach[best + 1 :] > gain[best])).size:
                best += 1 + int(better[0])
            allocation.give(int(order[best]))
        return SizePlan(allocation.targets)

    def _order(self, allocation: DeviceAllocation) -> NDArray[np.intp]:
        """Return the jobs that can grow, shortest first; a job without devices counts as longer than all others."""
        wanting = np.flatnonzero(allocation.wants)
        return wanting[np.lexsort((wanting, allocation.length[wanting], ~allocation.has[wanting]))]


class AfsP(DefaultSizeRule):
    """AFS without job lengths: a job wins only if it would whichever of two were longer; ties are random."""

    def __init__(self, params: AfsPParams, knowledge: Knowledge) -> None:
        self._curves = ScalingCurves(knowledge.speed, compact=params.compact)
        self._evict_s = params.evict_s
        self._seed = knowledge.seed

    def plan(self, question: SizeQuestion) -> SizePlan:
        """Give the smallest size to the jobs that ran least, then grow those that gain most."""
        allocation = start_allocation(question, self._curves)
        ran = [found.live.run_s(question.now_s) for found in allocation._jobs]
        turns = [int(run_s / self._evict_s + 1e-9) for run_s in ran]
        served = sorted(range(len(ran)), key=lambda at: (turns[at], not allocation._jobs[at].tasks, ran[at], at))
        for at in served:
            allocation.give(at)
        allocation.wants &= allocation.has
        rank = list(range(len(ran)))
        random.Random(self._seed).shuffle(rank)
        order = np.argsort(np.array(rank, dtype=np.int64), kind="stable")
        while (wanting := order[allocation.wants[order]]).size:
            allocation.give(int(wanting[_dominant(allocation.gain[wanting], allocation.reach[wanting])]))
        return SizePlan(allocation.targets, self._next_eviction_s(allocation, ran, turns, question.now_s))

    def _next_eviction_s(self, allocation: DeviceAllocation, ran: list[float], turns: list[int], now_s: float) -> float:
        """Return when the first running job has used up its time slice, if jobs wait."""
        if allocation.has.all():
            return float("inf")
        left = [(turns[at] + 1) * self._evict_s - ran[at] for at in np.flatnonzero(allocation.has).tolist()]
        return now_s + max(min(left, default=self._evict_s), 1.0)


def _dominant(gain: Floats, reach: Floats) -> int:
    """Scan the order and return the last job that beats the best so far, whichever is longer."""
    best = 0
    while (better := np.flatnonzero((reach[best + 1 :] > gain[best]) & (reach[best] <= gain[best + 1 :]))).size:
        best += 1 + int(better[0])
    return best


def start_allocation(question: SizeQuestion, curves: ScalingCurves) -> DeviceAllocation:
    """Return an empty allocation of all jobs that some node can run."""
    found = [(one, curve) for one in question.candidates if (curve := curves.of(one, question))]
    return DeviceAllocation(
        [one for one, _ in found], [curve for _, curve in found], question.now_s, question.free_milli
    )


_CITES = "Hwang et al., NSDI 2021"
_DIFFERS = (
    "speeds by size come from the speed model; the paper starts a new job with too many devices and profiles downwards."
)

afs_l = elastic(
    "afs-l",
    AfsL,
    cites=_CITES,
    summary="The next device goes to the shorter job, unless the longer one gains more from it; lengths are known.",
    differs=_DIFFERS,
    params=AfsParams,
    traits=Traits(
        prior_knowledge="run time, speed by size",
        scheduling_input="remaining time, speed by size",
        dimensions="time and space",
        priority="shortest, weighed against gain",
        preemption="yes, and resizing",
        placement="consolidated",
        intrusiveness="elastic training",
    ),
)
afs_p = elastic(
    "afs-p",
    AfsP,
    cites=_CITES,
    summary="The next device goes to the job that gains most, whatever its length; jobs that ran least come first.",
    differs=_DIFFERS,
    params=AfsPParams,
    draws=True,
    traits=Traits(
        prior_knowledge="speed by size",
        scheduling_input="run time so far, speed by size",
        dimensions="time and space",
        priority="least run time, then gain",
        preemption="yes, and resizing",
        starvation="no",
        placement="consolidated",
        intrusiveness="elastic training",
    ),
)
