"""Ends streams and pages once the token or the session that opened them is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rota.api.access import digest_of
from rota.api.guard.bearer import token_of

if TYPE_CHECKING:
    from rota.api.service import Service

SWEEP_S = 0.4
"""How often everything that is open is checked: a revoked token's streams end within a second."""


class StreamWatch:
    """Everything that is open on behalf of a token or a session, each with a check and an end."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[Callable[[], bool], Callable[[], None]]] = {}
        self._next = 0

    def __len__(self) -> int:
        """Return how many streams and pages are open."""
        return len(self._open)

    def add(self, is_valid: Callable[[], bool], end: Callable[[], None]) -> Callable[[], None]:
        """Call `end` once `is_valid` is false; the returned function stops watching."""
        key, self._next = self._next, self._next + 1
        self._open[key] = (is_valid, end)

        def stop() -> None:
            self._open.pop(key, None)

        return stop

    def sweep(self) -> None:
        """End what is no longer valid."""
        for key, (is_valid, end) in list(self._open.items()):
            if not is_valid():
                self._open.pop(key, None)
                end()

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self.sweep()


class EndedStreams:
    """Ends the responses that are still being sent when their token is revoked or expires."""

    def __init__(self, app: Callable[[Any, Any, Any], Any], service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Forward a request; its response is watched from its headers on, for a stream may be silent for long."""
        task = asyncio.current_task()
        assert task is not None, "a request is answered by a task"
        if scope["type"] != "http" or not scope["path"].startswith("/api/"):
            await self._app(scope, receive, send)
            return
        response = SentResponse(send, task, token_of(scope), self._service)
        try:
            await self._app(scope, receive, response.send)
        except asyncio.CancelledError:
            if not response.ended:
                raise
            task.uncancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            response.stop()


class SentResponse:
    """A response on its way; watched if its request came with a token."""

    def __init__(self, send: Any, task: asyncio.Task[Any], token: str, service: Service) -> None:
        self._send = send
        self._task = task
        self._digest = digest_of(token) if token else ""
        self._service = service
        self._stop: Callable[[], None] | None = None
        self.ended = False

    async def send(self, message: Any) -> None:
        """Send a message of the response."""
        if self._digest and message["type"] == "http.response.start" and self._is_valid():
            self._begin()  # what is not valid gets its refusal whole
        elif self._stop is not None and not self._is_valid():
            self._end()
            await asyncio.sleep(0)  # where the cancellation takes effect
        await self._send(message)

    def _begin(self) -> None:
        self._stop = self._service.watch.add(self._is_valid, self._end)

    def _is_valid(self) -> bool:
        return self._service.access.is_valid(self._digest)

    def _end(self) -> None:
        self.ended = True
        self._task.cancel()

    def stop(self) -> None:
        """Stop watching."""
        if self._stop is not None:
            self._stop()
