"""A small WebSocket client (RFC 6455), so that commands start quickly: binary messages over a blocking socket."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import os
import socket
import ssl
from collections.abc import Mapping

CHUNK = 65536
MOST_HEAD = 65536
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUED, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10


class HandshakeRefused(Exception):
    """The server answered the request for a socket with an HTTP status instead."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.body = body


class SocketClosed(Exception):
    """The other side has closed the socket, or the connection is lost; `code` is what it gave as the reason."""

    def __init__(self, code: int | None = None) -> None:
        super().__init__("the connection was lost" if code is None else f"closed with {code}")
        self.code = code


def open_socket(
    connection: http.client.HTTPConnection, host: str, path: str, headers: Mapping[str, str]
) -> ClientSocket:
    """Open a WebSocket over a new HTTP connection; raise `HandshakeRefused` or an `OSError` if that fails."""
    connection.connect()
    assert connection.sock is not None
    try:
        with contextlib.suppress(OSError):
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return ClientSocket(connection.sock, host, path, headers)
    except SocketClosed as error:
        connection.close()
        raise ConnectionError(str(error)) from None
    except BaseException:
        connection.close()
        raise


class ClientSocket:
    """The client's end of a WebSocket."""

    def __init__(self, connection: socket.socket, host: str, path: str, headers: Mapping[str, str]) -> None:
        self._connection = connection
        self._held = bytearray()
        self._message = bytearray()
        self._closed: SocketClosed | None = None
        self._shake_hands(host, path, headers)
        connection.setblocking(True)

    def fileno(self) -> int:
        """The descriptor to wait for; see `has_more`."""
        return self._connection.fileno()

    @property
    def has_more(self) -> bool:
        """Whether there is something that a wait for the descriptor would not see."""
        return self._closed is not None or (
            isinstance(self._connection, ssl.SSLSocket) and self._connection.pending() > 0
        )

    def _shake_hands(self, host: str, path: str, headers: Mapping[str, str]) -> None:
        key = base64.b64encode(os.urandom(16))
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [f"Sec-WebSocket-Key: {key.decode()}", "Sec-WebSocket-Version: 13"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        head = self._until(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
        if status != 101:
            raise HandshakeRefused(status, self._body(fields))
        accepted = base64.b64encode(hashlib.sha1(key + _MAGIC, usedforsecurity=False).digest())
        if fields.get(b"sec-websocket-accept", b"").strip() != accepted.lower():
            raise SocketClosed

    def _body(self, fields: Mapping[bytes, bytes]) -> bytes:
        """The body of a refusal, as far as it comes before the connection is closed."""
        length = fields.get(b"content-length", b"").strip()
        wanted = min(int(length), MOST_HEAD) if length.isdigit() else MOST_HEAD
        with contextlib.suppress(SocketClosed, OSError):
            while len(self._held) < wanted:
                self._receive()
        body = bytes(self._held[:wanted])
        return body[body.find(b"{") : body.rfind(b"}") + 1] if b"{" in body else body

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._held:
            if len(self._held) > MOST_HEAD:
                raise SocketClosed
            self._receive()
        head, _, rest = bytes(self._held).partition(mark)
        self._held = bytearray(rest)
        return head

    def _receive(self) -> None:
        received = self._connection.recv(CHUNK)
        if not received:
            raise SocketClosed
        self._held += received

    def receive(self) -> list[bytes]:
        """Wait for bytes; return the messages that are complete with them, perhaps none. Raise `SocketClosed`."""
        if self._closed is not None:
            raise self._closed
        try:
            self._receive()
        except OSError:
            raise SocketClosed from None
        return self._messages()

    def _messages(self) -> list[bytes]:
        """Return the messages that are complete; that the other side has closed is raised after the last of them."""
        found: list[bytes] = []
        while (frame := self._frame()) is not None:
            kind, is_last, payload = frame
            if kind == _CLOSE:
                self._closed = SocketClosed(int.from_bytes(payload[:2], "big") if len(payload) >= 2 else 1005)
                if not found:
                    raise self._closed
                return found
            if kind == _PING:
                self._send(_PONG, payload)
            elif kind in (_CONTINUED, _TEXT, _BINARY):
                self._message += payload
                if is_last:
                    found.append(bytes(self._message))
                    self._message.clear()
        return found

    def _frame(self) -> tuple[int, bool, bytes] | None:
        held = self._held
        if len(held) < 2:
            return None
        size, at = held[1] & 0x7F, 2
        if size >= 126:
            at += 2 if size == 126 else 8
            if len(held) < at:
                return None
            size = int.from_bytes(held[2:at], "big")
        if len(held) < at + size:
            return None
        kind, is_last, payload = held[0] & 0x0F, bool(held[0] & 0x80), bytes(held[at : at + size])
        del held[: at + size]
        return kind, is_last, payload

    def send(self, message: bytes) -> None:
        """Send a binary message."""
        self._send(_BINARY, message)

    def _send(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        head = bytearray([0x80 | kind])
        if size < 126:
            head.append(0x80 | size)
        elif size < 1 << 16:
            head += bytes([0x80 | 126]) + size.to_bytes(2, "big")
        else:
            head += bytes([0x80 | 127]) + size.to_bytes(8, "big")
        mask = os.urandom(4)
        key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
        masked = (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")
        try:
            self._connection.sendall(bytes(head) + mask + masked)
        except OSError:
            raise SocketClosed from None

    def close(self) -> None:
        """Close the socket."""
        with contextlib.suppress(SocketClosed, OSError):
            self._send(_CLOSE, (1000).to_bytes(2, "big"))
        with contextlib.suppress(OSError):
            self._connection.close()
