"""Searches in the index of jobs: words of users, a connection with a time limit, and the text around what matches.

What is searched was written by jobs, and may repeat a word half a million times. A search therefore ends after a while
whatever it finds, and excerpts are cut out by one pass over a bounded amount of text.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rota.core.errors import RotaError, Unavailable

FIELDS = ("name", "owner", "labels", "command", "message", "output")
MOST_WORDS = 16
MOST_S = 2.0
"""How long one search may take."""
STEPS = 1000
"""Steps of the database between two looks at the clock."""
MOST_READ = 4 << 20
"""Characters that are looked at for all excerpts of one search."""
AROUND = 120
"""Characters of an excerpt before what matches, and after it."""
_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchMatch:
    """A job that matches, where, and the text around the match."""

    job_id: str
    field: str
    excerpt: str


class SearchReader:
    """A connection that reads the index while another one writes it, for one search after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._base: sqlite3.Connection | None = None
        self._file = -1

    @contextlib.contextmanager
    def opened(self, make: Callable[[], None]) -> Iterator[sqlite3.Connection]:
        """Return the connection; what takes too long ends with a `RotaError`. `make` makes a file that is missing."""
        with self._lock:
            try:
                make()
                yield self._connected()
            except sqlite3.DatabaseError as error:
                if "interrupted" in str(error):
                    raise RotaError(f"q: the search took more than {MOST_S:g} s; give rarer words") from None
                self._close()
                raise Unavailable(f"the search index can't be read: {error}; try again in a moment") from None

    def _connected(self) -> sqlite3.Connection:
        file = self._path.stat().st_ino
        if self._base is None or file != self._file:  # it was made again
            self._close()
            self._base = sqlite3.connect(self._path, check_same_thread=False)
            self._file = file
        until_s = time.monotonic() + MOST_S
        self._base.set_progress_handler(lambda: time.monotonic() > until_s, STEPS)
        return self._base

    def _close(self) -> None:
        if self._base is not None:
            self._base.close()
            self._base = None


class Excerpts:
    """Cuts out the text around the words of one search."""

    def __init__(self, base: sqlite3.Connection, words: Sequence[str]) -> None:
        self._base = base
        self._left = MOST_READ
        ends = [""] * len(words)
        ends[:-1] = [r"(?![^\W_])"] * (len(words) - 1)  # the last may go on
        parts = [_pattern(word) + end for word, end in zip(words, ends, strict=True) if _TOKEN.search(word)]
        self._pattern = re.compile(rf"(?<![^\W_])(?:{'|'.join(parts)})", re.IGNORECASE) if parts else None

    def shown(self, rowid: int, job_id: str) -> SearchMatch:
        """Return which field of a job matches, with the text around; neither once enough was looked at."""
        for field in FIELDS:
            if self._pattern is None or self._left <= 0:
                break
            (text,) = self._base.execute(f"select {field} from found where rowid = ?", (rowid,)).fetchone() or ("",)
            text = text[: self._left]
            self._left -= len(text)
            if found := self._pattern.search(_plain(text)):
                return SearchMatch(job_id=job_id, field=field, excerpt=_around(text, found.start()))
        return SearchMatch(job_id=job_id, field="", excerpt="")


def query_words(text: str) -> list[str]:
    """Return the words of a text that a user searches for, each once."""
    return list(dict.fromkeys(word for word in _WORD.findall(text) if _TOKEN.search(word)))[:MOST_WORDS]


def _pattern(word: str) -> str:
    """A word as the index takes it: what is between underscores are words of their own."""
    return r"[\W_]{1,8}".join(re.escape(part) for part in _TOKEN.findall(_plain(word)))


def _plain(text: str) -> str:
    """A text without accents, character by character."""
    if text.isascii():
        return text
    return text.translate({ord(each): unicodedata.normalize("NFD", each)[0] for each in set(text) if ord(each) > 127})


def _around(text: str, at: int) -> str:
    begin, end = max(at - AROUND, 0), at + AROUND
    cut = " ".join(text[begin:end].split())
    return f"{'… ' * (begin > 0)}{cut}{' …' * (end < len(text))}"
