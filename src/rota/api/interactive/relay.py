"""One client's session: its WebSocket, its job's course, and its end; the way into the task is the driver's."""

from __future__ import annotations

import asyncio
import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from rota.api.interactive.order import read_order
from rota.api.service import Service
from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.drivers.local.task_runner.interactive.frames import EXIT, FAILURE, MOST_PAYLOAD, NOTE
from rota.live.loop.entry import News
from rota.store.jobs import FINAL

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


class NotThere(RotaError):
    """There is nothing beside a task to connect to, for it has ended or is just beginning."""


class Relay(ABC):
    """One client's session."""

    def __init__(self, websocket: WebSocket, parts: Service, wanted: Wanted) -> None:
        self._websocket = websocket
        self._parts = parts
        self._wanted = wanted
        self._from_client: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue(QUEUED)
        self._revoked = asyncio.Event()
        self._changed = asyncio.Event()
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
            if self._revoked.is_set() and self._wanted.mode != "attach":
                self._hang_up()
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
        await self._leave()
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
        except NotThere as error:
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
                with contextlib.suppress(NotThere):  # it has just ended, or begins
                    if await self._forward(row.attempt, order):
                        attempt = row.attempt
                        continue
                order["since"] = order.get("since") if self._at is None else self._at
            await self._next_row()
        ended = {"state": row.state, "code": await self._exit_code(row), "message": row.message}
        await self._send(EXIT, json.dumps(ended).encode())

    async def _exit_code(self, row: Any) -> int | None:
        """Return the exit status of a job that has ended, if it is known."""
        found: int | None = row.exit_code
        return found

    # -- the way into the task -------------------------------------------------------------------

    @abstractmethod
    async def _forward(self, attempt: int, order: dict[str, Any]) -> bool:
        """Open what is ordered in an attempt of the job and carry bytes both ways.

        Return whether the session has ended there. Raises `NotThere` if nothing can be opened.
        """

    @abstractmethod
    async def _replay(self, row: Any, order: dict[str, Any]) -> None:
        """Send the output of a task that has ended."""

    @abstractmethod
    def _hang_up(self) -> None:
        """End the command that was opened, as its caller has lost the right to it."""

    @abstractmethod
    async def _leave(self) -> None:
        """Close the way into the task, if it is open."""
