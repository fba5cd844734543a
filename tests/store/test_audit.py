"""The chain of the audit log: of new entries, of an older Rota's, and of writers at the same time."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from sqlalchemy.exc import SQLAlchemyError

from rota.store.audit import START, AuditHead, AuditLog, chained_hash, head_in, read_head, write_head
from rota.store.database import open_database
from rota.store.records import Records, WriteBatch
from rota.store.tokens import Identities, StoredToken, Tokens

FIRST = Path(__file__).with_name("schema-0001.sql")


def entry(number: int) -> dict[str, object]:
    return {"at_s": float(number), "who": "ada", "what": "submit", "thing": str(number), "detail": "x"}


@pytest.mark.slow
def test_entries_of_an_older_rota_are_chained(tmp_path: Path) -> None:
    path = tmp_path / "rota.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(FIRST.read_text(encoding="utf-8"))
        before = database.execute("SELECT n, at_s, who, what, thing, detail FROM audit ORDER BY n").fetchall()
    engine = open_database(path)
    log = AuditLog(engine)
    found = log.verify()

    assert found.fault is None
    assert found.entries == len(before) > 0
    assert [(row.n, row.at_s, row.who, row.what, row.thing, row.detail) for row in reversed(log.page(100))] == before
    log.append([entry(1)])
    assert (log.verify().entries, log.head().n) == (len(before) + 1, before[-1][0] + 1)
    engine.dispose()


def test_hash_covers_every_field_and_the_entry_before() -> None:
    usual = chained_hash(START, 1, entry(1))
    others = {chained_hash("1" * 64, 1, entry(1)), chained_hash(START, 2, entry(1))}
    others |= {chained_hash(START, 1, {**entry(1), name: 7.5 if name == "at_s" else "other"}) for name in entry(1)}

    assert len(others) == 7
    assert usual not in others


def test_batches_tokens_and_refusals_make_one_chain(tmp_path: Path) -> None:
    engine = open_database(tmp_path / "rota.db")
    records, log, tokens = Records(engine), AuditLog(engine), Tokens(engine)

    def by_loop(number: int) -> None:
        records.write(WriteBatch(audit=[entry(number), entry(number)]))()

    def by_admin(number: int) -> None:
        name = f"t{number}"
        tokens.add(StoredToken(id=name, digest=name, name=name, role="viewer", tenants=(), created_s=1.0), "ada")

    with ThreadPoolExecutor(6) as pool:
        work = [pool.submit(each, number) for number in range(20) for each in (by_loop, by_admin)]
        work += [pool.submit(log.append, [entry(number)]) for number in range(20)]
        for each in work:
            each.result()

    found = log.verify()
    assert (found.fault, found.entries) == (None, 80)
    engine.dispose()


def test_batch_that_fails_leaves_the_chain_as_it_was(tmp_path: Path) -> None:
    engine = open_database(tmp_path / "rota.db")
    records, log = Records(engine), AuditLog(engine)
    log.append([entry(1)])
    head = log.head()
    with pytest.raises(SQLAlchemyError):
        records.write(WriteBatch(audit=[entry(2)], settings={"key": cast(str, object())}))

    assert log.head() == head
    log.append([entry(3)])
    assert (log.verify().fault, log.verify().entries) == (None, 2)
    engine.dispose()


def test_pages_follow_each_other_and_can_be_filtered(tmp_path: Path) -> None:
    engine = open_database(tmp_path / "rota.db")
    log = AuditLog(engine)
    log.append([{**entry(number), "who": "ada" if number % 2 else "lin"} for number in range(1, 11)])

    first = [row.n for row in log.page(4)]
    second = [row.n for row in log.page(4, before=first[-1])]

    assert (first, second) == ([10, 9, 8, 7], [6, 5, 4, 3])
    assert [row.n for row in log.page(3, who="ada")] == [9, 7, 5]
    assert log.page(3, what="cancel") == []
    engine.dispose()


def test_head_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "audit-head"
    head = AuditHead(n=7, hash="ab" * 32)
    write_head(path, head)

    assert head_in(path) == head
    assert path.stat().st_mode & 0o777 == 0o600
    assert [read_head(text) for text in ("", "7", "x:" + "a" * 64, "7:short", "²:" + "a" * 64)] == [None] * 5


def test_name_belongs_to_the_account_that_used_it_first(tmp_path: Path) -> None:
    engine = open_database(tmp_path / "rota.db")
    names = Identities(engine)

    assert names.claim("ada", "https://a", "1")
    assert names.claim("ada", "https://a", "1")
    assert not names.claim("ada", "https://a", "2")
    assert not names.claim("ada", "https://b", "1")
    assert names.claim("lin", "https://b", "1")
    assert names.release("ada", 1.0, "root")
    assert not names.release("ada", 1.0, "root")
    assert names.claim("ada", "https://b", "1")
    assert [row.what for row in AuditLog(engine).page(9)] == ["name-release"]
    engine.dispose()


def test_chain_costs_little(tmp_path: Path) -> None:
    """A submission's entry costs microseconds, measured as the time to hash ten thousand."""
    begun, before = time.process_time(), START
    for number in range(10_000):
        before = chained_hash(before, number, entry(number))

    assert time.process_time() - begun < 5.0


def test_new_token_is_logged_with_all_that_it_allows(tmp_path: Path) -> None:
    engine = open_database(tmp_path / "rota.db")
    made = StoredToken(
        id="1",
        digest="d",
        name="ada",
        role="member",
        tenants=("nlp", "vision"),
        created_s=100.0,
        expires_s=3700.0,
        account="ada-lab",
    )

    Tokens(engine).add(made, "admin")

    assert AuditLog(engine).page(1)[0].detail == "ada member; tenants nlp, vision; account ada-lab; for 3600 s"
    engine.dispose()
