"""One session: standard streams of the task or of a command beside it, what they said, and its clients."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from rota.drivers.local.task_runner.interactive.frames import OUTPUT
from rota.drivers.local.task_runner.interactive.ring import OutputRing
from rota.drivers.local.task_runner.interactive.stdio import set_size
from rota.drivers.local.task_runner.processes import TaskProcesses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rota.drivers.local.task_runner.interactive.client import HostClient
    from rota.drivers.local.task_runner.interactive.stdio import Stdio

CHUNK = 65536
MOST_BEHIND = 512 << 10
"""How far a client may be behind the output before the session's programs have to wait for it."""
MOST_INPUT = 256 << 10
"""Input that waits for the session's programs; beyond it, no more is read from clients."""
COMES_BACK_S = 60.0
"""How long output waits for a client whose connection was lost, or that has not come yet."""
MOST_CLIENTS_KNOWN = 16
_END_OF_FILE = b"\x04"
_SIGNALS = frozenset({"INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "TSTP", "CONT", "KILL"})


class HostSession:
    """One session of a host."""

    def __init__(
        self, name: str, stdio: Stdio, pid: int, start: int, *, is_main: bool = False, is_forward: bool = False
    ) -> None:
        self.name = name
        self.stdio = stdio
        self.pid, self.start = pid, start
        self.pidfd = -1 if is_main else os.pidfd_open(pid)
        """By which the end of a command is seen; that of the task is the host's own affair."""
        self.is_main = is_main
        self.is_forward = is_forward
        """Whether it is a connection to a port or by SSH, which ends with its client's."""
        self.outputs = dict(stdio.outputs)
        self.input = stdio.input
        self.ring = OutputRing(0) if is_forward else OutputRing()
        self.waiting = bytearray()
        self.clients: set[HostClient] = set()
        self.exit: dict[str, Any] | None = None
        """How it ended."""
        self.over_at = float("inf")
        """When the rest of its output is no longer waited for."""
        self.command = ""
        self.errors: list[list[int]] = []
        """Which parts of the output were errors, where both streams are pipes."""
        self._received: dict[str, int] = {}
        self._ends_input = False
        self._come_back_by = time.monotonic() + COMES_BACK_S
        self.active_s = time.monotonic()
        self.lost_s: float | None = None
        """Since when a session beside the task has no client."""

    @property
    def is_over(self) -> bool:
        """Whether its programs have ended and all they said was read."""
        return self.exit is not None and not self.outputs

    @property
    def has_said_all(self) -> bool:
        """Whether the other end of a forwarded connection sends no more."""
        return self.is_forward and OUTPUT not in self.outputs.values()

    def wants_output(self, now: float) -> bool:
        """Whether to read what its programs say: not while a client is far behind, or is expected back."""
        if self.exit is not None:
            return True
        steering = [client for client in self.clients if not client.only_watches]
        if steering:
            return all(self.ring.end - client.cursor < MOST_BEHIND for client in steering)
        return now > self._come_back_by or self.ring.end - self.ring.start < MOST_BEHIND

    def read(self, end: int) -> bytes:
        """Read what its programs said on a descriptor; empty at its end or if there is nothing now."""
        try:
            output = os.read(end, CHUNK)
        except BlockingIOError:
            return b""
        except OSError:  # a terminal that no process has open any more
            output = b""
        if not output:
            del self.outputs[end]
            if end != self.input:
                os.close(end)
            return b""
        self.active_s = time.monotonic()
        kind = self.outputs[end]
        if len(self.stdio.outputs) > 1 and kind == list(self.stdio.outputs.values())[1]:
            self._note_error(len(output))
        self.ring.add(kind, output)
        self.ring.trim(min((c.cursor for c in self.clients if not c.only_watches), default=self.ring.end))
        return output

    def _note_error(self, size: int) -> None:
        at = self.ring.end
        if self.errors and self.errors[-1][1] == at:
            self.errors[-1][1] = at + size
        elif len(self.errors) < 10_000:
            self.errors.append([at, at + size])

    def received(self, key: str) -> int:
        """Return how many bytes of input a client has sent over all of its connections."""
        return self._received.get(key, 0)

    def take(self, key: str, typed: bytes) -> int:
        """Take input of a client; return how much of it has come in all."""
        self.active_s = time.monotonic()
        total = self._received.pop(key, 0) + len(typed)
        self._received[key] = total
        while len(self._received) > MOST_CLIENTS_KNOWN:
            del self._received[next(iter(self._received))]
        if self.input >= 0 and not self._ends_input:
            self.waiting += typed
            self.write()
        return total

    def end_input(self) -> None:
        """Tell its programs that there is no more input."""
        if self.stdio.tty:
            self.waiting += _END_OF_FILE
        else:
            self._ends_input = True
        self.write()

    def write(self) -> None:
        """Write as much of the input as its programs take now."""
        if self.input < 0:
            return
        try:
            while self.waiting:
                written = os.write(self.input, self.waiting[:CHUNK])
                del self.waiting[:written]
        except BlockingIOError:
            return
        except OSError:  # they read no more
            self.waiting.clear()
            self._ends_input = self._ends_input or not self.stdio.tty
        if self._ends_input and not self.waiting:
            os.close(self.input)
            self.input = -1

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of its terminal."""
        if self.stdio.tty and self.input >= 0:
            with contextlib.suppress(OSError):
                set_size(self.input, rows, columns)

    def signal(self, name: str) -> None:
        """Send a signal to its programs."""
        if name in _SIGNALS:
            self._send(getattr(signal, f"SIG{name}"))

    def hang_up(self) -> None:
        """End its programs as a terminal that is closed does."""
        self._send(signal.SIGHUP)
        self._send(signal.SIGCONT)

    def kill(self) -> None:
        """End its programs."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        TaskProcesses(self.pid, self.start, "").signal_group(number)

    def joined(self, client: HostClient) -> None:
        """Note a client that takes part."""
        self.clients.add(client)
        self._come_back_by, self.lost_s = 0.0, None

    def left(self, client: HostClient, *, on_purpose: bool) -> None:
        """Note that a client has left; one that was lost is waited for."""
        self.clients.discard(client)
        if not client.only_watches and not on_purpose:
            self._come_back_by = time.monotonic() + COMES_BACK_S
        if not self.clients:
            self.lost_s = time.monotonic()

    def close(self) -> None:
        """Close what is open."""
        for end in {self.input, *self.outputs} - {-1}:
            with contextlib.suppress(OSError):
                os.close(end)
        self.outputs, self.input = {}, -1
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
