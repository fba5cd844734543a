"""A trace file of unknown format: compressed or not, text or Parquet."""

from __future__ import annotations

import atexit
import io
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from rota.core.errors import RotaError

STDIN = "-"
"""The path that means the standard input."""
HEAD_BYTES = 65536
GZIP_MAGIC = b"\x1f\x8b"
PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSource:
    """An existing file that is not empty; `head` is its beginning, uncompressed."""

    path: Path
    head: bytes
    is_gzip: bool
    skip_bad_lines: bool = False

    @property
    def is_parquet(self) -> bool:
        """Whether the file begins as Parquet does."""
        return self.head.startswith(PARQUET_MAGIC)

    @property
    def first_line(self) -> str:
        """The first line that is not blank, as text."""
        text = self.head.decode("utf-8-sig", errors="replace")
        for line in text.splitlines():
            if line.strip():
                return line
        return ""

    @contextmanager
    def text(self) -> Iterator[TextIO]:
        """The file's text; what is wrong with its bytes becomes one line for the user."""
        with _faults_named(self.path), _binary(self.path, self.is_gzip) as raw, _decoded(raw) as lines:
            yield lines


def open_source(path: Path, *, skip_bad_lines: bool = False) -> TraceSource:
    """Look at a file: that it exists, is a file and is not empty."""
    if path.is_dir():
        raise RotaError(f"{path}: it is a directory; a trace is a file")
    with _faults_named(path):
        if str(path) == STDIN or _is_stream(path):
            path = _kept(path)
        with path.open("rb") as raw:
            is_gzip = raw.read(2) == GZIP_MAGIC
        with _binary(path, is_gzip) as raw:
            head = raw.read(HEAD_BYTES)
    if not head.strip():
        raise RotaError(f"{path}: the file is empty")
    return TraceSource(path=path, head=head, is_gzip=is_gzip, skip_bad_lines=skip_bad_lines)


def _is_stream(path: Path) -> bool:
    """Whether what a path names can be read only once."""
    mode = path.stat().st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)


@cache
def _kept(path: Path) -> Path:
    """A copy of a stream, for as long as the process lives, as a trace is looked at before it is read."""
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    kept = folder / ("stdin" if str(path) == STDIN else path.name)
    with kept.open("wb") as copy:
        if str(path) == STDIN:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        else:
            with path.open("rb") as stream:
                shutil.copyfileobj(stream, copy)
    return kept


@contextmanager
def _faults_named(path: Path) -> Iterator[None]:
    """Turn errors of the file system, of compression and of text into errors for the user."""
    try:
        yield
    except FileNotFoundError:
        raise RotaError(f"{path}: there is no such file") from None
    except UnicodeDecodeError as err:
        raise RotaError(f"{path}: it is not UTF-8 text (byte 0x{err.object[err.start]:02x})") from err
    except EOFError as err:
        raise RotaError(f"{path}: the compressed file ends too early; copy it again") from err
    except (OSError, zlib.error) as err:
        reason = (isinstance(err, OSError) and err.strerror) or err
        raise RotaError(f"{path}: it cannot be read: {reason}") from err


def _binary(path: Path, is_gzip: bool) -> BinaryIO:
    if is_gzip:
        import gzip

        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")


def _decoded(raw: BinaryIO) -> TextIO:
    return io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
