"""Background tasks of the driver: writes, awaited on close, and watches, cancelled on close."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

CLOSE_S = 10.0


class BackgroundTasks:
    """The tasks of one driver. The first failure is the driver's failure."""

    def __init__(self) -> None:
        self._writes: set[asyncio.Task[None]] = set()
        self._watches: set[asyncio.Task[None]] = set()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolves with the error when the driver can't continue."""

    def do(self, work: Coroutine[None, None, None], *, writes: bool = True) -> None:
        """Run a coroutine in the background."""
        running = asyncio.get_running_loop().create_task(work)
        (self._writes if writes else self._watches).add(running)
        running.add_done_callback(self._done)

    async def close(self) -> None:
        """Cancel the watches and await pending writes, so that the next leader sees them."""
        for task in self._watches:
            task.cancel()
        if self._writes:
            await asyncio.wait(self._writes, timeout=CLOSE_S)
        for task in self._writes:
            task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._writes.discard(task)
        self._watches.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
            self.failed.set_exception(error)
