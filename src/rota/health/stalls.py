"""Hangs and stragglers, from the steps that the ranks of a job report, or from how busy their GPUs are.

A job hangs if no rank has made a step for much longer than it ever took before. A rank straggles if its pace stays far
below the median of its gang, over several looks.

Ranks that wait in a collective operation keep their GPUs busy: one whose GPU is idle for long, while those of all
others are busy, is what they wait for.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

LONGER = 20.0
"""A hang is so many times longer than the longest time without a step so far."""
UNLEARNED = 10.0
"""As long as only one step was seen, a hang is so many times longer than the least time."""
SLOW = 0.7
"""A straggler is below this part of the median pace."""
LOOKS = 3
"""So many looks in a row must agree about a straggler."""
WINDOW = 12
"""Looks over which a pace is measured."""


IDLE_PERCENT, BUSY_PERCENT = 5.0, 80.0
"""A GPU is idle below the first, and busy above the second."""


class StallKind(Enum):
    """What is wrong with a job's progress."""

    HANG = "hang"
    STRAGGLER = "straggler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A hang, or the ranks that straggle, in words."""

    kind: StallKind
    ranks: tuple[int, ...]
    text: str


class ProgressOfRanks:
    """The steps of one attempt of a job, by rank."""

    def __init__(self, least_s: float) -> None:
        """A time without steps below `least_s` is never a hang."""
        self._least_s = least_s
        self._seen: deque[tuple[float, dict[int, float]]] = deque(maxlen=WINDOW)
        self._steps: dict[int, float] = {}
        self._moved_s: float | None = None
        self._longest_s = 0.0
        self._slow: dict[int, int] = {}
        self._idle_since_s: float | None = None

    def look(self, now_s: float, steps: Mapping[int, float]) -> Stall | None:
        """Take in the steps of all ranks that report; return what is wrong, if anything."""
        if not steps:
            return None
        moved = {rank for rank, step in steps.items() if step > self._steps.get(rank, -1.0)}
        stopped = [rank for rank in steps if rank not in moved]
        self._steps.update(steps)
        self._seen.append((now_s, dict(steps)))
        if moved:
            if self._moved_s is not None:
                self._longest_s = max(self._longest_s, now_s - self._moved_s)
            self._moved_s = now_s
            return self._straggling(steps)
        if self._moved_s is None:
            return None
        still_s = now_s - self._moved_s
        learned_s = LONGER * self._longest_s if self._longest_s else UNLEARNED * self._least_s
        if still_s < max(self._least_s, learned_s):
            return None
        behind = min(steps, key=lambda rank: (steps[rank], rank))
        text = f"no step for {still_s:.0f} s, the longest before was {self._longest_s:.0f} s; rank {behind} is behind"
        return Stall(kind=StallKind.HANG, ranks=tuple(sorted(stopped)), text=text)

    def look_at_gpus(self, now_s: float, busy: Mapping[int, float]) -> Stall | None:
        """Take in how busy the GPUs of the ranks are, in percent; return ranks that all others wait for."""
        idle = tuple(sorted(rank for rank, percent in busy.items() if percent < IDLE_PERCENT))
        others = [percent for rank, percent in busy.items() if rank not in idle]
        if not idle or len(others) < len(idle) or min(others, default=0.0) < BUSY_PERCENT:
            self._idle_since_s = None
            return None
        if self._idle_since_s is None:
            self._idle_since_s = now_s
        still_s = now_s - self._idle_since_s
        if still_s < self._least_s:
            return None
        text = f"the GPUs of rank {idle[0]} are idle for {still_s:.0f} s while those of {len(others)} others are busy"
        return Stall(kind=StallKind.HANG, ranks=idle, text=text)

    def _straggling(self, steps: Mapping[int, float]) -> Stall | None:
        first_s, first = self._seen[0]
        last_s, _ = self._seen[-1]
        if len(steps) < 3 or len(self._seen) < WINDOW // 2 or last_s <= first_s:
            return None
        pace = {rank: (step - first.get(rank, step)) / (last_s - first_s) for rank, step in steps.items()}
        usual = statistics.median(pace.values())
        for rank, speed in pace.items():
            self._slow[rank] = self._slow.get(rank, 0) + 1 if speed < SLOW * usual else 0
        slow = tuple(sorted(rank for rank, times in self._slow.items() if times >= LOOKS and rank in steps))
        if not slow:
            return None
        worst = min(slow, key=lambda rank: pace[rank])
        text = f"rank {worst} makes {pace[worst]:.2f} steps a second, the median of its gang is {usual:.2f}"
        return Stall(kind=StallKind.STRAGGLER, ranks=slow, text=text)
