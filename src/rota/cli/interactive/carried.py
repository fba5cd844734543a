"""One connection of a forwarded port: bytes between a local socket and the session that holds the job's end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
from typing import Any

from rota.drivers.local.task_runner.interactive.frames import (
    END_OF_INPUT,
    END_OF_OUTPUT,
    ERROR_OUTPUT,
    EXIT,
    FAILURE,
    INPUT,
    OPEN,
    OUTPUT,
    RECEIVED,
)
from rota.sdk.websocket import ClientSocket, SocketClosed

CHUNK = 32768
MOST_UNCONFIRMED = 192 << 10
"""What may be on its way to the job before it has taken it: with one more piece, less than the session host holds."""
CONFIRM_EVERY = 64 << 10
REVOKED = 4401


class Revoked(Exception):
    """The user's token is no longer valid."""


class StandardStreams:
    """The standard input and output of this process, used as a socket is."""

    def __init__(self) -> None:
        self.output = 1

    def fileno(self) -> int:
        """The descriptor to read from."""
        return 0

    def setblocking(self, blocks: bool) -> None:
        """Whether to wait where nothing can be read or written."""
        os.set_blocking(0, blocks)
        os.set_blocking(self.output, blocks)

    def recv(self, most: int) -> bytes:
        """Read what has come; nothing at its end."""
        return os.read(0, most)

    def send(self, data: bytearray) -> int:
        """Write what is taken now; return how much that was."""
        return os.write(self.output, data[:CHUNK])

    def shutdown(self, _: int) -> None:
        """Say that no more is written."""
        os.close(self.output)


class Carried:
    """A connection and its session."""

    def __init__(self, local: socket.socket | StandardStreams, session: ClientSocket) -> None:
        local.setblocking(False)
        if isinstance(local, socket.socket):
            with contextlib.suppress(OSError):
                local.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sink = local.output if isinstance(local, StandardStreams) else local
        self._local = local
        self._session = session
        self._sent = self._confirmed = 0
        self._passed_on = self._told = 0
        self._held = bytearray()
        """What the job sent and the local socket has not taken yet; the session host sends no more than it may."""
        self._reads = True
        self._has_end_of_output = self._is_over = False
        self._why = ""

    def run(self) -> str:
        """Copy until both directions have ended; return why it failed, in one line, or nothing.

        Raises `Revoked` if the user has lost its right.
        """
        try:
            while not self._is_over or self._held:
                self._turn()
        except SocketClosed as closed:
            if closed.code == REVOKED:
                raise Revoked from None
            return self._why or "the connection to the manager was lost"
        except OSError:  # the local side has closed both directions
            return ""
        return self._why

    def _turn(self) -> None:
        waits: list[Any] = [] if self._is_over else [self._session]
        if self._reads and not self._is_over and self._sent - self._confirmed < MOST_UNCONFIRMED:
            waits.append(self._local)
        if not self._is_over and self._session.has_more:
            readable: list[Any] = [self._session]
        else:
            readable, _, _ = select.select(waits, [self._sink] if self._held else [], [])
        if self._session in readable:
            for message in self._session.receive():
                self._hear(message[:1], message[1:])
        if self._local in readable:
            self._read()
        if self._held:
            self._write()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            sent = self._local.recv(CHUNK)
            if sent:
                self._sent += len(sent)
                self._session.send(INPUT + sent)
            else:
                self._reads = False
                self._session.send(END_OF_INPUT)

    def _write(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._held:
                taken = self._local.send(self._held)
                del self._held[:taken]
                self._passed_on += taken
        if self._passed_on - self._told >= CONFIRM_EVERY and not self._is_over:
            self._told = self._passed_on
            self._session.send(RECEIVED + str(self._told).encode())
        self._end_output()

    def _end_output(self) -> None:
        if self._has_end_of_output and not self._held:
            self._has_end_of_output = False
            self._local.shutdown(socket.SHUT_WR)

    def _hear(self, kind: bytes, payload: bytes) -> None:
        if kind == OUTPUT:
            self._held += payload
        elif kind == RECEIVED:
            self._confirmed = int(payload)
        elif kind == OPEN:
            self._confirmed = int(json.loads(payload)["received"])
        elif kind == END_OF_OUTPUT:
            self._has_end_of_output = True
            self._end_output()
        elif kind in (ERROR_OUTPUT, FAILURE):
            self._passed_on += len(payload) if kind == ERROR_OUTPUT else 0
            self._why = (self._why + payload.decode(errors="replace")).strip().removeprefix("rota: ")
            self._is_over = self._is_over or kind == FAILURE
        elif kind == EXIT:
            self._is_over = True
