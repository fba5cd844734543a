"""Unpacks the code of a job as its working directory: once for all of its tasks and attempts, as the job's user."""

from __future__ import annotations

import contextlib
import fcntl
import gzip  # here, not by `tarfile` when it is needed: then we are the job's user, who may not read it
import os
import shutil
import tarfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

CODE, LOCK = "code", ".code.lock"
"""In the folder that is a job's own."""


def open_archive(path: str) -> IO[bytes]:
    """Open an archive, while the manager's files can still be read."""
    return open(path, "rb")  # `unpack` closes it


def unpack(archive: IO[bytes], folder: str) -> None:
    """Unpack an archive as a folder, unless another task of the job has; the tasks of a gang wait for the first."""
    lock = os.open(os.path.join(os.path.dirname(folder), LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(folder):
            return
        draft = f"{folder}.draft"
        with contextlib.suppress(FileNotFoundError):  # a task was ended while it unpacked
            shutil.rmtree(draft)
        os.mkdir(draft)
        with archive, gzip.GzipFile(fileobj=archive) as plain, tarfile.open(fileobj=plain, mode="r:") as tar:
            for entry in tar:
                _refuse_strange(entry)
                tar.extract(entry, draft, set_attrs=False)
                if entry.isreg() and entry.mode & 0o100:
                    os.chmod(os.path.join(draft, entry.name), 0o755)
        os.rename(draft, folder)
    finally:
        os.close(lock)


def _refuse_strange(entry: tarfile.TarInfo) -> None:
    """Raise an `OSError` for what leads out of the folder, or is neither file, folder nor link."""
    beside = os.path.join(os.path.dirname(entry.name), entry.linkname) if entry.issym() else ""
    for path in (entry.name, beside):
        if os.path.isabs(path) or os.path.normpath(path).split("/")[0] == "..":
            raise OSError(f"the snapshot holds {entry.name!r}, which leads out of it")
    if not (entry.isreg() or entry.isdir() or entry.issym()):
        raise OSError(f"the snapshot holds {entry.name!r}, which is no file")
