"""The way of a session's bytes into a pod: to and from the API server of the cluster, and through it to the node.

A pod has no session host. A command beside the task is the connection's own and is not found again; the terminal of the
task itself is, as the container holds it, and what was written in between is read from the container's log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable
from typing import Any, TypeVar

from starlette.websockets import WebSocket

from rota.api.interactive.relay import Ended, NotThere, Relay, Wanted
from rota.api.service import Service
from rota.core.errors import RotaError, Unavailable
from rota.core.model.job import JobId
from rota.drivers.kubernetes.api.client import MissingRight
from rota.drivers.kubernetes.sessions.channels import (
    ERROR,
    PORT_DATA,
    PORT_ERROR,
    STDERR,
    STDIN,
    STDOUT,
    PodSocket,
    exit_of,
)
from rota.drivers.kubernetes.sessions.pods import NoPod, PodSessions, TaskPod
from rota.drivers.local.task_runner.interactive.frames import (
    DETACH,
    END_OF_INPUT,
    ERROR_OUTPUT,
    EXIT,
    FAILURE,
    HANG_UP,
    INPUT,
    MOST_PAYLOAD,
    NOTE,
    OPEN,
    OUTPUT,
    RECEIVED,
    SIGNAL,
    SIZE,
)
from rota.store.jobs import FINAL

T = TypeVar("T")
_TERM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
SHELL = (
    "/bin/sh",
    "-c",
    'export TERM="$0"; command -v bash >/dev/null 2>&1 && exec bash || exec "${SHELL:-/bin/sh}"',
)
"""What starts the shell of a command that names none; the kind of terminal follows."""
PORT_PREFIX = 2
"""Bytes with which each channel of a port begins: its number."""
QUIET_S = 0.05
"""Silence after which the output that came with a new connection is compared with the log."""
HALF_OPEN_S = 30.0
"""How long a forwarded connection may bring nothing whose client sends no more: its end can't be passed on."""
EARLY_END_S = 2.0
"""How long a command may go on after the end of its input before its user is told what it may wait for."""
NO_RIGHT = "an administrator gives it to Rota by a RoleBinding to the ClusterRole rota-sessions in that namespace"
NO_SIGNALS = b"signals can't be sent into pods; Ctrl-C twice ends this command"
NO_END = b"this cluster's Kubernetes, before 1.30, can't end the input of a command; it waits for more if it reads on"


class PodRelay(Relay):
    """One client's session in a pod."""

    def __init__(self, websocket: WebSocket, parts: Service, wanted: Wanted, pods: PodSessions) -> None:
        super().__init__(websocket, parts, wanted)
        self._pods = pods
        self._socket: PodSocket | None = None
        self._pod: TaskPod | None = None
        """The pod whose own streams were followed last."""
        self._attempt = 0
        self._taken = 0
        """Bytes of input that were passed on, in this attempt of the job."""
        self._status = b""
        self._tty = False
        self._may_type = True
        self._prefixes: dict[int, int] = {}
        self._half_open = asyncio.Event()

    def _hang_up(self) -> None:
        """Nothing more is needed: what was opened ends with its socket."""

    async def _leave(self) -> None:
        if self._socket is not None:
            await self._socket.close()
            self._socket = None

    # -- opening ---------------------------------------------------------------------------------

    async def _find(self, *, ended: bool = False) -> TaskPod:
        row, name = self._wanted.row, JobId(self._wanted.job_id)
        return await self._told(
            self._pods.find(name, self._wanted.task, tenant=row.tenant, owner=row.owner, ended=ended)
        )

    async def _told(self, work: Awaitable[T]) -> T:
        """Do work at the API server; tell the client if that refuses it."""
        try:
            return await work
        except NoPod as error:
            raise NotThere(str(error)) from None
        except MissingRight as error:
            await self._send(FAILURE, f"{error}; {NO_RIGHT}".encode())
            raise Ended from None
        except (RotaError, Unavailable) as error:
            await self._send(FAILURE, " ".join(str(error).split())[:2000].encode())
            raise Ended from None

    async def _forward(self, attempt: int, order: dict[str, Any]) -> bool:
        mode, pod = order["mode"], await self._find()
        if mode == "attach" and order.get("session"):
            raise NotThere("commands in pods end with their connection; there are none to come back to")
        if attempt != self._attempt:
            self._taken = int(order.get("received") or 0) if not self._attempt else 0
            self._attempt = attempt
        self._status, self._prefixes = b"", {}
        self._may_type = not order.get("watch")
        self._tty = bool(order.get("tty"))
        if mode == "forward":
            self._socket = await self._told(self._pods.port(pod, int(order["port"])))
        elif mode == "attach":
            return await self._follow(pod, order)
        else:
            self._socket = await self._told(self._pods.exec(pod, _words(order), tty=self._tty))
        return await self._carry(self._socket, pod, order)

    async def _follow(self, pod: TaskPod, order: dict[str, Any]) -> bool:
        """Attach to the pod of a task, and to each that its Job makes in its place; return whether the last ended."""
        while True:
            self._tty, self._pod = pod.tty, pod
            self._socket = await self._told(self._pods.attach(pod, watch=not self._may_type))
            if not await self._carry(self._socket, pod, order):
                return False
            found = await self._replacement(pod)
            if found is None:
                return True
            await self._send(NOTE, f"task {self._wanted.task} of job {self._wanted.job_id} starts again".encode())
            pod, self._taken, self._status, order["since"] = found, 0, b"", 0

    async def _replacement(self, pod: TaskPod) -> TaskPod | None:
        """Wait for a pod in place of one that has ended; None once the job is over."""
        while True:
            if (await self._next_row()).state in FINAL:
                return None
            with contextlib.suppress(NotThere):
                if (found := await self._find()).uid != pod.uid:
                    return found

    async def _carry(self, socket: PodSocket, pod: TaskPod, order: dict[str, Any]) -> bool:
        """Carry bytes both ways until the other side has ended; return whether the session has."""
        if self._tty and (size := order.get("size")) is not None:
            await socket.resize(*size)
        earlier: list[tuple[int, bytes]] = []
        if order["mode"] == "attach":
            earlier = await self._catch_up(socket, pod, order)
        else:
            await self._opened(0)
        work = [asyncio.create_task(each) for each in (self._upward(socket), self._downward(socket, earlier))]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
            return await self._over(order["mode"])
        finally:
            for each in work:
                each.cancel()
            await asyncio.wait(work)
            await self._leave()

    async def _opened(self, offset: int, skipped: int = 0) -> None:
        told = {"session": "main" if self._wanted.mode == "attach" else "", "offset": offset}
        self._at = offset
        await self._send(OPEN, json.dumps({**told, "received": self._taken, "skipped": skipped}).encode())

    async def _over(self, mode: str) -> bool:
        """Tell how a command or connection has ended; of the task itself only whether it has."""
        code, why = exit_of(self._status)
        if mode == "attach":
            return bool(self._status)
        if mode == "forward":
            failed = self._status.decode("utf-8", "replace").strip()
            await self._send(*((FAILURE, failed.encode()) if failed else (EXIT, b'{"code": 0}')))
        elif code is None:
            await self._send(FAILURE, why.encode())
        else:
            await self._send(EXIT, json.dumps({"code": code}).encode())
        raise Ended

    # -- the output so far -----------------------------------------------------------------------

    async def _catch_up(self, socket: PodSocket, pod: TaskPod, order: dict[str, Any]) -> list[tuple[int, bytes]]:
        """Send what the container wrote before this connection; return what has come by it and was not in the log."""
        since, tail = order.get("since"), order.get("tail")
        log = b"".join([part async for part in self._pods.output(pod)]) if since is not None or tail else b""
        if since is None:
            since = max(len(log) - int(tail or 0), 0)
        arrived = await _arrived(socket)
        said = b"".join(data for channel, data in arrived if channel in (STDOUT, STDERR))
        known = overlap(log, said)
        await self._opened(since)
        await self._say(OUTPUT, log[since:])
        rest: list[tuple[int, bytes]] = []
        for channel, data in arrived:
            skipped = min(known, len(data)) if channel in (STDOUT, STDERR) else 0
            known -= skipped
            rest += [(channel, data[skipped:])] if skipped < len(data) else []
        return rest

    async def _replay(self, row: Any, order: dict[str, Any]) -> None:
        try:
            pod = await self._find(ended=True)
        except NotThere:
            return
        log = b"".join([part async for part in self._pods.output(pod)])
        since = int(order.get("since") or 0)
        await self._opened(since)
        await self._say(OUTPUT, log[since:])

    async def _exit_code(self, row: Any) -> int | None:
        if row.state == "succeeded":
            return 0
        with contextlib.suppress(NoPod, NotThere):
            pod = self._pod
            return (await self._find(ended=True) if pod is None else await self._pods.again(pod)).exit_code
        return await super()._exit_code(row)

    # -- both ways -------------------------------------------------------------------------------

    async def _upward(self, socket: PodSocket) -> None:
        """Pass on what the client sends, until it leaves; that the pod's end has gone is heard by the other way."""
        with contextlib.suppress(ConnectionError):
            await self._pass_on(socket)
        await asyncio.Event().wait()

    async def _pass_on(self, socket: PodSocket) -> None:
        while True:
            kind, payload = await self._from_client.get()
            if kind == INPUT and self._may_type:
                await socket.send(STDIN, payload)
                self._taken += len(payload)
                await self._send(RECEIVED, str(self._taken).encode())
            elif kind == END_OF_INPUT and self._may_type:
                await self._end_input(socket)
            elif kind == SIZE and self._tty:
                await socket.resize(*_size(payload))
            elif kind == SIGNAL:
                await self._send(NOTE, NO_SIGNALS)
            elif kind in (HANG_UP, DETACH):
                raise Ended

    async def _end_input(self, socket: PodSocket) -> None:
        if self._wanted.mode == "forward":
            self._half_open.set()
        elif self._tty:
            await socket.send(STDIN, b"\x04")
        elif socket.can_end_input:
            await socket.end_input()
        else:
            asyncio.get_running_loop().call_later(EARLY_END_S, self._tell_of_input)

    def _tell_of_input(self) -> None:
        if self._socket is not None:
            self._telling = asyncio.ensure_future(self._send(NOTE, NO_END))

    async def _downward(self, socket: PodSocket, earlier: list[tuple[int, bytes]]) -> None:
        for channel, data in earlier:
            await self._hear(channel, data)
        while (message := await self._next(socket)) is not None:
            await self._hear(*message)

    async def _next(self, socket: PodSocket) -> tuple[int, bytes] | None:
        """Return the next message; None at the end, also of a connection that is half open for long."""
        if self._wanted.mode != "forward":
            return await socket.receive()
        message = asyncio.ensure_future(socket.receive())
        half_open = asyncio.ensure_future(self._half_open.wait())
        try:
            await asyncio.wait([message, half_open], return_when=asyncio.FIRST_COMPLETED)
            async with asyncio.timeout(HALF_OPEN_S):
                return await message
        except TimeoutError:
            return None
        finally:
            message.cancel()
            half_open.cancel()

    async def _hear(self, channel: int, data: bytes) -> None:
        if self._wanted.mode == "forward":
            await self._hear_port(channel, data)
        elif channel == STDOUT:
            await self._say(OUTPUT, data)
        elif channel == STDERR:
            await self._say(ERROR_OUTPUT, data)
        elif channel == ERROR:
            self._status += data

    async def _hear_port(self, channel: int, data: bytes) -> None:
        begun = self._prefixes.get(channel, 0)
        prefix = min(PORT_PREFIX - begun, len(data))
        self._prefixes[channel] = begun + prefix
        if channel == PORT_DATA:
            await self._say(OUTPUT, data[prefix:])
        elif channel == PORT_ERROR:
            self._status += data[prefix:]

    async def _say(self, kind: bytes, data: bytes) -> None:
        for at in range(0, len(data), MOST_PAYLOAD):
            part = data[at : at + MOST_PAYLOAD]
            await self._send(kind, part)
            if self._at is not None:
                self._at += len(part)


def _words(order: dict[str, Any]) -> list[str]:
    """Return the words of a command; a shell if it names none."""
    words: list[str] = order.get("argv") or []
    if words:
        return words
    term = str(order.get("term") or "")
    return [*SHELL, term if _TERM.fullmatch(term) else "xterm"]


def _size(payload: bytes) -> tuple[int, int]:
    """Return rows and columns; raise `Ended` for what is neither."""
    try:
        rows, columns = (int(each) for each in json.loads(payload))
    except (ValueError, TypeError):
        raise Ended from None
    return min(max(rows, 1), 1000), min(max(columns, 1), 1000)


async def _arrived(socket: PodSocket) -> list[tuple[int, bytes]]:
    """Return what has come by a new connection so far."""
    found: list[tuple[int, bytes]] = []
    while True:
        try:
            async with asyncio.timeout(QUIET_S):
                message = await socket.receive()
        except TimeoutError:
            return found
        if message is None:
            return found
        found.append(message)


def overlap(log: bytes, said: bytes) -> int:
    """Return how many bytes at the beginning of what was said are the end of the log already."""
    for size in range(min(len(log), len(said)), 0, -1):
        if log.endswith(said[:size]):
            return size
    return 0
