"""Turns at a worker that answers one question at a time: each asker in turn, the manager itself last."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

MANAGER = ""
"""The asker of questions that no user waits for."""


class FairTurns:
    """The order of questions: a user that asks much waits for itself, others for one question of it at a time."""

    def __init__(self) -> None:
        self._is_busy = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, asker: str) -> AsyncIterator[None]:
        """Wait for a turn of an asker, and end it."""
        await self._take(asker)
        try:
            yield
        finally:
            self._pass_on()

    async def _take(self, asker: str) -> None:
        if not self._is_busy:
            self._is_busy = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(asker, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on()  # it was its turn already
            raise

    def _pass_on(self) -> None:
        """Give the turn to the asker that has waited longest since its last turn."""
        while self._waiting:
            asker = next((each for each in self._waiting if each != MANAGER), MANAGER)
            waiting = self._waiting.pop(asker)
            turn = waiting.popleft()
            if waiting:
                self._waiting[asker] = waiting  # at the end
            if not turn.done():
                turn.set_result(None)
                return
        self._is_busy = False
