"""How long the event loop is held: the longest time in which one piece of work let nothing else be served.

It is measured as CPU time of the loop's thread between two wake-ups of a task that wants to run all the time. Time in
which other processes had the CPU does not count, since it says nothing about the manager.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

EVERY_S = 0.02
KEPT_S = 60.0


class LoopWatch:
    """The longest holds of the last minute."""

    def __init__(self) -> None:
        self._holds: deque[tuple[float, float]] = deque()
        """Moments and lengths; each is longer than all after it."""

    async def run(self) -> None:
        """Measure until cancelled."""
        before_s = time.thread_time()
        while True:
            await asyncio.sleep(EVERY_S)
            now_s = time.thread_time()
            self.add(time.monotonic(), now_s - before_s)
            before_s = now_s

    def add(self, at_s: float, held_s: float) -> None:
        """Take in one measurement."""
        while self._holds and self._holds[-1][1] <= held_s:
            self._holds.pop()
        self._holds.append((at_s, held_s))
        while self._holds[0][0] < at_s - KEPT_S:
            self._holds.popleft()

    def longest_s(self) -> float:
        """Return the longest hold of the last minute."""
        return self._holds[0][1] if self._holds else 0.0
