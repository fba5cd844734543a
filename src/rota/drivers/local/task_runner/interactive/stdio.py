"""The standard streams of a task or a command: a terminal, or pipes."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios

from rota.drivers.local.task_runner.interactive.frames import ERROR_OUTPUT, OUTPUT

ROWS, COLUMNS = 24, 80
MOST_ROWS = 10_000


class Stdio:
    """Both ends of the standard streams: `its` three descriptors, and ours to write to and to read from."""

    def __init__(self, *, tty: bool, rows: int = ROWS, columns: int = COLUMNS) -> None:
        self.tty = tty
        if tty:
            master, slave = pty.openpty()
            set_size(master, rows, columns)
            self.its = (slave, slave, slave)
            self.input, self.outputs = master, {master: OUTPUT}
        else:
            its_input, self.input = os.pipe()
            output, its_output = os.pipe()
            errors, its_errors = os.pipe()
            self.its = (its_input, its_output, its_errors)
            self.outputs = {output: OUTPUT, errors: ERROR_OUTPUT}

    def ours(self) -> set[int]:
        """The descriptors of our end."""
        return {self.input, *self.outputs}

    def close_its(self) -> None:
        """Close the other end, once the process has it."""
        for end in set(self.its):
            os.close(end)

    def close_ours(self) -> None:
        """Close our end."""
        for end in self.ours():
            os.close(end)


def set_size(master: int, rows: int, columns: int) -> None:
    """Set the size of a terminal; its programs get SIGWINCH."""
    rows, columns = (min(max(each, 1), MOST_ROWS) for each in (rows, columns))
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def make_controlling(slave: int) -> None:
    """Make a terminal that of this process, which has just begun a session."""
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
