"""Work of many small steps on the event loop, a slice at a time, so that requests are answered in between.

To start the hundreds of tasks of one gang takes seconds. A piece of work is a generator that yields after each step;
pieces alternate, so that a small one never waits for a large one to finish.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

SLICE_S = 0.01
"""How long steps are taken before other work of the loop is done; the last step may exceed it."""
REST_S = 0.004
"""How long other work of the loop is done before the next slice."""
SLOT_WAIT_S = 0.01
"""How long to wait before looking again whether another task may be started."""
LONGEST_START_S = 5.0
"""After how long a start that goes on no longer keeps others from starting."""
Steps = Iterator[float]
"""Yields after each step how long to wait before the next one, in seconds; usually 0."""


class SlicedWork:
    """The pieces of work that are under way."""

    def __init__(self, later: Callable[[float, Callable[[], None]], Any]) -> None:
        self._later = later
        self._pieces: deque[Steps] = deque()
        self._timer: Any = None
        self._is_in_slice = False
        self._is_closed = False

    def add(self, steps: Steps) -> None:
        """Begin a piece of work. Its first steps are taken at once, unless other work is under way."""
        if self._is_closed:
            return
        self._pieces.append(steps)
        if self._timer is None and not self._is_in_slice:
            self._slice()

    def close(self) -> None:
        """Take no further step."""
        self._is_closed = True
        self._pieces.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _slice(self) -> None:
        self._timer = None
        self._is_in_slice = True
        until_s = time.perf_counter() + SLICE_S
        try:
            while self._pieces:
                self._step()
                if time.perf_counter() >= until_s:
                    break
        finally:
            self._is_in_slice = False
            if self._pieces and not self._is_closed:
                self._timer = self._later(REST_S, self._slice)

    def _step(self) -> None:
        steps = self._pieces.popleft()
        wait_s = next(steps, None)
        if wait_s is None or self._is_closed:
            return
        if wait_s > 0.0:
            self._later(wait_s, lambda: self.add(steps))
        else:
            self._pieces.append(steps)


class StartSlots:
    """The tasks that are being started: only a few at a time compete with the manager for the CPUs."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most or 2 + (os.cpu_count() or 1)
        self._until_s: dict[Callable[[], bool], float] = {}

    @property
    def is_full(self) -> bool:
        """Whether no further task should be started now."""
        if len(self._until_s) >= self._most:
            now_s = time.monotonic()
            self._until_s = {start: until for start, until in self._until_s.items() if until > now_s and start()}
        return len(self._until_s) >= self._most

    def take(self, is_starting: Callable[[], bool]) -> None:
        """Count a task as long as it is being started."""
        self._until_s[is_starting] = time.monotonic() + LONGEST_START_S
