"""Fetches the objects of a data set into the cache: what has changed, and nothing else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any

from rota.core.errors import RotaError, Unavailable
from rota.store.data.buckets.cache import BucketCache, CacheEntry, RemoteFile
from rota.store.data.buckets.url import missing_part

AT_ONCE = 8
MOST_FILES = 1_000_000
MOST_NAME = 255
TRIES = 3
"""How often an object is fetched that changes meanwhile."""
_TAGS = (
    "ETag",
    "etag",
    "md5Hash",
    "content_md5",
    "checksum",
    "generation",
    "LastModified",
    "last_modified",
    "mtime",
    "created",
)
"""What file systems call the mark of an object's content, the surest first."""
_GONE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
Told = Callable[[str, int, int], None]
"""Is told what is done, and how many bytes of how many are there."""


class Changed(Exception):
    """An object changed while it was fetched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A version of a data set in the cache."""

    path: Path
    files: int
    size: int
    fetched: int
    """How many bytes were fetched for it."""


class BucketFetch:
    """One fetch. `options` are those of the file system, with its credentials."""

    def __init__(self, url: str, options: Mapping[str, Any], told: Told = lambda *_: None) -> None:
        self._url = url
        self._options = dict(options)
        self._told = told
        self._done = self._total = 0
        self._counting = Lock()

    def run(self, cache: BucketCache, entry: CacheEntry, user: str) -> Fetched:
        """Bring the entry up to date and pin its version for a user; raises a `RotaError`, or `Unavailable`."""
        with entry.locked():
            for _ in range(TRIES):
                self._told("listing", 0, 0)
                with self._explained():
                    system, files = self._listed()
                missing = [each for each in files if not entry.place(each).exists()]
                entry.sweep({each.key for each in files})
                self._done, self._total = 0, sum(each.size for each in missing)
                cache.reserve(entry, self._total)
                self._told("fetching", 0, self._total)
                try:
                    with self._explained():
                        self._fetch(system, entry, missing)
                except Changed:
                    continue
                version = entry.assemble(files)
                if cache.pin(entry, version, user):
                    size = sum(each.size for each in files)
                    return Fetched(path=entry.path(version), files=len(files), size=size, fetched=self._total)
        raise Unavailable(f"{self._url} changes while it is fetched")

    def _listed(self) -> tuple[Any, list[RemoteFile]]:
        import fsspec

        scheme = self._url.partition("://")[0]
        missing = missing_part(scheme)
        if missing is not None:
            raise RotaError(missing)
        system, root = fsspec.core.url_to_fs(self._url, **{**self._options, "skip_instance_cache": True})
        system.invalidate_cache()
        root = root.rstrip("/")
        if system.isfile(root):
            found = {root: system.info(root)}
            base = root.rpartition("/")[0]
        else:
            found, base = system.find(root, detail=True), root
        files = [_remote(name, about, base) for name, about in found.items() if not _is_folder(name, about)]
        if not files:
            raise RotaError(f"there is nothing at {self._url}")
        _refuse_odd(files)
        return system, sorted(files, key=lambda each: each.path)

    def _fetch(self, system: Any, entry: CacheEntry, files: Collection[RemoteFile]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            work = [pool.submit(self._fetch_one, system, entry, each) for each in files]
            try:
                for each in work:
                    each.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _fetch_one(self, system: Any, entry: CacheEntry, file: RemoteFile) -> None:
        draft = entry.draft(file)
        system.get_file(file.remote, str(draft), callback=_Count(self._count))
        system.invalidate_cache(file.remote.rpartition("/")[0])
        system.invalidate_cache(file.remote)
        about = system.info(file.remote)
        if draft.stat().st_size != file.size or (int(about["size"] or 0), _tag(about)) != (file.size, file.tag):
            draft.unlink()
            raise Changed
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        draft.chmod(0o444)
        draft.replace(entry.place(file))

    def _count(self, size: int) -> None:
        with self._counting:
            self._done += size
            self._told("fetching", self._done, self._total)

    @contextlib.contextmanager
    def _explained(self) -> Any:
        """Turn what file systems raise into one line that shows no credentials."""
        try:
            yield
        except (RotaError, Changed, Unavailable):
            raise
        except PermissionError as error:
            raise RotaError(f"{self._url}: access is refused: {self._line(error)}; look at its secrets") from None
        except _GONE as error:
            raise RotaError(f"{self._url}: {self._line(error) or 'there is no such object'}") from None
        except OSError as error:
            raise Unavailable(f"{self._url}: {self._line(error)}") from None
        except Exception as error:  # of libraries of others: of an address, of credentials, of a service
            kind = RotaError if "redential" in str(error) + type(error).__name__ else Unavailable
            raise kind(f"{self._url}: {self._line(error)}") from None

    def _line(self, error: Exception) -> str:
        said = " ".join(str(error).split())[:400]
        for value in _texts(self._options):
            said = said.replace(value, "***")
        return said or type(error).__name__


class _Count:
    """What fsspec tells about the progress of an object."""

    def __new__(cls, told: Callable[[int], None]) -> Any:
        from fsspec.callbacks import Callback

        class Counted(Callback):  # type: ignore[misc]  # fsspec has no types
            def relative_update(self, inc: int = 1) -> None:
                told(inc)

        return Counted()


def _texts(value: object) -> list[str]:
    if isinstance(value, Mapping):
        return [text for each in value.values() for text in _texts(each)]
    return [value] if isinstance(value, str) and len(value) > 3 else []


def _is_folder(name: str, about: Mapping[str, Any]) -> bool:
    return about.get("type") == "directory" or (name.endswith("/") and not about.get("size"))


def _tag(about: Mapping[str, Any]) -> str:
    """Return what changes with the content of an object."""
    name = next((each for each in _TAGS if about.get(each) is not None), None)
    if name is None:
        return ""
    value = about[name]
    return f"{name}={value.timestamp() if isinstance(value, datetime) else value}"


def _remote(name: str, about: Mapping[str, Any], base: str) -> RemoteFile:
    path = name[len(base) :].lstrip("/") if name.startswith(base) else name.rpartition("/")[2]
    return RemoteFile(remote=name, path=path, size=int(about.get("size") or 0), tag=_tag(about))


def _refuse_odd(files: list[RemoteFile]) -> None:
    """Raise a `RotaError` for names that can't be those of files below one folder."""
    if len(files) > MOST_FILES:
        raise RotaError(f"it has {len(files)} objects; the maximum is {MOST_FILES}")
    paths = {each.path for each in files}
    for path in paths:
        parts = path.split("/")
        if any(part in ("", ".", "..") or "\0" in part or len(os.fsencode(part)) > MOST_NAME for part in parts):
            raise RotaError(f"the object {path[:200]!r} can't be a file: its name has an empty, odd or too long part")
        above = "/".join(parts[:-1])
        while above:
            if above in paths:
                raise RotaError(f"{above[:200]!r} is an object and the folder of others; a file can't be both")
            above = above.rpartition("/")[0]
