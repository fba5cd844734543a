"""Gandiva as in Gavel: with more jobs than devices, random pairs are tried and kept while they increase throughput."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from rota.mechanisms.rng_state import rng_state, set_rng_state
from rota.mechanisms.rounds.rule import Contender, RoundJob, ShareQuestion, Shares
from rota.policies.published.gavel.declare import gavel
from rota.policies.published.gavel.isolated import isolated_shares


class GavelGandiva:
    """Random pairs of equal size; isolated shares over the contenders."""

    sees_types = False
    packs = True
    backfills = True

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._pairs: list[Contender] = []

    @property
    def memory(self) -> Any:
        """The pairs, and the random state."""
        return {"pairs": [list(pair) for pair in self._pairs], "chance": rng_state(self._rng)}

    def recall(self, memory: Any) -> None:
        """Restore the pairs and the random state."""
        self._pairs = [(one, other) for one, other in memory["pairs"]]
        set_rng_state(self._rng, memory["chance"])

    def shares(self, question: ShareQuestion) -> Shares:
        """All jobs alone if there is room; otherwise good pairs stay and the others are paired again at random."""
        jobs = {job.seq: job for job in question.jobs}
        whole = [pair for pair in self._pairs if pair[0] in jobs and pair[1] in jobs]
        self._pairs = [pair for pair in whole if self._pays(question, jobs[pair[0]], jobs[pair[1]])]
        if question.scale.sum() <= sum(question.devices):
            return self._isolated(question, [(job.seq,) for job in question.jobs], jobs)
        paired = {seq for pair in self._pairs for seq in pair}
        single = [job.seq for job in question.jobs if job.seq not in paired]
        for _ in range(len(single)):
            if len(single) < 2:
                break
            one, other = self._rng.sample(single, 2)
            if jobs[one].scale == jobs[other].scale:
                single.remove(one)
                single.remove(other)
                self._pairs.append((min(one, other), max(one, other)))
        return self._isolated(question, [*self._pairs, *((seq,) for seq in single)], jobs)

    def _pays(self, question: ShareQuestion, one: RoundJob, other: RoundJob) -> bool:
        """Whether two packed jobs do at least one job's work, summed over types."""
        both = question.pair_speeds(one, other)
        alone = np.array([one.speeds, other.speeds])
        if not (both > 0).all() or not (alone > 0).all():
            return False
        return float((both / alone).sum()) >= 1.0

    def _isolated(self, question: ShareQuestion, contenders: list[Contender], jobs: dict[int, RoundJob]) -> Shares:
        scale = np.array([jobs[contender[0]].scale for contender in contenders], dtype=np.float64)
        rows = isolated_shares(question, scale).tolist()
        return dict(zip(contenders, rows, strict=True))


gandiva = gavel(
    "gandiva",
    lambda params, knowledge: GavelGandiva(random.Random(knowledge.seed)),
    summary="Equal shares of every type; with more jobs than devices, random pairs, kept while that pays.",
    cites="Xiao et al., OSDI 2018; as in Narayanan et al., OSDI 2020",
    packs=True,
)
