"""What an ordering rule answers: the place of a job in the order, and how long it holds."""

from __future__ import annotations

import math
from typing import Any


class Turn:
    """A job's place in the order: smallest key first.

    Keys are tuples of numbers that end in the job's `seq`, so that the order is total. With a `slope`, the first
    number grows by that much per second (srtf: -1 while the job runs), so that keys are not computed again only
    because time passed. `until_s` is when to compute the key again; `memo` comes back as `job.memo` then. The key of a
    running job that holds for one walk only is computed `again` before the next.
    """

    __slots__ = ("again", "key", "memo", "slope", "until_s")

    def __init__(
        self,
        key: tuple[float, ...],
        slope: float = 0.0,
        until_s: float = math.inf,
        memo: Any = None,
        again: bool = False,
    ) -> None:
        self.key = key
        self.slope = slope
        self.until_s = until_s
        self.memo = memo
        self.again = again

    def __repr__(self) -> str:
        shown = f"key={self.key!r}, slope={self.slope!r}, until_s={self.until_s!r}"
        return f"Turn({shown}, memo={self.memo!r}, again={self.again!r})"


def later(now_s: float, seconds: float) -> float:
    """The moment `seconds` from now, but after now even where rounding would lose the difference."""
    return max(now_s + seconds, math.nextafter(now_s, math.inf))
