"""Work of many small steps on the event loop, a slice at a time, so that requests are answered in between.

To start the hundreds of tasks of one gang takes seconds. A piece of work is a generator that yields after each step;
pieces alternate, so that a small one never waits for a large one to finish. Steps that may wait in the kernel are taken
by a thread of their own, and the piece goes on when they are done.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

SLICE_S = 0.01
"""How long steps are taken before other work of the loop is done; the last step may exceed it."""
REST_S = 0.004
"""How long other work of the loop is done before the next slice."""
SLOT_WAIT_S = 0.01
"""How long to wait before looking again whether another task may be started."""
LONGEST_START_S = 5.0
"""After how long a start that goes on no longer keeps others from starting."""
T = TypeVar("T")
Wait = float | asyncio.Future[Any]
"""Until when a piece of work rests: for so many seconds, or until something is done."""
Steps = Generator[Wait, None, T]
"""Yields after each step how long to wait before the next one; usually 0."""


class SlicedWork:
    """The pieces of work that are under way."""

    def __init__(self, later: Callable[[float, Callable[[], None]], Any]) -> None:
        self._later = later
        self._pieces: deque[Steps[None]] = deque()
        self._timer: Any = None
        self._is_in_slice = False
        self._is_closed = False

    def add(self, steps: Steps[None]) -> None:
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
        wait = next(steps, None)
        if wait is None or self._is_closed:
            return
        if isinstance(wait, asyncio.Future):
            wait.add_done_callback(lambda _: self.add(steps))
        elif wait > 0.0:
            self._later(wait, lambda: self.add(steps))
        else:
            self._pieces.append(steps)


class SideThread:
    """A thread for calls that may wait in the kernel for other processes, as those that make and remove cgroups do.

    The lock for these is one for the whole machine, and the process that holds it may get little of the CPUs: with
    hundreds of tasks that start and end, a call was seen to take seconds. Where nothing waits, calls are made at once.
    """

    def __init__(self, *, waits: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "side") if waits else None

    def call(self, work: Callable[..., T], *args: Any) -> Steps[T]:
        """Do something there; return what it returns."""
        if self._thread is None:
            return work(*args)
        done = self._loop.run_in_executor(self._thread, work, *args)
        yield done
        return done.result()

    def run(self, steps: Iterator[float]) -> Steps[None]:
        """Take each of the steps there; the waits between them are no part of it."""
        while (wait_s := (yield from self.call(next, steps, None))) is not None:
            yield wait_s

    def close(self) -> None:
        """Begin nothing more."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


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

    @contextmanager
    def taken(self, is_starting: Callable[[], bool]) -> Iterator[None]:
        """Count a task while it is made ready, and then as long as it is being started."""
        unready = [True]
        self._until_s[lambda: bool(unready) or is_starting()] = time.monotonic() + LONGEST_START_S
        try:
            yield
        finally:
            unready.clear()
