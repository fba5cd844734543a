"""Apathetic Future Share (Hwang et al., NSDI 2021): who gets the next device, a short job or one that scales well.

Devices are handed out one by one. Of two jobs the shorter one gets the next, unless the longer gains more from it
than the shorter would lose: (p_b' - p_b) / p_b' > (p_a' - p_a) / p_a, with p the speed now and p' with one more.
Sizes are parts of a node by powers of two, or whole nodes; a step of several devices counts per device.
AFS-P does not know how long jobs are.
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
    """`compact`: only sizes that share out nodes without a rest."""

    compact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AfsPParams(AfsParams):
    """As AFS-L; with more jobs than devices, who ran `evict_s` seconds yields to those who ran less."""

    evict_s: float = 7200.0

    def __post_init__(self) -> None:
        if not self.evict_s > 0:
            raise RotaError(f"evict_s is {self.evict_s:g}; it must be above 0")


class Handout:
    """Devices on the way to jobs: what each has, and what one more step would bring it.

    `gain` is per device, as a part of the speed before the step (what the job loses without it, if it is the shorter),
    `reach` as a part of the speed after it (what the longer one wins).
    """

    def __init__(self, jobs: list[Candidate], curves: list[Curve], now_s: float, free_milli: int) -> None:
        self._jobs = jobs
        self._curves = curves
        self.left = np.array([found.left(now_s) for found in jobs])
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
        """One step more, if there is as much."""
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
        """Who has how much, in order of submission."""
        return {
            found.seq: Target(curve[level][0])
            for found, curve, level in zip(self._jobs, self._curves, self._level, strict=True)
            if level >= 0
        }


class AfsL(DefaultSizeRule):
    """Lengths are known."""

    def __init__(self, params: AfsParams, knowledge: Knowledge) -> None:
        self._curves = ScalingCurves(knowledge.speed, compact=params.compact)

    def plan(self, question: SizeQuestion) -> SizePlan:
        """Hand out devices until nobody wants or can have more."""
        handout = hand_out(question, self._curves)
        while (order := self._order(handout)).size:
            gain, reach = handout.gain[order], handout.reach[order]
            best = 0
            while (better := np.flatnonzero(reach[best + 1 :] > gain[best])).size:
                best += 1 + int(better[0])
            handout.give(int(order[best]))
        return SizePlan(handout.targets)

    def _order(self, handout: Handout) -> NDArray[np.intp]:
        """Those who want more, the shortest first; who has nothing yet is longer than all who have something."""
        wanting = np.flatnonzero(handout.wants)
        return wanting[np.lexsort((wanting, handout.length[wanting], ~handout.has[wanting]))]


class AfsP(DefaultSizeRule):
    """Lengths are not known: of two jobs one wins only if it would whichever were the longer; else chance decides."""

    def __init__(self, params: AfsPParams, knowledge: Knowledge) -> None:
        self._curves = ScalingCurves(knowledge.speed, compact=params.compact)
        self._evict_s = params.evict_s
        self._seed = knowledge.seed

    def plan(self, question: SizeQuestion) -> SizePlan:
        """The smallest size for each who ran least, then more for who gains most."""
        handout = hand_out(question, self._curves)
        ran = [found.live.run_s(question.now_s) for found in handout._jobs]
        turns = [int(run_s / self._evict_s + 1e-9) for run_s in ran]
        served = sorted(range(len(ran)), key=lambda at: (turns[at], not handout._jobs[at].tasks, ran[at], at))
        for at in served:
            handout.give(at)
        handout.wants &= handout.has
        rank = list(range(len(ran)))
        random.Random(self._seed).shuffle(rank)
        order = np.argsort(np.array(rank, dtype=np.int64), kind="stable")
        while (wanting := order[handout.wants[order]]).size:
            handout.give(int(wanting[_surest(handout.gain[wanting], handout.reach[wanting])]))
        return SizePlan(handout.targets, self._next_turn_s(handout, ran, turns, question.now_s))

    def _next_turn_s(self, handout: Handout, ran: list[float], turns: list[int], now_s: float) -> float:
        """When the first who runs has had its turn, if somebody waits."""
        if handout.has.all():
            return float("inf")
        left = [(turns[at] + 1) * self._evict_s - ran[at] for at in np.flatnonzero(handout.has).tolist()]
        return now_s + max(min(left, default=self._evict_s), 1.0)


def _surest(gain: Floats, reach: Floats) -> int:
    """Walk down the order; whoever beats the best so far in either case takes its place."""
    best = 0
    while (better := np.flatnonzero((reach[best + 1 :] > gain[best]) & (reach[best] <= gain[best + 1 :]))).size:
        best += 1 + int(better[0])
    return best


def hand_out(question: SizeQuestion, curves: ScalingCurves) -> Handout:
    """Nothing is handed out yet; jobs that nothing could take are left out."""
    found = [(one, curve) for one in question.candidates if (curve := curves.of(one, question))]
    return Handout([one for one, _ in found], [curve for _, curve in found], question.now_s, question.free_milli)


_CITES = "Hwang et al., NSDI 2021"
_DIFFERS = (
    "speeds by size are those of the speed model from the start; the paper gives a newcomer too many devices "
    "and measures downward."
)

afs_l = elastic(
    "afs-l",
    AfsL,
    cites=_CITES,
    summary="The next device to the shorter job, unless the longer one gains more by it; lengths are known.",
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
    summary="The next device to who gains most by it, whatever the jobs' lengths; who ran least first.",
    differs=_DIFFERS,
    params=AfsPParams,
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
