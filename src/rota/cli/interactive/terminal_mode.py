"""The user's terminal while a session has it: raw, with its size, and as before afterwards."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
import tty
from collections.abc import Iterator

HELP = (
    b"\r\nSupported escapes, after Enter:\r\n  ~.  leave; the job goes on\r\n  ~?  this list\r\n"
    b"  ~~  send the escape character\r\n"
)


def is_terminal() -> bool:
    """Whether the user types at a terminal and reads from one."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def size() -> list[int]:
    """The rows and columns of the user's terminal."""
    with contextlib.suppress(OSError):
        found = os.get_terminal_size(0)
        return [found.lines, found.columns]
    return [24, 80]


@contextlib.contextmanager
def raw() -> Iterator[None]:
    """Pass every key on as it is, until the block ends."""
    before = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


class Escapes:
    """Finds `~.` and the like at the beginning of a line, as ssh has them."""

    def __init__(self) -> None:
        self._is_line_begin = True
        self._is_escape = False

    def read(self, typed: bytes) -> tuple[bytes, str]:
        """Return what to send of what was typed, and `leave` or `help` if the user asks for that."""
        sent = bytearray()
        for at in range(len(typed)):
            key = typed[at : at + 1]
            if self._is_escape:
                self._is_escape = False
                if key == b".":
                    return bytes(sent), "leave"
                if key == b"?":
                    return bytes(sent), "help"
                if key != b"~":
                    sent += b"~"
                sent += key
                self._is_line_begin = key in b"\r\n"
            elif key == b"~" and self._is_line_begin:
                self._is_escape = True
            else:
                sent += key
                self._is_line_begin = key in b"\r\n"
        return bytes(sent), ""
