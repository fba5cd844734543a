"""Levels of service that grow geometrically, so that a job of any size passes only logarithmically many."""

from __future__ import annotations

import math
from bisect import bisect_right

TOLERANCE_GPU_S = 1e-6
"""Tolerance: a limit computed as a time and checked as a service may differ by rounding."""
_BEYOND = 10_000
"""The level of a service without end."""
_MOST_GPU_S = 1e15
"""Limits are computed up to this service: a million devices for 30 years."""


class Levels:
    """Level 0 ends at `base_gpu_s`; each further one at `growth` times the limit before."""

    __slots__ = ("_growth", "limits")

    def __init__(self, base_gpu_s: float, growth: float) -> None:
        self._growth = growth
        self.limits = [base_gpu_s]
        """The service at which each level ends, as far as it was asked for."""
        while self.limits[-1] < _MOST_GPU_S and len(self.limits) < _BEYOND:
            self.limits.append(self.limits[-1] * growth)

    def of(self, gpu_s: float) -> int:
        """The level of a service."""
        reached = gpu_s + TOLERANCE_GPU_S
        if reached == math.inf:
            return _BEYOND
        while reached >= self.limits[-1]:
            self.limits.append(self.limits[-1] * self._growth)
        return bisect_right(self.limits, reached)

    def limit(self, level: int) -> float:
        """The service at which a level ends."""
        limits = self.limits
        while len(limits) <= level:
            limits.append(limits[-1] * self._growth)
        return limits[level]
