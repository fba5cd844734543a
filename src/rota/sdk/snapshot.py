"""Packs a folder of code, so that what a job ran can be looked at and run again; standard library only.

The same files give the same archive on every machine: names are sorted, times and owners are dropped. In a Git work
tree that is what Git tracks or would track; elsewhere all but what `.rotaignore` names and what tools leave behind.
"""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import os
import re
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rota.core.errors import RotaError

Json = dict[str, Any]
MOST_BYTES = 256 << 20
CHUNK = 1 << 20
MOST_FILES = 50_000
IGNORE_FILE = ".rotaignore"
LEFT_BEHIND = (".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache")
_CREDENTIALS = re.compile(r"(?<=://)[^/@]*@")


@dataclass(frozen=True)  # without slots and keywords, for Python 3.9
class PackedCode:
    """A packed folder: the archive, its digest, and where the code comes from."""

    archive: IO[bytes]
    digest: str
    size: int
    files: int
    origin: Json
    """Commit, branch and remote of Git, and whether the files differ from the commit; empty outside of Git."""

    def described(self) -> Json:
        """The field `snapshot` of a job file."""
        return {"digest": self.digest, "files": self.files, **self.origin}


@contextmanager
def pack(folder: Path) -> Iterator[PackedCode]:
    """Pack a folder, for as long as the context lasts; raises a `RotaError` if there is nothing in it, or too much."""
    if not folder.is_dir():
        raise RotaError(f"--snapshot: {folder} is not a folder; run it where the code is, or give the job a workdir")
    names = sorted(_names(folder))
    if not names:
        raise RotaError(f"--snapshot: {folder} has no files to pack")
    if len(names) > MOST_FILES:
        raise RotaError(
            f"--snapshot: {folder} has {len(names)} files, more than {MOST_FILES}; "
            f"name what is no code in {folder / IGNORE_FILE}, or keep it in a data set"
        )
    with tempfile.TemporaryFile() as archive:
        _write(archive, folder, names)
        size = archive.tell()
        archive.seek(0)
        digest = hashlib.sha256()
        while part := archive.read(CHUNK):
            digest.update(part)
        archive.seek(0)
        yield PackedCode(
            archive=archive, digest=digest.hexdigest(), size=size, files=len(names), origin=_origin(folder)
        )


def _write(archive: IO[bytes], folder: Path, names: Sequence[str]) -> None:
    with (
        gzip.GzipFile(fileobj=archive, mode="wb", mtime=0, filename="", compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in names:
            _add(tar, folder, name)
            if archive.tell() > MOST_BYTES:
                raise RotaError(
                    f"--snapshot: {folder} packs to more than {MOST_BYTES >> 20} MiB at {name}; "
                    f"name what is no code in {folder / IGNORE_FILE}, or keep it in a data set"
                )


def _add(tar: tarfile.TarFile, folder: Path, name: str) -> None:
    path = folder / name
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(path)
            if os.path.isabs(target) or not _stays(os.path.join(os.path.dirname(name), target)):
                raise RotaError(f"--snapshot: {name} is a link to {target}, outside of {folder}; remove or replace it")
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
            tar.addfile(entry)
            return
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = status.st_size, 0o755 if status.st_mode & 0o100 else 0o644
            tar.addfile(entry, file)
    except OSError as error:
        raise RotaError(f"--snapshot: {path} can't be read: {error.strerror or error}") from error


def _stays(path: str) -> bool:
    inside = os.path.normpath(path)
    return inside != ".." and not inside.startswith("../")


def _names(folder: Path) -> Iterator[str]:
    """The files and links to pack, relative to the folder."""
    tracked = _git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    patterns = _patterns(folder)
    if tracked is None:
        yield from _walked(folder, "", (*LEFT_BEHIND, *patterns))
        return
    for name in dict.fromkeys(tracked.split("\0")):
        path = folder / name
        if not name or _is_ignored(name, patterns):
            continue
        if path.is_dir() and not path.is_symlink():  # a submodule
            yield from _walked(folder, name, (*LEFT_BEHIND, *patterns))
        elif os.path.lexists(path) and _is_packed(path):
            yield name


def _walked(folder: Path, below: str, patterns: tuple[str, ...]) -> Iterator[str]:
    for entry in os.scandir(folder / below):
        name = f"{below}/{entry.name}" if below else entry.name
        if _is_ignored(name, patterns):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walked(folder, name, patterns)
        elif _is_packed(Path(entry.path)):
            yield name


def _is_packed(path: Path) -> bool:
    mode = path.lstat().st_mode
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _patterns(folder: Path) -> tuple[str, ...]:
    """The patterns of the ignore file: a name anywhere, or with a slash a path from the folder."""
    try:
        lines = (folder / IGNORE_FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise RotaError(f"--snapshot: {folder / IGNORE_FILE} can't be read: {error}") from error
    return tuple(line.strip().rstrip("/") for line in lines if line.strip() and not line.startswith("#"))


def _is_ignored(name: str, patterns: tuple[str, ...]) -> bool:
    parts = name.split("/")
    heads = ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
    for pattern in patterns:
        if "/" in pattern.strip("/"):
            if any(fnmatch.fnmatchcase(head, pattern.lstrip("/")) for head in heads):
                return True
        elif any(fnmatch.fnmatchcase(part, pattern.lstrip("/")) for part in parts):
            return True
    return False


def _origin(folder: Path) -> Json:
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return {}
    found: Json = {"commit": commit.strip(), "dirty": bool(_git(folder, "status", "--porcelain", "--", "."))}
    branch = (_git(folder, "rev-parse", "--abbrev-ref", "HEAD") or "").strip()
    if branch and branch != "HEAD":
        found["branch"] = branch
    remote = (_git(folder, "config", "--get", "remote.origin.url") or "").strip()
    if remote:
        found["remote"] = _CREDENTIALS.sub("", remote)
    return found


def _git(folder: Path, *words: str) -> str | None:
    """What Git answers; None where there is no Git, or no work tree."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, stdin=subprocess.DEVNULL, check=False
        )
    except OSError:
        return None
    return done.stdout.decode("utf-8", "surrogateescape") if done.returncode == 0 else None
