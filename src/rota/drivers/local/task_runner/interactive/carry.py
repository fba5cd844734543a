"""A connection to a port where a task runs: a process beside the task copies between it and its standard streams."""

from __future__ import annotations

import contextlib
import os
import select
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 65536
HOSTS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
CONNECT_S = 30.0
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


def carry(port: int) -> int:
    """Connect to a port and copy until both directions have ended; return the exit status."""
    remote = _connect(port)
    if remote is None:
        return 1
    end = remote.fileno()
    for each in (0, 1, end):
        os.set_blocking(each, False)
    up = _Way(0, end, lambda: remote.shutdown(socket.SHUT_WR))
    down = _Way(end, 1, lambda: os.close(1))
    while not (up.is_over and down.is_over):
        poller = select.poll()
        wanted: dict[int, int] = {}
        for way in (up, down):
            if not way.is_over:
                fd, event = (way.target, select.POLLOUT) if way.held else (way.source, select.POLLIN)
                wanted[fd] = wanted.get(fd, 0) | event
        for fd, events in wanted.items():
            poller.register(fd, events)
        ready = dict(poller.poll())
        try:
            for way in (up, down):
                way.go_on(ready)
        except OSError as error:  # one side has ended both directions
            os.write(2, f"port {port}: {error.strerror}".encode())
            return 1
    return 0


def _connect(port: int) -> socket.socket | None:
    """Return a connection; None, and the reason on the error output, if there is none."""
    why: OSError | None = None
    for family, host in HOSTS:  # by number: looking up a name would import what we may not read any more
        connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            connection.settimeout(CONNECT_S)
            connection.connect((host, port))
            return connection
        except OSError as error:
            connection.close()
            why = why or error
    is_refused = isinstance(why, ConnectionRefusedError)
    text = "nothing listens on it in the task" if is_refused else f"the task can't be reached: {why}"
    os.write(2, f"port {port}: {text}".encode())
    return None


class _Way:
    """One direction: what was read and is not written yet."""

    def __init__(self, source: int, target: int, finish: Callable[[], None]) -> None:
        self.source, self.target = source, target
        self._finish = finish
        self.held = b""
        self.is_over = False

    def go_on(self, ready: dict[int, int]) -> None:
        """Copy what can be copied now; raise an `OSError` if the connection is broken."""
        if self.is_over:
            return
        with contextlib.suppress(BlockingIOError):
            if not self.held and ready.get(self.source, 0) & _READABLE:
                self.held = os.read(self.source, CHUNK)
                if not self.held:
                    self.is_over = True
                    self._finish()
                    return
            if self.held:
                self.held = self.held[os.write(self.target, self.held) :]
