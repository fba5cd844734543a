"""The audit log: every entry carries a hash over itself and the hash of the entry before it.

A change, a deletion or a new order of entries breaks the chain. A missing end is found by the head, which is kept
in a table of its own and in a file outside of the database.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Row, bindparam, func, insert, select, update

from rota.store.schema import audit, audit_head

START = "0" * 64
"""The hash before the first entry."""
VERIFY_ROWS = 2000
WHO_CHARS, WHAT_CHARS, THING_CHARS, DETAIL_CHARS = 128, 64, 256, 4096
_RESERVE = (
    update(audit_head).values(n=audit_head.c.n + bindparam("entries")).returning(audit_head.c.n, audit_head.c.hash)
)
_INSERT = insert(audit)
_ADVANCE = update(audit_head).values(hash=bindparam("new_hash"))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHead:
    """The last entry of the log: its number and its hash."""

    n: int
    hash: str

    def __str__(self) -> str:
        """Return the head as `rota audit verify --head` takes it."""
        return f"{self.n}:{self.hash}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerdict:
    """The result of a verification: how many entries hold, and the first fault, if there is one."""

    entries: int
    head: AuditHead
    fault: str | None = None


def chained_hash(before: str, n: int, entry: Mapping[Any, Any]) -> str:
    """Return the hash of an entry that follows the entry with the hash `before`."""
    fields = [before, n, float(entry["at_s"]), entry["who"], entry["what"], entry["thing"], entry["detail"]]
    return hashlib.sha256(json.dumps(fields, separators=(",", ":")).encode()).hexdigest()


def append_audit(connection: Connection, entries: Sequence[Mapping[str, Any]]) -> None:
    """Append entries in the connection's transaction.

    The head's row is written first: that serialises writers on SQLite and on PostgreSQL.
    """
    if not entries:
        return
    last, before = connection.execute(_RESERVE, {"entries": len(entries)}).one()
    rows = []
    for n, entry in enumerate(entries, start=int(last) - len(entries) + 1):
        row = _bounded(entry)
        before = chained_hash(before, n, row)
        rows.append({**row, "n": n, "hash": before})
    connection.execute(_INSERT, rows)
    connection.execute(_ADVANCE, {"new_hash": before})


def _bounded(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry that every database stores unchanged: texts that fit their columns, without NUL or surrogates."""
    return {
        "at_s": float(entry["at_s"]),
        "who": _text(entry["who"], WHO_CHARS),
        "what": _text(entry["what"], WHAT_CHARS),
        "thing": _text(entry["thing"], THING_CHARS),
        "detail": _text(entry.get("detail", ""), DETAIL_CHARS),
    }


def _text(value: object, most: int) -> str:
    text = str(value)[:most]
    if text.isprintable():
        return text
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()[:most]


class AuditLog:
    """Reads, verifies and appends to the audit log of a database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def append(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Append entries in a transaction of their own."""
        with self._engine.begin() as connection:
            append_audit(connection, entries)

    def page(
        self, limit: int, *, before: int | None = None, who: str | None = None, what: str | None = None
    ) -> Sequence[Row[Any]]:
        """Return entries, newest first: those before a number, of one user, or of one kind."""
        wanted = select(audit).order_by(audit.c.n.desc()).limit(limit)
        if before is not None:
            wanted = wanted.where(audit.c.n < before)
        if who is not None:
            wanted = wanted.where(audit.c.who == who)
        if what is not None:
            wanted = wanted.where(audit.c.what == what)
        with self._engine.connect() as connection:
            return connection.execute(wanted).all()

    def last_number(self) -> int:
        """Return the number of the last entry; 0 if there is none."""
        with self._engine.connect() as connection:
            return int(connection.execute(select(func.max(audit.c.n))).scalar() or 0)

    def between(self, after: int, last: int) -> Sequence[Row[Any]]:
        """Return the entries after a number up to another, oldest first."""
        wanted = select(audit).where(audit.c.n > after, audit.c.n <= last).order_by(audit.c.n)
        with self._engine.connect() as connection:
            return connection.execute(wanted).all()

    def head(self) -> AuditHead:
        """Return the head as the database states it."""
        with self._engine.connect() as connection:
            n, last = connection.execute(select(audit_head.c.n, audit_head.c.hash)).one()
        return AuditHead(n=int(n), hash=last)

    def contains(self, head: AuditHead) -> bool:
        """Whether the log has an entry with this number and hash."""
        if head.n == 0:
            return head.hash == START
        with self._engine.connect() as connection:
            return connection.execute(select(audit.c.hash).where(audit.c.n == head.n)).scalar() == head.hash

    def verify(self, known: Sequence[AuditHead] = ()) -> AuditVerdict:
        """Recompute the chain from its first entry; `known` are heads that were noted elsewhere and must be in it."""
        with self._engine.connect() as connection:
            stated = connection.execute(select(audit_head.c.n, audit_head.c.hash)).first()
            return _verdict(_rows(connection), None if stated is None else (int(stated[0]), stated[1]), known)


def _rows(connection: Connection) -> Iterator[Row[Any]]:
    """Yield all entries in order, in pieces, from the state of the database at the first."""
    yield from connection.execution_options(yield_per=VERIFY_ROWS).execute(select(audit).order_by(audit.c.n))


def _verdict(rows: Iterator[Row[Any]], stated: tuple[int, str] | None, known: Sequence[AuditHead]) -> AuditVerdict:
    noted = {head.n: head.hash for head in known}
    held, at = 0, AuditHead(n=0, hash=START)
    for row in rows:
        if chained_hash(at.hash, row.n, row._mapping) != row.hash:
            fault = f"entry {row.n} does not follow entry {at.n}: it was changed, or entries before it are missing"
            return AuditVerdict(entries=held, head=at, fault=fault)
        if row.n in noted and noted.pop(row.n) != row.hash:
            fault = f"entry {row.n} is not the one that was noted: the log was rewritten"
            return AuditVerdict(entries=held, head=at, fault=fault)
        held, at = held + 1, AuditHead(n=row.n, hash=row.hash)
    noted.pop(0, None)
    if stated is None or stated != (at.n, at.hash):
        shown = "missing" if stated is None else f"entry {stated[0]}"
        fault = f"the log ends with entry {at.n}, but its head is {shown}: the end was cut off or rewritten"
        return AuditVerdict(entries=held, head=at, fault=fault)
    if noted:
        fault = f"the log ends with entry {at.n}, but entry {max(noted)} was noted: entries are missing"
        return AuditVerdict(entries=held, head=at, fault=fault)
    return AuditVerdict(entries=held, head=at)


# -- the head outside of the database --------------------------------------------------------------


def write_head(path: Path, head: AuditHead) -> None:
    """Write the head to a file, readable by its owner only."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(f"{head}\n")
    draft.replace(path)


def read_head(text: str) -> AuditHead | None:
    """Return the head that a text states as `NUMBER:HASH`, or None."""
    n, _, digest = text.strip().partition(":")
    if not (n.isascii() and n.isdigit() and len(n) < 20 and len(digest) == 64):
        return None
    return AuditHead(n=int(n), hash=digest)


def head_in(path: Path) -> AuditHead | None:
    """Return the head in a file, or None if there is no such file or it is unreadable."""
    try:
        return read_head(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
