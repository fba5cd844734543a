"""How much a task has written to the folders that are its own, and what its output takes."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rota.drivers.local.task_runner.files import Json

EVERY_S = 1.0
MOST_EVERY_S = 10.0
BYTES_PER_S = 1 << 30
"""How fast a task is taken to write at most: far below its limit, its folders are looked at less often."""
FILE_BYTES = 16384
"""What a file counts at least, however small: a file system has about one inode for so many bytes."""
SHARE = 20
"""A look takes at most this fraction of the time: folders with many files are looked at less often."""


class ScratchWatch:
    """Compares what is in some folders with a limit, at intervals."""

    def __init__(self, limit_bytes: int, folders: Sequence[str], mark: str = "") -> None:
        """`mark` is a file by which the manager says that the disk is full, and that this task has the most of it."""
        self._limit_bytes = limit_bytes
        self._mark = mark
        self._folders = folders
        self._due = time.monotonic() + EVERY_S

    def due_in_s(self, now: float) -> float:
        """Return how long until the next look."""
        return 0.0 if self._is_marked() else self._due - now

    def _is_marked(self) -> bool:
        return bool(self._mark) and os.path.exists(self._mark)

    def is_over(self, processes: Iterable[int]) -> bool:
        """Look; return whether there is more than the limit. Deleted files count while a process has them open."""
        if self._is_marked():
            return True
        begun = time.monotonic()
        used = used_bytes(self._folders, processes, self._limit_bytes)
        far_s = min((self._limit_bytes - used) / BYTES_PER_S, MOST_EVERY_S)
        self._due = time.monotonic() + max(EVERY_S, far_s, SHARE * (time.monotonic() - begun))
        return used > self._limit_bytes


def watch_scratch(task: Json) -> ScratchWatch | None:
    """Return the watcher of a task's folders; None if it has no limit, or the file system keeps it."""
    order = task.get("scratch")
    return ScratchWatch(int(order["bytes"]), order["folders"], order.get("mark", "")) if order else None


def used_bytes(folders: Iterable[str], processes: Iterable[int], enough: int) -> int:
    """Return the space that the files in folders take, each file once; links are not followed. Stops above `enough`.

    Folders that are nested too deeply to be looked into count as more than enough.
    """
    seen: set[tuple[int, int]] = set()
    devices: set[int] = set()
    total = 0
    for folder in folders:
        with contextlib.suppress(OSError):
            devices.add(os.stat(folder).st_dev)
        try:
            for found in _files(folder):
                if (found.st_dev, found.st_ino) not in seen:
                    seen.add((found.st_dev, found.st_ino))
                    total += max(found.st_blocks * 512, FILE_BYTES)
                if total > enough:
                    return total
        except TooDeep:
            return enough + 1
    for pid in processes:
        for found in (*_deleted(pid), *_mapped(pid)):
            if found.st_dev in devices and (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * 512
    return total


class TooDeep(Exception):
    """A path is longer than the kernel takes: what is below can't be looked at."""


def _files(folder: str) -> Iterable[os.stat_result]:
    pending = [folder]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        yield entry.stat(follow_symlinks=False)
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
        except OSError as error:  # it is gone, or too deep
            if error.errno == errno.ENAMETOOLONG:
                raise TooDeep from error


def _mapped(pid: int) -> Iterable[os.stat_result]:
    """The files that a process has in memory and that no folder names any more."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
            spans = {line.split(" ", 1)[0] for line in maps if line.endswith(" (deleted)\n")}
    except OSError:
        return
    for span in spans:
        with contextlib.suppress(OSError):
            found = os.stat(f"/proc/{pid}/map_files/{span}")
            if found.st_nlink == 0 and stat.S_ISREG(found.st_mode):
                yield found


def _deleted(pid: int) -> Iterable[os.stat_result]:
    """The files that a process has open and that no folder names any more."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            found = os.stat(f"/proc/{pid}/fd/{name}")
            if found.st_nlink == 0 and stat.S_ISREG(found.st_mode):
                yield found
