"""Ports for servers that tests start, which nothing else takes between the choice and the start."""

from __future__ import annotations

import fcntl
import itertools
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import TextIO

FIRST, LAST = 18_000, 31_999
"""Below the ports that the kernel gives to connections and to servers that take any."""
_HELD: list[TextIO] = []
"""The locks of this process; they end with it."""


def free_port() -> int:
    """A port of the loopback interface that is free, and that no other test process chooses while this one lives."""
    folder = Path(tempfile.gettempdir(), f"rota-test-ports-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    first = random.SystemRandom().randrange(FIRST, LAST)
    for port in itertools.chain(range(first, LAST), range(FIRST, first)):
        lock = (folder / str(port)).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
        else:
            _HELD.append(lock)
            return port
    raise AssertionError("no port is free")
