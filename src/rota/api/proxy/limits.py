"""What one caller may take of the manager by proxied requests; they do not count with those to the manager itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rota.files.up_file import LimitsPart
from rota.live.intake.quotas import Bucket

AT_ONCE = 32
"""Requests of one caller that are under way; browsers open six connections to an origin."""
MOST_WAITING = 256
MOST_CALLERS = 10_000


class TooFast(Exception):
    """A caller has too much under way; `retry_s` is when to try again."""

    def __init__(self, retry_s: float) -> None:
        super().__init__("too many requests to jobs at once")
        self.retry_s = retry_s


class _CallerUse:
    __slots__ = ("active", "bucket", "slots", "sockets", "waiting")

    def __init__(self, limits: LimitsPart) -> None:
        self.bucket = Bucket(limits.requests_per_second, max(limits.requests_burst, 1), time.monotonic())
        self.slots = asyncio.Semaphore(AT_ONCE)
        self.active = self.sockets = self.waiting = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it is under way."""
        return not (self.active or self.sockets or self.waiting)


class ProxyLimits:
    """The proxied requests of all callers."""

    def __init__(self, limits: LimitsPart) -> None:
        self._limits = limits
        self._callers: dict[str, _CallerUse] = {}

    @asynccontextmanager
    async def turn(self, caller: str, *, is_socket: bool) -> AsyncIterator[None]:
        """Wait for the caller's turn; raises `TooFast` where it has to slow down."""
        use = self._use(caller)
        if wait_s := use.bucket.wait_s(1, time.monotonic()):
            raise TooFast(wait_s)
        if is_socket:
            if use.sockets >= self._limits.streams:
                raise TooFast(1.0)
            use.sockets += 1
            try:
                yield
            finally:
                use.sockets -= 1
            return
        if use.waiting >= MOST_WAITING:
            raise TooFast(1.0)
        use.waiting += 1
        try:
            await use.slots.acquire()
        finally:
            use.waiting -= 1
        use.active += 1
        try:
            yield
        finally:
            use.active -= 1
            use.slots.release()

    def _use(self, caller: str) -> _CallerUse:
        found = self._callers.pop(caller, None) or _CallerUse(self._limits)
        self._callers[caller] = found  # the latest is the last
        if len(self._callers) > MOST_CALLERS:
            oldest = next(iter(self._callers))
            if self._callers[oldest].is_idle:
                del self._callers[oldest]
        return found
