"""The files that a job wrote to its own folder: listed and opened without ever leaving that folder.

The folder is the job's: at any moment any part of it may become a link, a pipe or a device. Every path is therefore
opened component by component, relative to the open folder above it, and only regular files are read.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.store.run_folder import shared_folder

MOST_LISTED = 10_000
MOST_LOOKED_AT = 100_000
"""Entries that one listing looks at, however few of them it shows."""
DEEPEST = 64
MOST_PATH = 4096
SERVICES = ".services"
"""The folder of files by which a job says what its services listen on; no artefacts."""
SERVICE = re.compile(r"[a-z][a-z0-9-]{0,30}")
MOST_SERVICES = 100
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NoArtefact(RotaError):
    """There is no such file, or it is none that can be fetched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artefact:
    """A file that a job wrote."""

    path: str
    size: int
    modified_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Files below a folder, by path; `left_out` are those that can't be fetched, `is_cut` says that there are more."""

    files: list[Artefact]
    left_out: int
    is_cut: bool


def parts_of(path: str) -> tuple[str, ...]:
    """Return the components of a path below a job's folder; raises `NoArtefact` for one that could lead out of it."""
    if len(path) > MOST_PATH or "\0" in path:
        raise NoArtefact(f"{path[:60]!r} is no path")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts or path.startswith("/"):
        raise NoArtefact(f"{path[:200]!r} leads out of the job's folder; give a path below it")
    if len(parts) > DEEPEST:
        raise NoArtefact(f"the path has {len(parts)} folders; at most {DEEPEST} are looked into")
    return parts


def list_artefacts(home: Path, job_id: JobId, below: str = "") -> Listing:
    """Return the files below a folder of a job, or the one that the path names. Links are left out."""
    parts = parts_of(below)
    found: list[Artefact] = []
    left_out = looked_at = 0
    is_cut = False
    try:
        with _opened(home, job_id, parts[:-1]) as folder:
            if parts and not stat.S_ISDIR(os.stat(parts[-1], dir_fd=folder, follow_symlinks=False).st_mode):
                with opened_artefact(home, job_id, below) as (_, artefact):
                    return Listing(files=[artefact], left_out=0, is_cut=False)
            owner = _owner(home, job_id)
        pending = [parts]
        while pending and not is_cut:
            at = pending.pop()
            try:
                with _opened(home, job_id, at) as folder, os.scandir(folder) as entries:
                    for entry in entries:
                        looked_at += 1
                        if looked_at > MOST_LOOKED_AT or len(found) >= MOST_LISTED:
                            is_cut = True
                            break
                        status = entry.stat(follow_symlinks=False)
                        if not at and entry.name == SERVICES:
                            continue
                        if stat.S_ISDIR(status.st_mode) and len(at) < DEEPEST:
                            pending.append((*at, entry.name))
                        elif _can_be_fetched(status, owner) and _is_text(entry.name):
                            path = "/".join((*at, entry.name))
                            found.append(Artefact(path=path, size=status.st_size, modified_s=status.st_mtime))
                        else:
                            left_out += 1
            except OSError:  # it was removed or replaced meanwhile
                left_out += 1
    except FileNotFoundError:
        if parts:
            raise NoArtefact(f"job {job_id} has no file {below[:200]!r}") from None
    except OSError as error:
        raise NoArtefact(f"{below[:200]!r} of job {job_id} can't be listed: {_why(error)}") from error
    return Listing(files=sorted(found, key=lambda each: each.path), left_out=left_out, is_cut=is_cut)


def list_services(home: Path, job_id: JobId) -> list[str]:
    """Return the names of a job's services, as it states them itself; see `rota.api.proxy`."""
    try:
        with _opened(home, job_id, (SERVICES,)) as folder, os.scandir(folder) as entries:
            names = [entry.name for _, entry in zip(range(MOST_SERVICES), entries, strict=False)]
    except OSError:
        return []
    return sorted(name for name in names if SERVICE.fullmatch(name))


@contextmanager
def opened_artefact(home: Path, job_id: JobId, path: str) -> Iterator[tuple[int, Artefact]]:
    """Open a file of a job for reading; raises `NoArtefact` for whatever is no regular file of its folder."""
    parts = parts_of(path)
    if not parts:
        raise NoArtefact("no path is given; name a file of the job")
    try:
        with _opened(home, job_id, parts[:-1]) as folder:
            file = os.open(parts[-1], _FILE, dir_fd=folder)
    except FileNotFoundError:
        raise NoArtefact(f"job {job_id} has no file {path[:200]!r}") from None
    except OSError as error:
        raise NoArtefact(f"{path[:200]!r} of job {job_id} can't be read: {_why(error)}") from error
    try:
        status = os.fstat(file)
        if not _can_be_fetched(status, _owner(home, job_id)):
            raise NoArtefact(f"{path[:200]!r} of job {job_id} can't be read: it is no regular file of the job")
        yield file, Artefact(path="/".join(parts), size=status.st_size, modified_s=status.st_mtime)
    finally:
        os.close(file)


def _can_be_fetched(status: os.stat_result, owner: int) -> bool:
    """Whether it is a regular file, and not a hard link to one of another user."""
    return stat.S_ISREG(status.st_mode) and (status.st_nlink == 1 or status.st_uid == owner)


def _owner(home: Path, job_id: JobId) -> int:
    return os.stat(shared_folder(home, job_id), follow_symlinks=False).st_uid


@contextmanager
def _opened(home: Path, job_id: JobId, parts: tuple[str, ...]) -> Iterator[int]:
    """A folder of a job, opened component by component without following links."""
    folder = os.open(shared_folder(home, job_id), _FOLDER)
    try:
        for part in parts:
            below = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def _is_text(name: str) -> bool:
    """Whether a name can be sent as text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _why(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "a part of the path is a link or no folder"
    return error.strerror or "the system refused"
