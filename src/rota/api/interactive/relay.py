"""The way of a session's bytes between a client's WebSocket and the session host beside a task."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from rota.api.interactive.order import read_order
from rota.api.service import Service
from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.drivers.local.interactive.door import NoHost, connect, error_parts
from rota.drivers.local.task_runner.interactive.frames import (
    ERROR_OUTPUT,
    EXIT,
    FAILURE,
    HANG_UP,
    MOST_PAYLOAD,
    NOTE,
    OPEN,
    OUTPUT,
    FrameReader,
    pack,
)
from rota.live.loop.entry import News
from rota.store.jobs import FINAL
from rota.store.run_folder import attempt_folder, read_output

CHUNK = 65536
LOOKS_S = 2.0
"""How often a job is looked at while nothing is heard of it."""
QUEUED = 64
"""Messages of a client that wait, as for the job's start; the client waits from then on."""
ENDED, LOST_RIGHT = 1000, 4401
"""Why a socket is closed: all was said; the token is no longer valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a client asked for when it opened its socket."""

    job_id: str
    mode: str
    task: int
    port: int
    """The port that is forwarded, in the mode `forward`."""
    row: Any
    """The job's record at that time."""


class Ended(Exception):
    """The client has gone, or was told all there is to tell."""


class Relay:
    """One client's session."""

    def __init__(self, websocket: WebSocket, parts: Service, wanted: Wanted) -> None:
        self._websocket = websocket
        self._parts = parts
        self._wanted = wanted
        self._from_client: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue(QUEUED)
        self._revoked = asyncio.Event()
        self._changed = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._at: int | None = None
        """The offset up to which the client has the output of the present attempt."""
        self.note: Callable[[str, str], Awaitable[None]]

    async def in_thread(self, work: Callable[..., Any], *given: Any) -> Any:
        """Do work that blocks, without delaying others."""
        return await asyncio.to_thread(work, *given)

    def revoke(self) -> None:
        """End the session: the caller has lost its right to it."""
        self._revoked.set()

    async def run(self) -> None:
        """Serve the session to its end."""
        stop = self._parts.control.listen(self._heard)
        work = [asyncio.create_task(each) for each in (self._receive(), self._serve(), self._revoked.wait())]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            if self._revoked.is_set() and self._writer is not None and self._wanted.mode != "attach":
                self._writer.write(pack(HANG_UP))
            for each in done:
                if not isinstance(error := each.exception(), Ended | WebSocketDisconnect | ConnectionError | None):
                    raise error
        finally:
            stop()
            for each in work:
                each.cancel()
            await asyncio.wait(work)
            await self._close()

    def _heard(self, news: object) -> None:
        if isinstance(news, list) and any(isinstance(n, News) and n.job_id == self._wanted.job_id for n in news):
            self._changed.set()

    async def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._websocket.client_state is WebSocketState.CONNECTED:
            with contextlib.suppress(RuntimeError, WebSocketDisconnect, ConnectionError):
                await self._websocket.close(LOST_RIGHT if self._revoked.is_set() else ENDED)

    async def _receive(self) -> None:
        """Queue the client's messages; ends when the client does."""
        while True:
            message = await self._websocket.receive()
            if message["type"] != "websocket.receive":
                raise Ended
            data = message.get("bytes") or (message.get("text") or "").encode()
            if len(data) > MOST_PAYLOAD:
                await self._send(FAILURE, f"a message of {len(data)} bytes; the maximum is {MOST_PAYLOAD}".encode())
                raise Ended
            if data:
                await self._from_client.put((data[:1], data[1:]))

    async def _send(self, kind: bytes, payload: bytes = b"") -> None:
        await self._websocket.send_bytes(kind + payload)

    # -- serving ---------------------------------------------------------------------------------

    async def _serve(self) -> None:
        try:
            order = read_order(*await self._from_client.get())
        except RotaError as error:
            await self._send(FAILURE, str(error).encode())
            raise Ended from None
        order["mode"] = mode = self._wanted.mode
        said = " ".join(map(str, order.get("argv") or ()))[:300]
        if mode == "forward":
            order, said = {"mode": "forward", "port": self._wanted.port}, f"port {self._wanted.port}"
        elif mode == "ssh":
            order, said = {"mode": "ssh", "keys": order.get("keys", [])}, ""
        elif order.get("session"):
            mode, said = "attach", f"session {order['session']}"[:300]
        await self.note(f"session-{mode}", f"task {self._wanted.task}{': ' * bool(said)}{said}")
        if self._wanted.mode != "attach":
            await self._exec(order)
        else:
            await self._attach(order)
        raise Ended

    async def _row(self) -> Any:
        row = await asyncio.to_thread(self._parts.records.job, self._wanted.job_id)
        if row is None:
            raise Ended
        return row

    async def _next_row(self) -> Any:
        """Return the job's record after the next change of it, or after a while."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), LOOKS_S)
        self._changed.clear()
        return await self._row()

    async def _exec(self, order: dict[str, Any]) -> None:
        row = await self._until_running()
        if row.state in FINAL:
            await self._send(FAILURE, f"job {row.id} has ended ({row.state})".encode())
            return
        if order.get("session"):
            order["mode"] = "attach"
        try:
            if not await self._forward(row.attempt, order):
                await self._send(FAILURE, b"the task has ended")
        except NoHost as error:
            await self._send(FAILURE, str(error).encode())

    async def _until_running(self) -> Any:
        """Wait for the job to run, or to have ended; tell the user for what."""
        row, told = await self._row(), "starting"  # which takes a moment, and is not worth a line
        while row.state not in FINAL and row.state != "running":
            if row.state != told:
                told = row.state
                reason = self._parts.control.explain(JobId(row.id))
                why = "" if reason is None else f": {reason.sentence()}"
                await self._send(NOTE, f"job {row.id} is {row.state}{why}".encode())
            row = await self._next_row()
        return row

    async def _attach(self, order: dict[str, Any]) -> None:
        """Follow the task's own terminal, attempt after attempt, until the job has ended."""
        attempt = 0
        while True:
            row = await self._until_running()
            if attempt and row.attempt > attempt:
                await self._send(NOTE, f"job {row.id} starts again: attempt {row.attempt}".encode())
                self._at, order["since"] = None, 0
            if row.state in FINAL:
                if attempt != row.attempt:
                    await self._replay(row, order)
                break
            if attempt != row.attempt:
                with contextlib.suppress(NoHost):  # it has just ended, or begins
                    if await self._forward(row.attempt, order):
                        attempt = row.attempt
                        continue
                order["since"] = order.get("since") if self._at is None else self._at
            await self._next_row()
        ended = {"state": row.state, "code": row.exit_code, "message": row.message}
        await self._send(EXIT, json.dumps(ended).encode())

    async def _forward(self, attempt: int, order: dict[str, Any]) -> bool:
        """Connect to the session host and carry bytes both ways; return whether the session has ended there."""
        folder = attempt_folder(self._parts.home, JobId(self._wanted.job_id), max(attempt, 1)) / str(self._wanted.task)
        if not await asyncio.to_thread(folder.exists):
            raise NoHost(f"there is no task {self._wanted.task}")
        reader, writer = await connect(folder)
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
        """Send the output of a task that has ended, as its files hold it."""
        folder = attempt_folder(self._parts.home, JobId(row.id), max(row.attempt, 1)) / str(self._wanted.task)
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
