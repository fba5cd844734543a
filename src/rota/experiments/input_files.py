"""The files that a run reads, found in its options: results are known by their content, so none may be missed.

Any text of an option may name a file, whole (`faults.csv`) or in a part (`FILE.py:FUNCTION`, `harmony:weights=FILE`,
`2h=after.yaml`). YAML and JSON files name others relative to themselves, and a trace may have tables beside it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from rota.core.errors import RotaError
from rota.files.document import read_document
from rota.traces.formats import tables_beside

_PARTS = re.compile("[:=,]")
_NAMES_OTHERS = (".yaml", ".yml", ".json")
_LARGEST_NAMING = 1 << 22
"""Bytes of a file above which it is data and names no others."""


def digests_of(value: object) -> dict[str, str]:
    """The digest of each file that a value names anywhere in it, by its name."""
    return {str(path): digest_of(path) for path in sorted(_files_of(value, Path()))}


def digest_of(path: Path) -> str:
    """The digest of a file, of the files that it names, and of tables that are read with it."""
    parts = [_digest(each, _stamp(each)) for each in (path, *_named_in(path))]
    return parts[0] if len(parts) == 1 else hashlib.sha256(" ".join(parts).encode()).hexdigest()


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


@cache
def _digest(path: Path, stamp: tuple[int, int]) -> str:
    """The digest of a file as it is at a stamp, so that a file that changes is read again."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise RotaError(f"{path}: {error.strerror}; check whether you may read it") from error


def _named_in(path: Path) -> list[Path]:
    """The further files that a file brings with it, each once, without itself."""
    seen: dict[Path, None] = {path: None}
    waiting = [path]
    while waiting:
        each = waiting.pop()
        for other in sorted({*tables_beside(each), *_named_by(each, _stamp(each))} - seen.keys()):
            seen[other] = None
            waiting.append(other)
    return list(seen)[1:]


@cache
def _named_by(path: Path, stamp: tuple[int, int]) -> frozenset[Path]:
    """The files that a YAML or JSON file names; of one that is wrong, none, as the run that reads it will say."""
    if path.suffix not in _NAMES_OTHERS or stamp[1] > _LARGEST_NAMING:
        return frozenset()
    try:
        return frozenset(_files_of(read_document(path), path.parent))
    except RotaError:
        return frozenset()


def _files_of(value: object, folder: Path) -> set[Path]:
    return {path for text in _texts(value) for path in _in_text(text, folder)}


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _texts(key)
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _in_text(text: str, folder: Path) -> Iterator[Path]:
    for part in {text, *_PARTS.split(text)}:
        if part and len(part) < 1024 and "\0" not in part and "\n" not in part and (folder / part).is_file():
            yield folder / part
