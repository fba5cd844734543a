"""A user at a terminal, for tests: `rota` with a pseudo-terminal as its standard streams."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence

import forked

QUIET = ["PS1=$ ", "PROMPT_COMMAND="]


class UserTerminal:
    """A command of `rota` at a terminal: what is typed, and what is shown."""

    def __init__(self, args: Sequence[str], env: Mapping[str, str], cwd: object = None) -> None:
        self._master, slave = pty.openpty()
        self.resize(24, 80)
        self.process: subprocess.Popen[bytes] = forked.popen(
            args, env={**env, "TERM": "xterm"}, cwd=cwd, stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)
        os.set_blocking(self._master, False)
        self.shown = b""
        self._seen = 0

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the window, and say so as a terminal emulator does."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if hasattr(self, "process"):
            self.process.send_signal(28)  # a terminal that is not the controlling one sends no SIGWINCH by itself

    def type(self, keys: bytes) -> None:
        """Press keys."""
        while keys:
            try:
                keys = keys[os.write(self._master, keys) :]
            except BlockingIOError:
                self._read(0.01)

    def see(self, text: bytes, *, within_s: float = 120.0) -> bytes:
        """Wait until a text is shown that was not waited for before; return what came before it."""
        deadline = time.monotonic() + within_s
        while text not in self.shown[self._seen :]:
            has_ended = self.process.poll() is not None
            if not self._read(0.2) and (has_ended or time.monotonic() > deadline):
                raise AssertionError(f"no {text!r} after {within_s} s in {self.shown[self._seen :]!r}")
        before, _, _ = self.shown[self._seen :].partition(text)
        self._seen += len(before) + len(text)
        return before

    def _read(self, wait_s: float) -> bool:
        if not select.select([self._master], [], [], wait_s)[0]:
            return False
        with contextlib.suppress(OSError):
            self.shown += os.read(self._master, 65536)
            return True
        time.sleep(wait_s)
        return False

    def ends(self, *, within_s: float = 120.0) -> int:
        """Wait for the command to end; return its status."""
        deadline = time.monotonic() + within_s
        while self.process.poll() is None:
            self._read(0.05)
            if time.monotonic() > deadline:
                raise AssertionError(f"it goes on; it shows {self.shown[self._seen :]!r}")
        while self._read(0.0):
            pass
        return int(self.process.returncode)

    def close(self) -> None:
        """End the command if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)
