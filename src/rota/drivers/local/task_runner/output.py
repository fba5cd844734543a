"""The output of a task, kept in files of bounded size."""

from __future__ import annotations

import os


class OutputFiles:
    """The output of a task, in files named by offset; the oldest are deleted when there are too many.

    When the disk is full the task continues: lost output is counted, and reported when there is room again.
    """

    def __init__(self, most_bytes: int, most_files: int, *, goes_on: bool = False) -> None:
        """`goes_on`: after what an earlier supervisor of the same task has kept."""
        self._most_bytes = most_bytes
        self._most_files = most_files
        self._at = _end() if goes_on else 0
        self._begun = 0
        self._lost = 0
        self._file = -1

    def write(self, output: bytes) -> None:
        """Append."""
        try:
            if self._file < 0 or self._at - self._begun >= self._most_bytes:
                self._turn()
            if self._lost:
                output = b"\n[%d bytes were lost: the disk was full]\n" % self._lost + output
            kept = os.write(self._file, output)
        except OSError:
            self._lost += len(output)
            return
        self._lost = 0
        self._at += kept
        if kept < len(output):
            self.write(output[kept:])

    def close(self) -> None:
        """Close the present file."""
        if self._file >= 0:
            os.close(self._file)

    def _turn(self) -> None:
        self.close()
        self._begun = self._at
        self._file = os.open(f"output-{self._at:015d}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for name in _kept()[: -self._most_files]:
            os.unlink(name)


def _kept() -> list[str]:
    return sorted(name for name in os.listdir(".") if name.startswith("output-"))


def _end() -> int:
    """The offset at which the output that was kept ends."""
    kept = _kept()
    return int(kept[-1].removeprefix("output-").removesuffix(".log")) + os.stat(kept[-1]).st_size if kept else 0
