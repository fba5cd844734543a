"""A database of the first Rota is migrated and keeps its jobs; one of a newer Rota is not changed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect

from rota.core.errors import RotaError
from rota.store.database import open_database
from rota.store.jobs import Query
from rota.store.records import Records
from rota.store.schema import HEAD

FIRST = Path(__file__).with_name("schema-0001.sql")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file of the first Rota: two ended jobs and two held ones."""
    path = tmp_path / "rota.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(FIRST.read_text(encoding="utf-8"))
    return path


def revision(path: Path) -> str:
    with closing(sqlite3.connect(path)) as database:
        return str(database.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def tables(engine: Engine) -> dict[str, object]:
    """Return the names of tables with their columns and indexes."""
    found = inspect(engine)
    return {
        name: (
            sorted((column["name"], str(column["type"]), column["nullable"]) for column in found.get_columns(name)),
            sorted((str(index["name"]), tuple(index["column_names"])) for index in found.get_indexes(name)),
        )
        for name in found.get_table_names()
    }


@pytest.mark.slow
def test_first_database_becomes_like_a_new_one_and_keeps_its_jobs(old: Path, tmp_path: Path) -> None:
    upgraded, fresh = open_database(old), open_database(tmp_path / "fresh.db")

    rows = Records(upgraded).page(Query())

    assert [(row.id, row.name, row.state, row.failure) for row in rows] == [
        ("4", "waits", "held", None),
        ("3", "kept", "held", None),
        ("2", "broken", "failed", None),
        ("1", "done", "succeeded", None),
    ]
    assert tables(upgraded) == tables(fresh)
    upgraded.dispose()
    fresh.dispose()
    assert revision(old) == HEAD


def test_copy_of_the_old_file_is_left_for_the_older_rota(old: Path) -> None:
    with closing(sqlite3.connect(old)) as database:
        before = list(database.iterdump())

    open_database(old).dispose()

    kept = old.with_name("rota.db.0001")
    assert revision(kept) == "0001"
    assert kept.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(kept)) as database:
        assert list(database.iterdump()) == before


def test_migration_that_fails_changes_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alembic import op

    def fail(*_: object) -> None:
        raise RuntimeError("on the way")

    monkeypatch.setattr(op, "add_column", fail)
    with pytest.raises(RuntimeError, match="on the way"):
        open_database(old)

    assert revision(old) == "0001"


def test_database_of_a_newer_rota_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "rota.db"
    open_database(path).dispose()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(RotaError, match=r"of a newer Rota \(revision '9999'\); use that version, or restore a backup"):
        open_database(path)

    assert revision(path) == "9999"
