"""Durations counted by upper limit, in the form of Prometheus."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator

LIMITS_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, math.inf)


class Histogram:
    """A histogram of durations."""

    def __init__(self) -> None:
        self._counts = [0] * len(LIMITS_S)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(LIMITS_S, seconds)] += 1
        self.total_s += seconds

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Yield how many durations are within each limit."""
        seen = 0
        for limit_s, count in zip(LIMITS_S, self._counts, strict=True):
            seen += count
            yield "+Inf" if limit_s == math.inf else f"{limit_s:g}", seen
