"""Connections: how many there may be, how long each may take, and which one is closed when there are too many.

A connection is counted from the moment at which it is accepted, before TLS. While a request is not complete, its
connection can be closed in favour of a new one, the oldest first. So half-sent requests can't keep others out.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HANDSHAKE_S = 10.0
HEAD_S = 10.0
"""From the first byte of a request, or from the start of the connection, to the end of its headers."""
BODY_PAUSE_S = 10.0
"""Between two parts of a body."""
BODY_S = 120.0
"""From the end of the headers to the end of the body."""
WRITE_S = 30.0
"""How long a client may read nothing of what it asked for."""
MOST_HEAD_BYTES = 64 << 10
ACCEPTED_AT_ONCE = 100
_REFUSALS = {
    408: b"the request took too long",
    431: b"the headers are larger than 64 KiB",
    503: b"there are too many connections; try again",
}


class Connections:
    """All open connections, and those of them that wait for the rest of a request, oldest first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open = 0
        self.closed_early = 0
        """Connections that were closed in favour of others."""
        self._unready: dict[asyncio.WriteTransport, None] = {}
        self._closing: set[asyncio.WriteTransport] = set()
        """Those that were closed for others and have not ended yet."""

    def waits(self, transport: asyncio.WriteTransport) -> None:
        """Note that a connection waits for a request or for the rest of one."""
        self._unready.pop(transport, None)
        self._unready[transport] = None

    def works(self, transport: asyncio.WriteTransport) -> None:
        """Note that a request is complete and being answered."""
        self._unready.pop(transport, None)

    @property
    def could_take(self) -> bool:
        """Whether one more can be opened, perhaps by closing one that waits."""
        return self.open < self.most or bool(self._unready)

    def ended(self, transport: asyncio.WriteTransport) -> None:
        """Note the end of a connection."""
        self._unready.pop(transport, None)
        if transport in self._closing:
            self._closing.discard(transport)
        else:
            self.open -= 1

    def has_room(self) -> bool:
        """Whether one more can be opened; the oldest that waits is closed for it."""
        if self.open < self.most:
            return True
        if not self._unready:
            return False
        oldest = next(iter(self._unready))
        del self._unready[oldest]
        self._closing.add(oldest)
        self.open -= 1
        self.closed_early += 1
        oldest.abort()
        return True


class Acceptor:
    """Accepts connections of one listening socket for as long as there is room."""

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        connections: Connections,
    ) -> None:
        self._listening = listening
        self._make = make
        self._tls = tls
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        listening.setblocking(False)
        self._loop.add_reader(listening.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if self._opening and not self._connections.could_take:
                return  # some that were just accepted will wait for a request, and can be closed for others
            try:
                accepted, _address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor is left: some other part has used up the reserve
                self._connections.has_room()
                return
            if not self._connections.has_room():
                _refuse_raw(accepted)
                continue
            self._connections.open += 1
            accepted.setblocking(False)
            task = self._loop.create_task(self._serve(accepted))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _serve(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make, accepted, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_S if self._tls else None
            )
        except (OSError, ssl.SSLError, TimeoutError):  # an incomplete handshake is the client's own affair
            self._connections.open -= 1
            accepted.close()

    def close(self) -> None:
        """Accept nothing more."""
        with contextlib.suppress(ValueError):
            self._loop.remove_reader(self._listening.fileno())
        for task in self._opening:
            task.cancel()

    async def wait_closed(self) -> None:
        """Return at once; open connections are closed by the server."""


def _refuse_raw(accepted: socket.socket) -> None:
    with contextlib.suppress(OSError), accepted:
        accepted.setblocking(False)
        accepted.send(_answer(503))


def _answer(status: int) -> bytes:
    text = b'{"error":"' + _REFUSALS[status] + b'"}'
    reasons = {408: b"Request Timeout", 431: b"Request Header Fields Too Large", 503: b"Service Unavailable"}
    head = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n"
    retry = b"retry-after: 1\r\n" if status == 503 else b""
    return head % (status, reasons[status], len(text)) + retry + b"\r\n" + text


class BoundedHttp(HttpToolsProtocol):
    """HTTP of one connection with time limits for headers, bodies and answers."""

    bounds: Connections
    """Set by the server."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._unfinished_bytes = 0
        """Bytes of headers that are not complete."""
        self._in_head = False
        self._in_body = False
        self._is_refused = False
        self._body_until_s = 0.0
        self._ended = False
        real = self.ws_protocol_class
        if real is not None:
            self.ws_protocol_class = self._counted(real)  # type: ignore[assignment]  # uvicorn calls it like a class

    def _counted(self, real: Any) -> Callable[..., Any]:
        """Make the protocol of a WebSocket, whose end is the end of this connection."""

        def make(**given: Any) -> Any:
            made = real(**given)
            lost = made.connection_lost

            def connection_lost(error: Exception | None) -> None:
                self._end()
                lost(error)

            made.connection_lost = connection_lost
            self._set_timer(None)
            self.bounds.works(self.transport)
            return made

        return make

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.bounds.waits(transport)
        self._set_timer(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Make room for another connection."""
        self._end()
        super().connection_lost(exc)

    def _end(self) -> None:
        self._set_timer(None)
        if self._stalled is not None:
            self._stalled.cancel()
        if not self._ended:
            self._ended = True
            self.bounds.ended(self.transport)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of headers, which the parser does not bound."""
        if self._unfinished_bytes > MOST_HEAD_BYTES:
            self._refuse(431)
            return
        super().data_received(data)
        self._unfinished_bytes = self._unfinished_bytes + len(data) if self._in_head else 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count the bytes of the headers. Those after a body are dropped: they would join the others unseen."""
        if not self._in_head:
            return
        self._head_bytes += len(name) + len(value)
        super().on_header(name, value)

    def on_message_begin(self) -> None:
        """Begin to wait for the rest of a request."""
        super().on_message_begin()
        self._head_bytes, self._in_head = 0, True
        self.bounds.waits(self.transport)
        self._set_timer(HEAD_S)

    def on_headers_complete(self) -> None:
        """Begin to wait for the body."""
        self._in_head = False
        if self._head_bytes > MOST_HEAD_BYTES:
            self._refuse(431)
            return
        self._in_body = True
        self._body_until_s = self.loop.time() + BODY_S
        self._set_timer(BODY_PAUSE_S)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Wait for more of the body."""
        if self._is_refused:
            return
        super().on_body(body)
        self._set_timer(min(BODY_PAUSE_S, max(self._body_until_s - self.loop.time(), 0.0)))

    def on_message_complete(self) -> None:
        """Leave the request to the application."""
        if self._is_refused:
            return
        super().on_message_complete()
        self._in_body = False
        self._set_timer(None)
        self.bounds.works(self.transport)

    def on_response_complete(self) -> None:
        """Wait for the next request; uvicorn limits how long."""
        super().on_response_complete()
        if not self.transport.is_closing() and not self.pipeline and not self._in_body:
            self.bounds.waits(self.transport)

    def pause_writing(self) -> None:
        """Limit how long the client may read nothing."""
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(WRITE_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _set_timer(self, after_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if after_s is None else self.loop.call_later(after_s, self._too_slow)

    def _too_slow(self) -> None:
        is_paused = self._in_body and self.flow.read_paused  # the application has not read what is there
        if is_paused:
            self._set_timer(BODY_PAUSE_S)
        else:
            self._refuse(408)

    def _refuse(self, status: int) -> None:
        """Answer, unless an answer has begun, and close the connection."""
        self._set_timer(None)
        self._is_refused = True
        has_answered = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if not self.transport.is_closing():
            if not has_answered:
                self.transport.write(_answer(status))
            self.transport.close()
