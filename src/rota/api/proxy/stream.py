"""A connection to a port or service of a task, through its session host, as a stream of bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

from rota.core.errors import Unavailable
from rota.drivers.local.interactive.door import NoHost, connect
from rota.drivers.local.task_runner.interactive.frames import (
    END_OF_OUTPUT,
    ERROR_OUTPUT,
    EXIT,
    FAILURE,
    INPUT,
    OPEN,
    OUTPUT,
    RECEIVED,
    FrameReader,
    pack,
)

CHUNK = 65536
PIECE = 32768
MOST_UNCONFIRMED = 192 << 10
"""What may be on its way to the job before it has taken it: with one more piece, less than the session host holds."""
STALLED_S = 120.0
"""How long what is sent may wait for the job to take some of it."""
REASON_S = 1.0
"""How long the reason is waited for why a connection ended without a byte."""
CONFIRM_EVERY = 64 << 10
"""The session host sends no more than 512 KiB that were not confirmed."""


class NoConnection(Unavailable):
    """Nothing in the job answers."""


class JobStream:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = FrameReader()
        self._held = bytearray()
        self._passed_on = self._told = 0
        self._sent = self._taken = 0
        self._has_room = asyncio.Event()
        self._is_over = self._has_ended = False
        """Whether it sends no more, and whether all of it has ended."""
        self.why = ""
        """What the other end said about why it ended."""

    @classmethod
    async def open(cls, folder: Path, order: dict[str, object]) -> JobStream:
        """Connect from the task of a folder; raises `NoConnection` if the task does not run."""
        try:
            reader, writer = await connect(folder)
        except NoHost as error:
            raise NoConnection(str(error)) from None
        writer.write(pack(OPEN, json.dumps(order).encode()))
        return cls(reader, writer)

    async def read(self) -> bytes:
        """Return some bytes; nothing at the end."""
        while not self._held and not self._is_over:
            await self._read_frames()
        if not self._held and not self._passed_on and not self._has_ended:
            with contextlib.suppress(TimeoutError):  # of what never said anything the reason comes with its end
                await asyncio.wait_for(self._read_to_end(), REASON_S)
        found = bytes(self._held)
        self._held.clear()
        self._passed_on += len(found)
        if self._passed_on - self._told >= CONFIRM_EVERY:
            self._told = self._passed_on
            self._writer.write(pack(RECEIVED, str(self._told).encode()))
        return found

    async def _read_frames(self) -> None:
        try:
            received = await self._reader.read(CHUNK)
        except OSError:
            received = b""
        if not received:
            self._is_over = self._has_ended = True
        for kind, payload in self._frames.feed(received):
            self._hear(kind, payload)

    async def _read_to_end(self) -> None:
        while not self._has_ended:
            await self._read_frames()

    def _hear(self, kind: bytes, payload: bytes) -> None:
        if kind == OUTPUT:
            self._held += payload
        elif kind in (ERROR_OUTPUT, FAILURE):
            self.why = (self.why + payload.decode(errors="replace")).strip().removeprefix("rota: ")[:300]
            if kind == FAILURE:
                self._is_over = self._has_ended = True
        elif kind == RECEIVED:
            self._taken = int(payload)
            self._has_room.set()
        elif kind in (EXIT, END_OF_OUTPUT):
            self._is_over = True
            self._has_ended = self._has_ended or kind == EXIT

    async def write(self, sent: bytes) -> None:
        """Send bytes, and wait while the other end takes no more; raises `NoConnection` if that is for long."""
        for at in range(0, len(sent), PIECE):
            while self._sent - self._taken >= MOST_UNCONFIRMED:
                self._has_room.clear()
                try:
                    await asyncio.wait_for(self._has_room.wait(), STALLED_S)  # what is read meanwhile tells
                except TimeoutError:
                    self.why = f"it took nothing of what was sent to it for {STALLED_S:g} s"
                    self.abort()
                    raise NoConnection(self.why) from None
            piece = sent[at : at + PIECE]
            self._sent += len(piece)
            self._writer.write(pack(INPUT, piece))
            await self._writer.drain()

    async def is_quiet(self) -> bool:
        """Whether the other end has neither said anything nor closed while nothing was asked of it."""
        waiting = asyncio.ensure_future(self._reader.read(CHUNK))
        for _ in range(3):  # what has arrived is read in the first turns of the loop
            await asyncio.sleep(0)
        if not waiting.done():
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
        elif not self._take(waiting):
            return False
        return not self._is_over and not self._held

    def _take(self, waiting: asyncio.Future[bytes]) -> bool:
        """Hear what was read; return whether the connection goes on."""
        if waiting.exception() is not None or not waiting.result():
            self._is_over = self._has_ended = True
            return False
        for kind, payload in self._frames.feed(waiting.result()):
            self._hear(kind, payload)
        return True

    def close(self) -> None:
        """Close it."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.close()

    def abort(self) -> None:
        """Close it at once, whatever is still to be sent."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.transport.abort()
