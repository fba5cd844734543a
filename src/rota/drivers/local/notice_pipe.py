"""The pipe on which supervisors report that something changed in their folders."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

MOST_BYTES = 4096
"""How much is read at once: the notices of some fifty tasks, so that other work is done between them."""


class NoticePipe:
    """Reads the tokens of tasks whose folder changed. One pipe outlives its reader's process only as a name."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop, take: Callable[[Sequence[str]], None]) -> None:
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        self._loop = loop
        self._take = take
        self._unread = b""
        self._end = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        loop.add_reader(self._end, self._read)

    def close(self) -> None:
        """Stop reading."""
        self._loop.remove_reader(self._end)
        os.close(self._end)

    def _read(self) -> None:
        lines = (self._unread + os.read(self._end, MOST_BYTES)).split(b"\n")
        self._unread = lines.pop()
        self._take([line.decode("utf-8", errors="replace") for line in lines])
