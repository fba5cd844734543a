"""Fencing: a leader writes nothing unless its lease was renewed a moment ago.

A process that is paused (a stopped container, a suspended virtual machine) wakes up with plans of the past, while
another replica may have taken over. Every write to the cluster passes the fence, which is open for a while after each
renewal. A lease that was lost closes it for good.
"""

from __future__ import annotations

import asyncio

from rota.core.errors import Unavailable


class LeadershipLost(Unavailable):
    """The lease was lost; another replica may act."""


class Fence:
    """Holds writes back while the lease may have expired; `open_s` is how long a renewal keeps it open."""

    def __init__(self, open_s: float) -> None:
        self._open_s = open_s
        self._renewed_s = float("-inf")
        self._renewed = asyncio.Event()
        self._is_lost = False

    @property
    def is_open(self) -> bool:
        """Whether writes may pass now."""
        return not self._is_lost and asyncio.get_running_loop().time() < self._renewed_s + self._open_s

    def renewed(self, asked_s: float) -> None:
        """Note that the lease was renewed by a request sent at `asked_s` of the loop's clock."""
        self._renewed_s = max(self._renewed_s, asked_s)
        self._renewed.set()

    def lost(self) -> None:
        """Close it for good."""
        self._is_lost = True
        self._renewed.set()

    async def passed(self) -> None:
        """Wait until writes may pass; raises once the lease is lost."""
        while not self.is_open:
            if self._is_lost:
                raise LeadershipLost("the lease was lost; another replica may act now")
            self._renewed.clear()
            await self._renewed.wait()
