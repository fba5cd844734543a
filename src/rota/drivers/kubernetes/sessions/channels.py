"""What the API server carries to and from a pod over a WebSocket: channels, each message with the number of its own.

`v5.channel.k8s.io` is `v4.channel.k8s.io` with the end of an input; API servers know it since 1.30. Older ones pass the
socket on to the kubelet, which knows v4, and `kubectl` spoke SPDY to both.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from typing import Any

import aiohttp

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
PORT_DATA, PORT_ERROR = 0, 1
CLOSE = 255
MOST_MESSAGE = 32 << 10
QUEUED = 64
"""Messages that wait for a slow client; the pod waits from then on."""
_EXIT_CODE = re.compile(r"\d{1,3}", re.ASCII)


class PodSocket:
    """A WebSocket whose messages belong to channels."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self.can_end_input = socket.protocol == V5
        self._arrived: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue(QUEUED)
        self._has_ended = False
        self._reading = asyncio.create_task(self._read())

    async def send(self, channel: int, data: bytes) -> None:
        """Send data on a channel; returns once the connection has taken it."""
        for at in range(0, len(data), MOST_MESSAGE):
            await self._socket.send_bytes(bytes((channel,)) + data[at : at + MOST_MESSAGE])

    async def end_input(self) -> None:
        """Say that no more is sent on the standard input; with `can_end_input` only."""
        await self._socket.send_bytes(bytes((CLOSE, STDIN)))

    async def resize(self, rows: int, columns: int) -> None:
        """Change the size of the terminal."""
        await self.send(RESIZE, json.dumps({"Width": columns, "Height": rows}).encode())

    async def receive(self) -> tuple[int, bytes] | None:
        """Return the next message that says something, and its channel; None once the other side has closed."""
        if not self._has_ended and (message := await self._arrived.get()) is not None:
            return message
        self._has_ended = True
        return None

    async def _read(self) -> None:
        while True:
            message = await self._socket.receive()
            if message.type not in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
                await self._arrived.put(None)
                return
            data = message.data if isinstance(message.data, bytes) else str(message.data).encode()
            if len(data) > 1 and data[0] != CLOSE:  # a kubelet begins with empty messages
                await self._arrived.put((data[0], data[1:]))

    async def close(self) -> None:
        """Close it; what was opened by it hears of that."""
        self._reading.cancel()
        await asyncio.wait([self._reading])
        with contextlib.suppress(aiohttp.ClientError, ConnectionError, TimeoutError):
            await self._socket.close()


def exit_of(status: bytes) -> tuple[int | None, str]:
    """Read what the error channel said at the end: the exit status, or None and why it could not be run."""
    text = status.decode("utf-8", "replace").strip()
    try:
        value: Any = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        return None, text or "the connection to the pod was lost"
    if value.get("status") == "Success":
        return 0, ""
    details = value.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict) and cause.get("reason") == "ExitCode":
            code = str(cause.get("message", ""))
            return (int(code) if _EXIT_CODE.fullmatch(code) else 1), ""
    return None, str(value.get("message") or "the pod's node gave no reason")
