"""The cache of objects from buckets: one entry for each data set, with versions that jobs use and that do not change.

`objects` of an entry holds each object once, by the digest of its name, size and tag. A version is a folder of hard
links to them. What a job uses is pinned by a file in its name; only versions without pins are evicted, the longest
unused first.
All of it is safe against other processes and their sudden end: what is incomplete has another name.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from rota.core.errors import RotaError
from rota.core.model.job import JobId

FOLDER = "buckets"
SALT = ".salt"
SPARE_PART = 0.02
"""The fraction of a disk that fetches leave free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """An object in a bucket. `tag` changes when its content does."""

    remote: str
    path: str
    size: int
    tag: str

    @property
    def key(self) -> str:
        """Its name in the cache."""
        return hashlib.sha256(json.dumps([self.path, self.size, self.tag]).encode()).hexdigest()


def version_of(files: Collection[RemoteFile]) -> str:
    """Return the name of the version that consists of these files."""
    return hashlib.sha256("\n".join(sorted(each.key for each in files)).encode()).hexdigest()[:32]


def pin_of(job_id: JobId, attempt: int) -> str:
    """Return in which name an attempt of a job keeps versions."""
    return f"{job_id}.{attempt}"


class BucketCache:
    """The cache in a manager's folder."""

    def __init__(self, home: Path, limit_bytes: int) -> None:
        self._folder = home / FOLDER
        self._limit_bytes = limit_bytes

    def entry(self, url: str, options: str) -> CacheEntry:
        """Return the entry of a data set; its name can't be guessed by tasks that pass through the folder."""
        self._folder.mkdir(mode=0o711, exist_ok=True)
        self._folder.chmod(0o711)
        with self._locked():
            salt = self._folder / SALT
            if not salt.exists():
                draft = self._folder / f"{SALT}.{os.getpid()}"
                draft.touch(mode=0o600)
                draft.write_text(secrets.token_hex(32), encoding="ascii")
                draft.replace(salt)
            digest = hashlib.sha256(f"{salt.read_text(encoding='ascii')} {url} {options}".encode())
        return CacheEntry(self._folder / digest.hexdigest()[:40])

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with _lock(self._folder / ".lock"):
            yield

    def reserve(self, entry: CacheEntry, more_bytes: int) -> None:
        """Make room for what is fetched into an entry; raises a `RotaError` if there can be none."""
        with self._locked():
            used = sum(each.used_bytes for each in self._entries() if each.folder != entry.folder)
            wanted = entry.held_bytes + more_bytes
            if used + wanted > self._limit_bytes:
                used -= self._evict(used + wanted - self._limit_bytes)
                wanted = entry.held_bytes + more_bytes
            if used + wanted > self._limit_bytes:
                raise RotaError(
                    f"it needs {_gib(wanted)}, and the cache may hold {_gib(self._limit_bytes)} (data_cache), of which "
                    f"running jobs use {_gib(used)}"
                )
            disk = shutil.disk_usage(self._folder)
            if more_bytes > disk.free - SPARE_PART * disk.total:
                raise RotaError(f"it needs {_gib(more_bytes)}, and the disk of the cache has {_gib(disk.free)} left")
            entry.note_reserved(wanted)

    def _evict(self, wanted: int) -> int:
        """Remove versions that no job uses, the longest unused first; return how many bytes became free."""
        unused = sorted((used_s, each, name) for each in self._entries() for name, used_s in each.unused())
        freed = 0
        for _, entry, name in unused:
            if freed >= wanted:
                break
            before = entry.used_bytes
            entry.remove(name)
            freed += before - entry.used_bytes
        return freed

    def pin(self, entry: CacheEntry, version: str, user: str) -> bool:
        """Keep a version for a job's attempt; return whether it is there."""
        with self._locked():
            return entry.pin(version, user)

    def unpin(self, keep: Collection[str] | None = None, user: str | None = None) -> None:
        """Give up the pins of one attempt, or of all but some."""
        if not self._folder.is_dir():
            return
        with self._locked():
            for entry in self._entries():
                for each in (entry.folder / "pins").glob("*/*"):
                    if each.name == user or (keep is not None and each.name not in keep):
                        each.unlink(missing_ok=True)

    def _entries(self) -> list[CacheEntry]:
        return [CacheEntry(each) for each in sorted(self._folder.iterdir()) if each.is_dir()]


@dataclass(frozen=True, slots=True, order=True)
class CacheEntry:
    """What is there of one data set."""

    folder: Path

    @property
    def _objects(self) -> Path:
        return self.folder / "objects"

    def make(self) -> None:
        """Make its folders."""
        for each in (self.folder, self._objects, self.folder / "versions", self.folder / "pins"):
            each.mkdir(mode=0o711, exist_ok=True)
            each.chmod(0o711)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only process that fetches into it. The lock is gone with its process."""
        self.make()
        with _lock(self.folder / ".lock"):
            try:
                yield
            finally:
                (self.folder / "reserved").unlink(missing_ok=True)

    @property
    def held_bytes(self) -> int:
        """What its objects take, those included that are being written."""
        held = 0
        with contextlib.suppress(FileNotFoundError), os.scandir(self._objects) as found:
            for each in found:
                with contextlib.suppress(FileNotFoundError):  # another process has completed or removed it meanwhile
                    held += each.stat(follow_symlinks=False).st_size
        return held

    @property
    def used_bytes(self) -> int:
        """What it takes, or will take when its present fetch is through."""
        reserved = 0
        with contextlib.suppress(FileNotFoundError, ValueError):
            reserved = int((self.folder / "reserved").read_text(encoding="ascii"))
        return max(self.held_bytes, reserved)

    def note_reserved(self, size: int) -> None:
        """Note how much it will take."""
        (self.folder / "reserved").write_text(str(size), encoding="ascii")

    def place(self, file: RemoteFile) -> Path:
        """Return where an object is once it is complete."""
        return self._objects / file.key

    def draft(self, file: RemoteFile) -> Path:
        """Return where an object is written."""
        return self._objects / f"{file.key}.part"

    def path(self, version: str) -> Path:
        """Return the folder of a version."""
        return self.folder / "versions" / version

    def assemble(self, files: Collection[RemoteFile]) -> str:
        """Make a version of objects that are all there; return its name."""
        name = version_of(files)
        final = self.path(name)
        if final.is_dir():
            return name
        draft = self.folder / "versions" / f"{name}.part"
        _remove(draft)
        draft.mkdir(mode=0o755)
        for each in files:
            target = draft / each.path
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(self.place(each), target)
        for folder, _, _ in os.walk(draft):
            os.chmod(folder, 0o555)  # a job that added a file would add it to the data of all later jobs
        draft.replace(final)
        return name

    def pin(self, version: str, user: str) -> bool:
        """Keep a version for a user of it."""
        if not self.path(version).is_dir():
            return False
        pins = self.folder / "pins" / version
        pins.mkdir(mode=0o700, exist_ok=True)
        (pins / user).touch()
        os.utime(pins)
        return True

    def unused(self) -> list[tuple[str, float]]:
        """Return the versions without pins, and when each was used last."""
        found = []
        for each in self.folder.glob("versions/*"):
            pins = self.folder / "pins" / each.name
            if not (pins.is_dir() and any(pins.iterdir())):
                found.append((each.name, pins.stat().st_mtime if pins.is_dir() else each.stat().st_mtime))
        return found

    def remove(self, version: str) -> None:
        """Remove a version and the objects that no other has, unless objects are being fetched now."""
        gone = self.folder / "versions" / f"{version}.gone"
        with contextlib.suppress(FileNotFoundError):
            self.path(version).replace(gone)
        _remove(gone)
        shutil.rmtree(self.folder / "pins" / version, ignore_errors=True)
        with contextlib.suppress(BlockingIOError), _lock(self.folder / ".lock", waits=False):
            self.sweep()

    def sweep(self, keep: Collection[str] = ()) -> None:
        """Remove objects that no version has, but for some; for the process that has the lock."""
        for each in self._objects.iterdir():
            if each.name not in keep and each.stat().st_nlink == 1:
                each.unlink(missing_ok=True)


@contextlib.contextmanager
def _lock(path: Path, *, waits: bool = True) -> Iterator[None]:
    end = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(end, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        yield
    finally:
        os.close(end)


def _gib(size: float) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 28 else f"{size / (1 << 20):.1f} MiB"


def _remove(version: Path) -> None:
    """Remove the folder of a version, in whose folders nothing can be changed."""
    for folder, _, _ in os.walk(version):
        os.chmod(folder, 0o755)
    shutil.rmtree(version, ignore_errors=True)
