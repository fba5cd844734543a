"""One HTTP request on its way to a job, and the answer on its way back, both streamed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import h11

from rota.api.limits.asgi import Receive, Send
from rota.api.proxy.headers import Headers, to_browser
from rota.api.proxy.pool import ConnectionPool, JobConnection, Key
from rota.api.proxy.stream import NoConnection

_REPEATABLE = frozenset({b"GET", b"HEAD", b"OPTIONS"})


class BadAnswer(Exception):
    """What the job said is no HTTP, or it ended too early."""


class ForwardedRequest:
    """One request of a browser."""

    def __init__(self, scope: Any, receive: Receive, send: Send, *, target: bytes, headers: Headers) -> None:
        self._scope = scope
        self._receive, self._send = receive, send
        self._target = target
        self._headers = headers
        self._method: bytes = scope["method"].encode()
        self.has_begun = False
        """Whether the answer is on its way, so that no other one can be given."""
        self._is_answered = self._is_gone = self._is_whole = self._has_body = False

    async def run(self, pool: ConnectionPool, key: Key, *, direct: bool) -> None:
        """Carry the request; raises `NoConnection` or `BadAnswer` while nothing was answered."""
        connection = await pool.take(key)
        try:
            if await self._exchange(connection, direct=direct):
                return
        finally:
            pool.give_back(key, connection)
        connection = await pool.take(key, fresh=True)  # the kept one was closed by the job at this moment
        try:
            if not await self._exchange(connection, direct=direct):
                raise BadAnswer("it closed the connection without an answer")
        finally:
            pool.give_back(key, connection)

    async def _exchange(self, connection: JobConnection, *, direct: bool) -> bool:
        """Send and answer; return False if the request can be sent again over another connection."""
        try:
            begin = self._begin(connection.http)
        except h11.LocalProtocolError as error:
            raise BadAnswer(f"the request can't be passed on: {error}") from None
        sending = asyncio.create_task(self._upload(connection, begin))
        try:
            return await self._answer(connection, direct=direct)
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError, NoConnection, h11.LocalProtocolError):
                await sending

    def _begin(self, http: h11.Connection) -> bytes:
        given = dict(self._scope["headers"])
        headers = list(self._headers)
        if b"transfer-encoding" in given:
            headers.append((b"transfer-encoding", b"chunked"))
        elif b"content-length" in given:
            headers.append((b"content-length", given[b"content-length"]))
        return http.send(h11.Request(method=self._method, target=self._target, headers=headers)) or b""

    async def _upload(self, connection: JobConnection, begin: bytes) -> None:
        """Send the request, and end the connection as soon as the browser has gone: no one waits for the rest."""
        await connection.stream.write(begin)
        if self._is_whole:
            await connection.stream.write(connection.http.send(h11.EndOfMessage()) or b"")
        while (message := await self._receive())["type"] == "http.request":
            if self._is_whole:
                continue
            if body := message.get("body", b""):
                self._has_body = True
                await connection.stream.write(connection.http.send(h11.Data(data=body)) or b"")
            if not message.get("more_body", False):
                self._is_whole = True
                await connection.stream.write(connection.http.send(h11.EndOfMessage()) or b"")
        if not self._is_answered:
            self._is_gone = True
            connection.stream.abort()

    async def _next(self, connection: JobConnection) -> Any:
        while True:
            event = connection.http.next_event()
            if event is not h11.NEED_DATA:
                return event
            connection.http.receive_data(await connection.stream.read())

    async def _answer(self, connection: JobConnection, *, direct: bool) -> bool:
        try:
            event = await self._next(connection)
            while isinstance(event, h11.InformationalResponse):
                event = await self._next(connection)
            if not isinstance(event, h11.Response):
                raise h11.RemoteProtocolError("no answer")
        except h11.RemoteProtocolError as error:
            if self._is_gone:
                return True
            if connection.is_reused and self._method in _REPEATABLE and not self._has_body:
                return False
            raise _failure(connection, error) from None
        headers = to_browser(list(event.headers), direct=direct)
        self.has_begun = True
        await self._send({"type": "http.response.start", "status": event.status_code, "headers": headers})
        with contextlib.suppress(h11.RemoteProtocolError):  # an answer that is not whole breaks the browser's too
            await self._pass_on(connection)
        return True

    async def _pass_on(self, connection: JobConnection) -> None:
        while not isinstance(event := await self._next(connection), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                await self._send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
        self._is_answered = True
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _failure(connection: JobConnection, error: Exception) -> Exception:
    if connection.stream.why:
        return NoConnection(connection.stream.why)
    return BadAnswer("it closed the connection without an answer" if "no answer" in str(error) else str(error))
