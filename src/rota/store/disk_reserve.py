"""A reserve of disk space: released when the disk is full, so that ends of jobs can still be stored."""

from __future__ import annotations

import os
from pathlib import Path

RESERVE_BYTES = 8 << 20
LEAST_BYTES = 4 << 20
"""With less free space than this nothing new is accepted."""


class DiskReserve:
    """A file of fixed size beside the database. While it is released, the disk counts as full."""

    def __init__(self, home: Path, size: int = RESERVE_BYTES) -> None:
        self._home = home
        self._path = home / "reserve"
        self._size = size
        self._is_whole = False
        self.make()

    def make(self) -> bool:
        """Allocate the reserve if there is enough space for it and as much again; return whether it is there."""
        if not self._is_whole and self._has_room():
            try:
                file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    os.posix_fallocate(file, 0, self._size)
                finally:
                    os.close(file)
                self._is_whole = True
            except OSError:
                self.release()
        return self._is_whole

    def release(self) -> bool:
        """Give the space back to the disk; return whether there was any to give."""
        had, self._is_whole = self._is_whole, False
        try:
            self._path.unlink(missing_ok=True)
        except OSError:
            return False
        return had

    def shortage(self) -> str | None:
        """Return why nothing new should be accepted; None if there is space."""
        free = self._free()
        if free is None or (self._is_whole and free >= LEAST_BYTES):
            return None
        return f"the disk of {self._home} is full: {max(free, 0) >> 20} MiB are free"

    def _has_room(self) -> bool:
        free, there = self._free(), self._path.stat().st_blocks * 512 if self._path.exists() else 0
        return free is not None and free + there >= 2 * self._size

    def _free(self) -> int | None:
        """Return the free bytes; None where they can't be known, as in a folder that was deleted."""
        try:
            found = os.statvfs(self._home)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize
