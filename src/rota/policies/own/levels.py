"""Levels of service that grow geometrically, so that a job of any size passes only logarithmically many."""

from __future__ import annotations

import math

TOLERANCE_GPU_S = 1e-6
"""Tolerance: a limit computed as a time and checked as a service may differ by rounding."""


class Levels:
    """Level 0 ends at `base_gpu_s`; each further one at `growth` times the limit before."""

    __slots__ = ("_base", "_growth", "_limits")

    def __init__(self, base_gpu_s: float, growth: float) -> None:
        self._base = base_gpu_s
        self._growth = growth
        self._limits = [base_gpu_s]

    def of(self, gpu_s: float) -> int:
        """The level of a service."""
        reached = gpu_s + TOLERANCE_GPU_S
        if reached < self._base:
            return 0
        if reached == math.inf:
            return 10_000
        level = max(int(math.log(reached / self._base) / math.log(self._growth)), 0)
        while reached >= self.limit(level):
            level += 1
        while level and reached < self.limit(level - 1):
            level -= 1
        return level

    def limit(self, level: int) -> float:
        """The service at which a level ends."""
        limits = self._limits
        while len(limits) <= level:
            limits.append(limits[-1] * self._growth)
        return limits[level]
