"""Attempts to hide something in the audit log with write access to the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from managers import Manager
from rota.store.audit import START, chained_hash

attack = pytest.mark.attack
Tamper = Callable[[sqlite3.Connection], None]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """A stopped manager whose audit log has some entries."""
    made = Manager(tmp_path_factory.mktemp("written"), "--emulate", "gpu=1/1").start()
    made.client.drain("n1")
    for number in range(6):
        made.submit("true", name=f"job-{number}")
    made.client.act("2", "cancel")
    made.stop()
    yield made
    made.start()
    made.clean_up()


def change(database: sqlite3.Connection) -> None:
    database.execute("UPDATE audit SET who = 'another user' WHERE n = 4")


def change_time(database: sqlite3.Connection) -> None:
    database.execute("UPDATE audit SET at_s = at_s + 1 WHERE n = 4")


def delete(database: sqlite3.Connection) -> None:
    database.execute("DELETE FROM audit WHERE n = 4")


def delete_first(database: sqlite3.Connection) -> None:
    database.execute("DELETE FROM audit WHERE n = 1")


def reorder(database: sqlite3.Connection) -> None:
    database.execute("UPDATE audit SET n = -1 WHERE n = 3")
    database.execute("UPDATE audit SET n = 3 WHERE n = 4")
    database.execute("UPDATE audit SET n = 4 WHERE n = -1")


def insert(database: sqlite3.Connection) -> None:
    database.execute(
        "INSERT INTO audit (n, at_s, who, what, thing, detail, hash) "
        "SELECT max(n) + 1, max(at_s), 'alibi', 'submit', '1', '', max(hash) FROM audit"
    )


def truncate(database: sqlite3.Connection) -> None:
    database.execute("DELETE FROM audit WHERE n > 5")


def truncate_with_head(database: sqlite3.Connection) -> None:
    database.execute("DELETE FROM audit WHERE n > 5")
    database.execute("UPDATE audit_head SET n = 5, hash = (SELECT hash FROM audit WHERE n = 5)")


def rewrite(database: sqlite3.Connection) -> None:
    """Change an entry and compute all hashes from there on, as the manager does."""
    change(database)
    database.row_factory = sqlite3.Row
    before, last = START, 0
    for row in database.execute("SELECT * FROM audit ORDER BY n").fetchall():
        before, last = chained_hash(before, row["n"], dict(row)), row["n"]
        database.execute("UPDATE audit SET hash = ? WHERE n = ?", (before, last))
    database.execute("UPDATE audit_head SET n = ?, hash = ?", (last, before))


CHAIN, HEAD, FILE = "each entry's hash covers the one before", "the head is kept apart", "the head is noted in a file"
TAMPERING = [
    (change, "changes the name of a user", CHAIN),
    (change_time, "changes when something was done", CHAIN),
    (delete, "deletes an entry", CHAIN),
    (delete_first, "deletes the first entry", CHAIN),
    (reorder, "swaps two entries", CHAIN),
    (insert, "inserts an entry", CHAIN),
    (truncate, "cuts off the end", HEAD),
    (truncate_with_head, "cuts off the end and sets the head back", FILE),
    (rewrite, "changes an entry and computes the whole chain again", FILE),
]


@pytest.mark.parametrize(
    "tamper",
    [
        pytest.param(
            tamper, marks=attack(f"{what} of the audit log in the database", stopped_by=how), id=tamper.__name__
        )
        for tamper, what, how in TAMPERING
    ],
)
def test_tampering_is_found(written: Manager, tmp_path: Path, tamper: Tamper) -> None:
    copy = tmp_path / "copy.db"
    with closing(sqlite3.connect(written.home / "rota.db")) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    noted = (written.home / "audit-head").read_text().strip()
    whole = written.rota("audit", "verify", "--database", str(copy), "--head", noted)
    assert (whole.returncode, whole.stdout) == (0, f"{noted.partition(':')[0]} entries, unbroken; head {noted}\n")

    with closing(sqlite3.connect(copy)) as database, database:
        tamper(database)

    found = written.rota("audit", "verify", "--database", str(copy), "--head", noted)
    assert found.returncode == 1
    assert found.stderr.startswith("error: the audit log was tampered with: ")
    assert found.stderr.count("\n") == 1


@attack("cuts off the audit log while the manager is stopped", stopped_by="the head is noted in a file")
def test_manager_finds_a_log_that_was_cut_off_while_it_was_stopped(tmp_path: Path) -> None:
    manager = Manager(tmp_path, "--emulate", "gpu=1/1").start()
    try:
        manager.client.drain("n1")
        for number in range(6):
            manager.submit("true", name=f"job-{number}")
        manager.stop()
        noted = (manager.home / "audit-head").read_text()
        with closing(sqlite3.connect(manager.home / "rota.db")) as database, database:
            truncate_with_head(database)
        manager.start()
        manager.submit("true", name="later")
        manager.submit("true", name="later-still")

        found = manager.rota("audit", "verify")

        assert found.returncode == 1
        assert "was noted" in found.stderr
        assert (manager.home / "audit-head").read_text() == noted, "the note is evidence and is kept"
    finally:
        manager.clean_up()


@attack("writes an audit entry that breaks the log's lines or columns", stopped_by="entries are stored as bounded text")
def test_entry_with_hostile_text_keeps_the_chain(tmp_path: Path) -> None:
    from rota.store.audit import AuditLog
    from rota.store.database import open_database

    engine = open_database(tmp_path / "rota.db")
    log = AuditLog(engine)
    hostile = "\0\x1b]0;x\x07\ud800\u202e" + "x" * 10_000
    log.append([{"at_s": 1.0, "who": hostile, "what": hostile, "thing": hostile, "detail": hostile}] * 3)

    assert log.verify().fault is None
    assert [len(row.who) for row in log.page(10)] == [128] * 3
    engine.dispose()
