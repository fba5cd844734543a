"""A connection to the session host: the manager's, on behalf of one user's client."""

from __future__ import annotations

import contextlib
import json

from rota.drivers.local.task_runner.interactive.frames import (
    END_OF_OUTPUT,
    EXIT,
    FAILURE,
    NOTE,
    OPEN,
    RECEIVED,
    FrameReader,
    pack,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

    from rota.drivers.local.task_runner.interactive.session import HostSession

CHUNK = 65536
MOST_UNSENT = 256 << 10
MOST_ON_ITS_WAY = 512 << 10
"""Output of a forwarded port that its client may not have passed on yet."""
RECEIVED_EVERY = 16 << 10


class HostClient:
    """One connection: what it sent that is not a whole frame yet, and what is still to be sent to it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.reader = FrameReader()
        self.session: HostSession | None = None
        self.key = ""
        self.only_watches = False
        self.cursor = 0
        """The offset of the output that it gets next."""
        self.closes = False
        """Whether the connection is closed once everything is sent."""
        self.left_on_purpose = False
        self._out = bytearray()
        self._told = 0
        self._has_exit = self._has_end = False
        self._passed_on = 0

    @property
    def has_unsent(self) -> bool:
        """Whether something is still to be sent to it."""
        return bool(self._out)

    @property
    def has_all(self) -> bool:
        """Whether it has got everything of a session that is over."""
        return self._has_exit and not self._out

    def receive(self) -> list[tuple[bytes, bytes]] | None:
        """Return the frames that have arrived; None if the connection was closed."""
        try:
            received = self.connection.recv(CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            return None
        return self.reader.feed(received) if received else None

    def tell(self, kind: bytes, payload: bytes = b"") -> None:
        """Send a frame."""
        self._out += pack(kind, payload)

    def note(self, text: str) -> None:
        """Send text for the user."""
        self.tell(NOTE, text.encode())

    def fail(self, why: str) -> None:
        """Refuse what it asked for, and close the connection."""
        self.tell(FAILURE, why.encode())
        self.closes = True

    def join(self, session: HostSession, key: str, since: int | None, *, only_watches: bool) -> None:
        """Take part in a session; `since`: the offset of the output from which on to get it."""
        self.session, self.key, self.only_watches = session, key, only_watches
        ring = session.ring
        self.cursor = ring.start if since is None else min(max(since, ring.start), ring.end)
        self._told = session.received(key)
        told: dict[str, Any] = {"session": session.name, "offset": self.cursor, "received": self._told}
        told |= {"tty": session.stdio.tty, "skipped": 0 if since is None else max(self.cursor - since, 0)}
        session.joined(self)
        self.tell(OPEN, json.dumps(told).encode())

    def take(self, typed: bytes) -> None:
        """Hand input on to the session, and tell from time to time how much has arrived."""
        assert self.session is not None
        self.session.take(self.key, typed)
        self.confirm()

    def confirm(self) -> None:
        """Tell how much input has arrived; for a forwarded port, how much the program at its end has taken.

        Such a client then never has more on its way than we hold, so that what it tells us is always read: a program
        may send without end before it reads on.
        """
        session = self.session
        if session is None:
            return
        total = session.received(self.key) - (len(session.waiting) if session.is_forward else 0)
        if total - self._told >= RECEIVED_EVERY:
            self._told = total
            self.tell(RECEIVED, str(total).encode())

    def has_passed_on(self, total: int) -> None:
        """Note how much of the output of a forwarded port it has passed on."""
        self._passed_on = min(max(self._passed_on, total), self.cursor)

    def _has_room(self, session: HostSession) -> bool:
        is_ahead = session.is_forward and self.cursor - self._passed_on >= MOST_ON_ITS_WAY
        return len(self._out) < MOST_UNSENT and not is_ahead

    def pump(self) -> bool:
        """Send what there is; return False if the connection is broken."""
        if self.session is not None:
            self._fill(self.session)
        while self._out:
            try:
                sent = self.connection.send(memoryview(self._out)[:CHUNK].tobytes())
            except BlockingIOError:
                return True
            except OSError:
                return False
            del self._out[:sent]
            if self.session is not None:
                self._fill(self.session)
        return True

    def _fill(self, session: HostSession) -> None:
        """Take as much of the session's output as may be unsent, and at its end how it ended."""
        while self._has_room(session):
            if self.cursor < session.ring.start:
                self.note(f"{session.ring.start - self.cursor} bytes of output were skipped: it came too fast")
                self.cursor = session.ring.start
            piece = session.ring.read(self.cursor)
            if piece is None:
                break
            _, kind, output = piece
            self._out += pack(kind, output)
            self.cursor += len(output)
        if session.has_said_all and self.cursor >= session.ring.end and not self._has_end:
            self._has_end = True
            self.tell(END_OF_OUTPUT)
        if session.is_over and self.cursor >= session.ring.end and not self._has_exit:
            self._has_exit = True
            self.tell(EXIT, json.dumps(session.exit).encode())

    def close(self) -> None:
        """Leave the session and close the connection."""
        if self.session is not None:
            self.session.left(self, on_purpose=self.left_on_purpose or self._has_exit)
        with contextlib.suppress(OSError):
            self.connection.close()
