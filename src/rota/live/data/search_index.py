"""Full-text search over jobs: names, owners, labels, commands, messages, and the ends of their output.

The index is a SQLite file beside the output that it is made of, whatever database keeps the jobs. It can be deleted,
and is made again. It never slows the loop down, since no transaction of jobs waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.live.data.search_read import FIELDS, Excerpts, SearchMatch, SearchReader, query_words
from rota.live.workers.fair_turns import FairTurns
from rota.store.jobs import FINAL
from rota.store.records import Records
from rota.store.run_folder import attempt_folder, output_end, read_output

Json = dict[str, Any]
EVERY_S, PAUSE_S = 1.0, 0.05
AT_ONCE = 200
"""Jobs that are indexed in one transaction."""
OUTPUT_BYTES = 64 << 10
"""How much of the end of a task's output is indexed."""
MOST_TASKS = 8
VERSION = 1
MOST_S = 0.5
"""How long one look at jobs may take; those that are left are looked at with the next."""
MOST_SHARE = 0.1
"""The fraction of the time that looking at jobs takes at most, however much they write."""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x09\x0b-\x1f\x7f]")


class SearchIndex:
    """The index of one manager's jobs."""

    def __init__(self, home: Path, records: Records) -> None:
        self._home = home
        self._records = records
        self._lock = threading.Lock()
        self._path = home / "search.db"
        self._live: dict[str, tuple[int, int]] = {}
        """Version and size of the output of unfinished jobs, as they were indexed."""
        self._last = -1
        self._base: sqlite3.Connection | None = None
        self._reading = SearchReader(self._path)
        self.turns = FairTurns()
        """One search after the other, in rotation among users: none keeps more than one thread of the manager."""

    async def run(self) -> None:
        """Index what is new and what changed, until cancelled."""
        while True:
            begun_s = time.monotonic()
            more = await asyncio.to_thread(self.refresh)
            rest_s = (time.monotonic() - begun_s) / MOST_SHARE
            await asyncio.sleep(max(PAUSE_S if more else EVERY_S, rest_s))

    def refresh(self) -> bool:
        """Index the next jobs; return whether there may be more."""
        with self._written() as base:
            new = self._records.after(self._last, AT_ONCE)
            looked_at = [] if new else self._turn()
            known = self._records.some(looked_at)
            gone = set(looked_at) - {row.id for row in known}
            for job_id in gone:
                self._forget(base, job_id)
            until_s = time.monotonic() + MOST_S
            for row in (*new, *known):
                self._index(base, row)
                if new:
                    self._last = int(row.seq)
                if time.monotonic() > until_s:
                    break
            if new:
                base.execute("update mark set last = ?", (self._last,))
            return bool(new) and (len(new) == AT_ONCE or self._last < int(new[-1].seq))

    def _turn(self) -> list[str]:
        """The unfinished jobs that are looked at now: some of many, each in its turn."""
        first = list(self._live)[:AT_ONCE]
        for job_id in first:
            self._live[job_id] = self._live.pop(job_id)
        return first

    def forget(self, job_ids: Collection[str]) -> None:
        """Remove jobs that were deleted."""
        with self._written() as base:
            for job_id in job_ids:
                self._forget(base, job_id)

    def search(self, text: str, tenants: Collection[str] | None, limit: int) -> list[SearchMatch]:
        """Return the jobs that have all words of a text, the best match first; the last word may be a beginning."""
        words = query_words(text)
        if not words:
            raise RotaError(f"q: {text[:60]!r} has no word to search for")
        with self._reading.opened(self._opened_once) as base:
            found = _matching(base, words, tenants, limit)
            excerpts = Excerpts(base, words)
            return [excerpts.shown(rowid, job_id) for rowid, job_id in found]

    def matching(self, text: str, tenants: Collection[str] | None, limit: int) -> list[str]:
        """Return the ids of the jobs that have all words of a text; none for a text without a word."""
        words = query_words(text)
        if not words:
            return []
        with self._reading.opened(self._opened_once) as base:
            return [job_id for _, job_id in _matching(base, words, tenants, limit)]

    def _opened_once(self) -> None:
        """Make the file, unless it is there."""
        if not self._path.exists():
            with self._written():
                pass

    @contextlib.contextmanager
    def _written(self) -> Iterator[sqlite3.Connection]:
        """The index in a transaction. One that fails leaves it as it is on disk, to be opened and read again."""
        with self._lock:
            try:
                base = self._opened()
                with base:
                    yield base
            except sqlite3.DatabaseError as error:
                failed, self._base = self._base, None
                if failed is not None:
                    failed.close()
                if not isinstance(error, sqlite3.OperationalError):  # damaged, and not only a full disk
                    self._remove()
                raise OSError(f"the search index can't be written: {error}") from None

    def _opened(self) -> sqlite3.Connection:
        if self._base is None:
            try:
                self._base = self._made()
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:  # it is damaged; what it is made of is not
                self._remove()
                self._base = self._made()
        return self._base

    def _remove(self) -> None:
        for path in self._home.glob("search.db*"):
            path.unlink(missing_ok=True)

    def _made(self) -> sqlite3.Connection:
        base = sqlite3.connect(self._path, check_same_thread=False)
        self._path.chmod(0o600)
        base.execute("pragma journal_mode = wal")
        base.execute("pragma synchronous = off")
        if base.execute("pragma user_version").fetchone()[0] != VERSION:
            with base:
                for table in ("found", "mark", "place"):
                    base.execute(f"drop table if exists {table}")
                fields = ", ".join(FIELDS)
                base.execute(f"create virtual table found using fts5(job_id unindexed, tenant unindexed, {fields})")
                base.execute("create table place (job_id text primary key, n integer, is_live integer)")
                base.execute("create table mark (last integer)")
                base.execute("insert into mark values (-1)")
                base.execute(f"pragma user_version = {VERSION}")
        self._last = base.execute("select last from mark").fetchone()[0]
        self._live = {row[0]: (-1, -1) for row in base.execute("select job_id from place where is_live")}
        return base

    def _index(self, base: sqlite3.Connection, row: Any) -> None:
        """Write a job as it is now, unless it is as it was."""
        size = self._output_size(row)
        if self._live.get(row.id) == (row.version, size):
            return
        is_live = row.state not in FINAL
        self._forget(base, row.id)
        spec = json.loads(row.spec)
        values = (row.name, row.owner, _labels(spec), _command(spec), row.message or "", self._output(row))
        places = ",".join("?" * len(FIELDS))
        done = base.execute(f"insert into found values (?, ?, {places})", (row.id, row.tenant, *values))
        base.execute("insert into place values (?, ?, ?)", (row.id, done.lastrowid, is_live))
        if is_live:
            self._live[row.id] = (row.version, size)

    def _forget(self, base: sqlite3.Connection, job_id: str) -> None:
        self._live.pop(job_id, None)
        known = base.execute("select n from place where job_id = ?", (job_id,)).fetchone()
        if known is not None:
            base.execute("delete from found where rowid = ?", known)
            base.execute("delete from place where job_id = ?", (job_id,))

    def _folders(self, row: Any) -> Iterator[Path]:
        if row.attempt:
            for rank in range(MOST_TASKS):
                folder = attempt_folder(self._home, JobId(row.id), row.attempt) / str(rank)
                if not folder.is_dir():
                    return
                yield folder

    def _output_size(self, row: Any) -> int:
        return sum(output_end(folder) for folder in self._folders(row))

    def _output(self, row: Any) -> str:
        """The ends of the outputs of a job's first tasks."""
        parts = []
        for folder in self._folders(row):
            with contextlib.suppress(OSError):
                _, output = read_output(folder, max(output_end(folder) - OUTPUT_BYTES, 0), OUTPUT_BYTES)
                parts.append(_CONTROL.sub(" ", output.decode("utf-8", "replace")))
        return "\n".join(parts)


def _labels(spec: Json) -> str:
    return " ".join(f"{name}={value}" for name, value in (spec.get("labels") or {}).items())


def _command(spec: Json) -> str:
    parts = [spec, *(spec.get("roles") or {}).values()]
    runs = [part["run"] for part in parts if part.get("run")]
    return "\n".join(run if isinstance(run, str) else " ".join(map(str, run)) for run in runs)


def _matching(
    base: sqlite3.Connection, words: Sequence[str], tenants: Collection[str] | None, limit: int
) -> list[tuple[int, str]]:
    where, given = "", list[str]()
    if tenants is not None:
        where = f" and tenant in ({','.join('?' * len(tenants))})"
        given = sorted(tenants)
    wanted = " AND ".join([*(f'"{word}"' for word in words[:-1]), f'"{words[-1]}"*'])  # no word is an operator
    order = "order by rank, cast(job_id as int) desc limit ?"
    query = f"select rowid, job_id from found where found match ?{where} {order}"
    return base.execute(query, (wanted, *given, limit)).fetchall()
