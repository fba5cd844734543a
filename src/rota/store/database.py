"""Opens a manager's database and brings its tables up to date.

SQLite is made to keep what it has acknowledged (write-ahead log, `synchronous=FULL`). One process writes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, inspect, text
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError

from rota.core.errors import RotaError
from rota.store.schema import HEAD, metadata


def open_database(where: Path | str) -> Engine:
    """The database in a file, or at a URL such as `postgresql+psycopg://user@host/name`; its tables are made."""
    url = f"sqlite:///{where}" if isinstance(where, Path) else where
    if isinstance(where, Path):
        _make_private(where)
    try:
        engine = create_engine(url, pool_pre_ping=not url.startswith("sqlite"), pool_size=8)
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _make_durable)
            event.listen(engine, "begin", _begin)
        prepare(engine)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise RotaError(f"database {_plain(url)!r} can't be used: {error}") from error
    except OperationalError as error:
        raise RotaError(f"database {_plain(url)!r} can't be opened: {error.orig}") from error
    return engine


def _make_private(path: Path) -> None:
    """Nobody but its owner may read the file: jobs' secrets are in it. What SQLite puts beside it gets its mode."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        path.chmod(0o600)
    except OSError as error:
        raise RotaError(f"database {str(path)!r} can't be opened: {error.strerror}") from error


def prepare(engine: Engine) -> None:
    """Make the tables, or bring those of an older Rota up to date; refuse those of a newer one."""
    with engine.begin() as connection:
        tables = set(inspect(connection).get_table_names())
        if "jobs" not in tables:
            metadata.create_all(connection)
            connection.execute(text("CREATE TABLE IF NOT EXISTS alembic_version (version_num VARCHAR(32) PRIMARY KEY)"))
            connection.execute(text("DELETE FROM alembic_version"))
            connection.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})
            return
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if found != HEAD:
        from rota.store.migrate import migrate

        migrate(engine, str(found))


def _make_durable(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # the driver must not open transactions by itself
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "busy_timeout=10000",
        "foreign_keys=ON",
        "cache_size=-65536",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Any) -> None:
    connection.exec_driver_sql("BEGIN")


def _plain(url: str) -> str:
    """The URL without a password."""
    head, at, tail = url.rpartition("@")
    return f"{head.rpartition(':')[0]}:***@{tail}" if at and head.count(":") > 1 else url
