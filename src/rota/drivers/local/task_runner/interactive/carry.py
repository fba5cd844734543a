"""A connection to a port where a task runs: a process beside the task copies between it and its standard streams."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 65536
HOSTS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
ANSWERING_IPV4 = (
    (socket.AF_INET, "127.0.0.1"),
    (socket.AF_INET, "0.0.0.0"),
    (socket.AF_INET6, "::ffff:127.0.0.1"),
    (socket.AF_INET6, "::"),
)
ANSWERING_IPV6 = ((socket.AF_INET6, "::1"), (socket.AF_INET6, "::"))
"""The addresses of sockets that may answer at each of the two, those first that the kernel prefers."""
LISTENING = "0A"
CONNECT_S = 30.0
SERVICES = ".services"
"""The folder in a job's own folder where its services say, each in a file of its name, what they listen on."""
MOST_PORT = 65535
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


def carry(port: int, *, own: bool = False) -> int:
    """Connect to a port and copy until both directions have ended; return the exit status.

    `own`: only if what listens there belongs to this user or to root. Loopback is shared by all users of a machine: a
    process that takes a port which a job has left, or was expected to take, would answer in the job's name.
    """
    remote = _connect(port)
    if remote is None:
        return 1
    if own and not _users_of(remote) <= {0, os.geteuid()}:
        return _fail(f"port {port}: what listens on it belongs to another user")
    return _copy(remote, f"port {port}")


def _users_of(remote: socket.socket) -> set[int]:
    """Return the users of the sockets at the other end: what listens there, and what has accepted the connection.

    Empty where the kernel does not say, or the other end is gone.
    """
    port, here = remote.getpeername()[1], f":{remote.getsockname()[1]:04X}"
    names = ANSWERING_IPV4 if remote.family == socket.AF_INET else ANSWERING_IPV6
    ends = [_in_table(socket.inet_pton(family, name)) for family, name in names]
    listening: dict[str, set[int]] = {}
    accepted: set[int] = set()
    for table in ("tcp", "tcp6"):
        for line in _lines(f"/proc/self/net/{table}"):
            fields = line.split()
            place, _, number = fields[1].partition(":")
            if int(number, 16) != port or place not in ends or fields[9] == "0":
                continue
            if fields[3] == LISTENING:
                listening.setdefault(place, set()).add(int(fields[7]))
            elif fields[2].endswith(here):
                accepted.add(int(fields[7]))
    return accepted.union(next((listening[end] for end in ends if end in listening), ()))


def _in_table(address: bytes) -> str:
    """Return an address as the kernel's tables write it: each word in the machine's own byte order."""
    words = (address[at : at + 4] for at in range(0, len(address), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


def _lines(path: str) -> list[str]:
    """Return the lines of a table below its heading; none where there is no such table."""
    parts = []
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        while part := os.read(file, CHUNK):
            parts.append(part)
        os.close(file)
    except OSError:
        return []
    return b"".join(parts).decode("ascii").splitlines()[1:]


def carry_service(run_folder: str, name: str) -> int:
    """Connect to what a service of the job listens on, as its file tells, and copy; return the exit status.

    The file is a Unix socket, a link to one, or text: the number of a port.
    """
    try:
        folder = os.open(f"{run_folder}/{SERVICES}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        found = os.stat(name, dir_fd=folder)
        if stat.S_ISSOCK(found.st_mode):
            remote = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            remote.settimeout(CONNECT_S)
            remote.connect(f"/proc/self/fd/{folder}/{name}")  # its whole path may be longer than a socket's can be
            return _copy(remote, f"service {name}")
        file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        text = os.read(file, 16).strip()
    except FileNotFoundError:
        return _fail(f"service {name}: the job has none of this name now")
    except OSError as error:
        return _fail(f"service {name}: it can't be reached: {error.strerror or error}")
    if not text.isdigit() or not 1 <= int(text) <= MOST_PORT:
        return _fail(f"service {name}: its file holds no port")
    return carry(int(text), own=True)


def _fail(why: str) -> int:
    os.write(2, why.encode())
    return 1


def _copy(remote: socket.socket, what: str) -> int:
    """Copy between a connection and the standard streams until both directions have ended; return the exit status."""
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
            return _fail(f"{what}: {error.strerror}")
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
