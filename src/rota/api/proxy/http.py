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
            with contextlib.suppress(asyncio.CancelledError, OSError, h11.LocalProtocolError):
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
        await connection.stream.write(begin)
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                connection.stream.close()  # the browser has gone: what answers is no longer needed
                return
            if body := message.get("body", b""):
                await connection.stream.write(connection.http.send(h11.Data(data=body)) or b"")
            if not message.get("more_body", False):
                await connection.stream.write(connection.http.send(h11.EndOfMessage()) or b"")
                return

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
                raise h11.RemoteProtocolError("it answered nothing")
        except h11.RemoteProtocolError as error:
            if connection.is_reused and self._method in _REPEATABLE:
                return False
            raise await _failure(connection, error) from None
        headers = to_browser(list(event.headers), direct=direct)
        self.has_begun = True
        await self._send({"type": "http.response.start", "status": event.status_code, "headers": headers})
        while True:
            event = await self._next(connection)  # a broken answer breaks the browser's connection too
            if isinstance(event, h11.Data):
                await self._send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
            elif isinstance(event, h11.EndOfMessage):
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
                return True


async def _failure(connection: JobConnection, error: Exception) -> Exception:
    if why := await connection.stream.why_it_ended():
        return NoConnection(why)
    return BadAnswer("it closed the connection without an answer" if connection.stream.is_over else str(error))
