"""The way of a session's bytes into a task of this machine: to and from the session host beside it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from rota.api.interactive.relay import Ended, NotThere, Relay
from rota.core.model.job import JobId
from rota.drivers.local.interactive.door import NoHost, connect, error_parts
from rota.drivers.local.task_runner.interactive.frames import (
    ERROR_OUTPUT,
    EXIT,
    FAILURE,
    HANG_UP,
    OPEN,
    OUTPUT,
    FrameReader,
    pack,
)
from rota.store.run_folder import attempt_folder, read_output

CHUNK = 65536


class HostRelay(Relay):
    """One client's session in a task of this machine."""

    _writer: asyncio.StreamWriter | None = None

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.write(pack(HANG_UP))

    async def _leave(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _folder(self, attempt: int) -> Path:
        return attempt_folder(self._parts.home, JobId(self._wanted.job_id), max(attempt, 1)) / str(self._wanted.task)

    async def _forward(self, attempt: int, order: dict[str, Any]) -> bool:
        folder = self._folder(attempt)
        if not await asyncio.to_thread(folder.exists):
            raise NotThere(f"there is no task {self._wanted.task}")
        try:
            reader, writer = await connect(folder)
        except NoHost as error:
            raise NotThere(str(error)) from None
        self._writer = writer
        writer.write(pack(OPEN, json.dumps(order).encode()))
        upward = asyncio.create_task(self._upward(writer))
        try:
            return await self._downward(reader)
        finally:
            upward.cancel()
            await asyncio.wait([upward])
            writer.close()
            self._writer = None

    async def _upward(self, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):  # the session is over; what the host says tells how
            while True:
                kind, payload = await self._from_client.get()
                writer.write(pack(kind, payload))
                await writer.drain()

    async def _downward(self, reader: asyncio.StreamReader) -> bool:
        """Carry what the host says to the client; return whether the session has ended."""
        frames = FrameReader()
        while received := await _read(reader):
            for kind, payload in frames.feed(received):
                if kind == EXIT and self._wanted.mode == "attach" and payload == b"{}":
                    return True  # how the job ended is told once that is known
                await self._send(kind, payload)
                if kind == OPEN:
                    self._at = int(json.loads(payload)["offset"])
                elif kind in (OUTPUT, ERROR_OUTPUT) and self._at is not None:
                    self._at += len(payload)
                if kind in (EXIT, FAILURE):
                    raise Ended
        return False

    async def _replay(self, row: Any, order: dict[str, Any]) -> None:
        folder = self._folder(row.attempt)
        errors = await asyncio.to_thread(error_parts, folder)
        since = int(order.get("since") or 0)
        await self._send(OPEN, json.dumps({"session": "main", "offset": since, "received": 0, "skipped": 0}).encode())
        async for offset, output in _kept(folder, since):
            for kind, part in split(output, offset, errors):
                await self._send(kind, part)


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Return what the host says; nothing at its end, also if it left with messages of the client unread."""
    try:
        return await reader.read(CHUNK)
    except ConnectionError:
        return b""


async def _kept(folder: Any, offset: int) -> AsyncIterator[tuple[int, bytes]]:
    while True:
        at, output = await asyncio.to_thread(read_output, folder, offset, CHUNK)
        if not output:
            return
        yield at, output
        offset = at + len(output)


def split(output: bytes, offset: int, errors: list[tuple[int, int]]) -> list[tuple[bytes, bytes]]:
    """Cut output at an offset into what was said on the standard output and on the error output."""
    found, at, end = [], offset, offset + len(output)
    for begin, after in errors:
        begin, after = max(begin, at), min(after, end)
        if begin >= after:
            continue
        if begin > at:
            found.append((OUTPUT, output[at - offset : begin - offset]))
        found.append((ERROR_OUTPUT, output[begin - offset : after - offset]))
        at = after
    if at < end:
        found.append((OUTPUT, output[at - offset :]))
    return found
