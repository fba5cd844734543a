"""First in, first out over device types: fixed to a random type, on the fastest free one, or packed as well."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from rota.mechanisms.declare import Knowledge
from rota.mechanisms.rng_state import rng_state, set_rng_state
from rota.mechanisms.rounds.rule import Contender, Memoryless, RoundJob, ShareQuestion, Shares
from rota.policies.published.gavel.declare import Compat, gavel

PACKS_WELL = 1.5
"""The sum of normalised speeds above which two jobs share devices."""


def whole(question: ShareQuestion, at: int) -> tuple[float, ...]:
    """All of the time on one type."""
    return tuple(1.0 if kind == at else 0.0 for kind in range(len(question.types)))


class FixedFifo:
    """A job keeps the type that it was given, at random among those with free devices, until it ends."""

    sees_types = False
    packs = False
    backfills = False

    def __init__(self, rng: random.Random, *, blindly: bool) -> None:
        self._rng = rng
        self._blindly = blindly
        """Gavel chooses among all types with free devices, and skips a job that can't run on the chosen one."""
        self._type_of: dict[int, int] = {}

    @property
    def memory(self) -> Any:
        """The type of each job, and the random state."""
        return {"types": list(self._type_of.items()), "chance": rng_state(self._rng)}

    def recall(self, memory: Any) -> None:
        """Restore the types and the random state."""
        self._type_of = dict(memory["types"])
        set_rng_state(self._rng, memory["chance"])

    def shares(self, question: ShareQuestion) -> Shares:
        """The first jobs of the queue take over the types of jobs that ended, then what else is free."""
        active = {job.seq: job for job in question.jobs}
        free = list(question.devices)
        self._type_of = {
            seq: at for seq, at in self._type_of.items() if seq not in active or active[seq].speeds[at] > 0
        }
        queue = [job for job in question.jobs if job.seq not in self._type_of]
        for seq, at in sorted(self._type_of.items()):
            if seq in active:
                free[at] -= active[seq].scale
                continue
            del self._type_of[seq]
            if queue and queue[0].scale <= free[at] and queue[0].speeds[at] > 0:
                self._give(queue.pop(0), at, free)
        self._fill(question, queue, free)
        return {(seq,): whole(question, at) for seq, at in sorted(self._type_of.items())}

    def _fill(self, question: ShareQuestion, queue: list[RoundJob], free: list[int]) -> None:
        kinds = [at for at in question.by_name() if free[at] > 0]
        for job in queue:
            roomy = [at for at in kinds if free[at] >= job.scale and (self._blindly or job.speeds[at] > 0)]
            if not roomy:
                return
            at = roomy[self._rng.randrange(len(roomy))]
            if job.speeds[at] > 0:
                self._give(job, at, free)
                if not free[at]:
                    kinds.remove(at)

    def _give(self, job: RoundJob, at: int, free: list[int]) -> None:
        self._type_of[job.seq] = at
        free[at] -= job.scale


class FastestFifo(Memoryless):
    """Each job in order gets the fastest type with free devices; the first that fits nowhere ends the list."""

    sees_types = True
    backfills = False

    def __init__(self, *, packs: bool, drops_first: bool = False) -> None:
        self.packs = packs
        self._drops_first = drops_first
        """Gavel removes the job that fits nowhere from the queue, so that it is not paired either."""

    def shares(self, question: ShareQuestion) -> Shares:
        """Nothing: computed from scratch each time."""
        free = list(question.devices)
        kinds = question.by_name()
        given: dict[Contender, int] = {}
        waiting = list(question.jobs)
        while waiting:
            job = waiting[0]
            roomy = [at for at in kinds if free[at] >= job.scale]
            if not roomy:
                break
            waiting.pop(0)
            best = max(roomy, key=lambda at: job.speeds[at])
            if job.speeds[best] > 0:
                given[(job.seq,)] = best
                free[best] -= job.scale
        if self.packs:
            passed_over = 1 if self._drops_first and any(free) else 0
            _pack(question, given, waiting[passed_over:])
        return {contender: whole(question, at) for contender, at in given.items()}


def _pack(question: ShareQuestion, given: dict[Contender, int], waiting: list[RoundJob]) -> None:
    """Pack queued jobs, in order, with the single job of equal size that suits best; stop at the first without one."""
    jobs = {job.seq: job for job in question.jobs}
    for job in waiting:
        best, partner = PACKS_WELL, None
        for contender, at in given.items():
            other = jobs[contender[0]]
            if len(contender) > 1 or other.scale != job.scale:
                continue
            gain = packing_gain(question, other, job, at)
            if gain > best:
                best, partner = gain, other
        if partner is None:
            return
        at = given.pop((partner.seq,))
        given[(min(partner.seq, job.seq), max(partner.seq, job.seq))] = at


def packing_gain(question: ShareQuestion, one: RoundJob, other: RoundJob, at: int) -> float:
    """The sum of packed over isolated speeds; 0 where one of the jobs can't run."""
    alone = np.array([one.speeds[at], other.speeds[at]])
    both = question.pair_speeds(one, other)[:, at]
    return float((both / alone).sum()) if (both > 0).all() and (alone > 0).all() else 0.0


def _fixed(params: Any, knowledge: Knowledge) -> FixedFifo:
    return FixedFifo(random.Random(knowledge.seed), blindly=params.compat is Compat.GAVEL)


fifo = gavel(
    "fifo", _fixed, summary="In order of arrival, each on a random type with free devices until it ends.", knows="none"
)
fifo_perf = gavel(
    "fifo_perf",
    lambda params, knowledge: FastestFifo(packs=False),
    summary="In order of arrival, each on the fastest type with free devices.",
)
fifo_packed = gavel(
    "fifo_packed",
    lambda params, knowledge: FastestFifo(packs=True, drops_first=params.compat is Compat.GAVEL),
    summary="As fifo_perf, and queued jobs share devices where that increases throughput.",
    packs=True,
)
