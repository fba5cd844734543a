"""Speeds of two jobs on the same devices, computed once for all pairs of equal jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rota.core.model.job import DeviceType
from rota.mechanisms.arrays import Floats
from rota.mechanisms.rounds.rule import Contender, RoundJob
from rota.perf.speed.model import SpeedModel


def nests(large: tuple[int, int] | None, small: tuple[int, int] | None) -> bool:
    """Whether the smaller shape (tasks, devices per task) can share the devices of whole tasks of the larger one."""
    if large is None or small is None:
        return False
    return small[0] * small[1] < large[0] * large[1] and small[1] % large[1] == 0


class PairSpeeds:
    """The speeds of two jobs on the same devices, cached by the jobs' kinds."""

    def __init__(self, speed: SpeedModel, types: tuple[DeviceType, ...], mixed: bool = False) -> None:
        self._speed = speed
        self._types = types
        self._mixed = mixed
        self._found: dict[tuple[Any, Any], Floats] = {}
        self._run: dict[tuple[Any, Any], NDArray[np.bool_]] = {}

    def run_together(self, one: RoundJob, other: RoundJob) -> NDArray[np.bool_]:
        """By type, whether both jobs make progress."""
        key = (one.kind, other.kind)
        found = self._run.get(key)
        if found is None:
            found = self._run[key] = self(one, other).min(axis=0) > 0
        return found

    def __call__(self, one: RoundJob, other: RoundJob) -> Floats:
        """A row per job, a column per type; 0 where one of them can't run or they can't share devices."""
        key = (one.kind, other.kind)
        found = self._found.get(key)
        if found is None:
            a, b = one.live.job, other.live.job
            fit = one.shape is not None and one.shape == other.shape
            if self._mixed and not fit:
                fit = nests(one.shape, other.shape) or nests(other.shape, one.shape)
            fit &= not one.spans and not other.spans
            may = [fit and x > 0 and y > 0 for x, y in zip(one.speeds, other.speeds, strict=True)]
            rows = [
                (self._speed.beside(a, b, kind), self._speed.beside(b, a, kind)) if fits else (0.0, 0.0)
                for kind, fits in zip(self._types, may, strict=True)
            ]
            found = self._found[key] = np.array(rows, dtype=np.float64).reshape(-1, 2).T
        return found


class PartnerIndex:
    """Jobs by size and kind, to find all partners of a newcomer with one lookup of speeds per kind."""

    def __init__(self, speeds: PairSpeeds, jobs: Iterable[RoundJob]) -> None:
        self._speeds = speeds
        self._kinds: dict[Any, int] = {}
        self._heads: list[RoundJob] = []
        self._by_scale: dict[int, tuple[list[int], list[int]]] = {}
        for job in jobs:
            self.add(job)

    def add(self, job: RoundJob) -> None:
        """Add a job."""
        number = self._kinds.setdefault(job.kind, len(self._heads))
        if number == len(self._heads):
            self._heads.append(job)
        seqs, numbers = self._by_scale.setdefault(job.scale, ([], []))
        seqs.append(job.seq)
        numbers.append(number)

    def pairs(self, job: RoundJob) -> tuple[list[Contender], NDArray[np.bool_]]:
        """All pairs of a newcomer with a job of its size; per pair and type, whether both make progress."""
        seqs, numbers = self._by_scale.get(job.scale, ([], []))
        contenders: list[Contender] = [(seq, job.seq) if seq < job.seq else (job.seq, seq) for seq in seqs]
        runs = np.zeros((len(self._heads), len(job.speeds)), dtype=np.bool_)
        for number in set(numbers):
            runs[number] = self._speeds.run_together(self._heads[number], job)
        return contenders, runs[numbers]
