"""Opens a manager's database and migrates its tables.

SQLite is configured for durability (write-ahead log, `synchronous=FULL`). Only one process writes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, insert, inspect, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from rota.core.errors import RotaError
from rota.store.audit import START
from rota.store.damage import RESTORE, is_damage, refuse_damaged
from rota.store.schema import HEAD, audit_head, metadata

_PATIENCE = {"connect_timeout": 3, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 2}
"""How long a server that does not answer is waited for, in seconds."""


def open_database(where: Path | str) -> Engine:
    """Open the database in a file, or at a URL such as `postgresql+psycopg://user@host/name`; create its tables."""
    url = f"sqlite:///{where}" if isinstance(where, Path) else where
    if isinstance(where, Path):
        refuse_damaged(where)
        _make_private(where)
    try:
        engine = create_engine(
            url,
            pool_pre_ping=not url.startswith("sqlite"),
            pool_size=8,
            connect_args=_PATIENCE if url.startswith("postgresql") else {},
        )
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _make_durable)
            event.listen(engine, "begin", _begin)
        prepare(engine)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise RotaError(f"database {_plain(url)!r} can't be used: {error}") from error
    except DBAPIError as error:
        why = " ".join(str(error.orig).split())
        hint = f"; to restore it, {RESTORE}" if is_damage(error) else ""
        raise RotaError(f"database {_plain(url)!r} can't be opened: {why}{hint}") from error
    return engine


def _make_private(path: Path) -> None:
    """Make the file readable by its owner only, as it holds secrets; SQLite copies the mode to its other files."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        path.chmod(0o600)
    except OSError as error:
        raise RotaError(f"database {str(path)!r} can't be opened: {error.strerror}") from error


def prepare(engine: Engine) -> None:
    """Create the tables, or migrate those of an older Rota; refuse those of a newer one."""
    with engine.begin() as connection:
        tables = set(inspect(connection).get_table_names())
        if "jobs" not in tables:
            metadata.create_all(connection)
            connection.execute(insert(audit_head), {"n": 0, "hash": START})
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
    """Return the URL without its password."""
    head, at, tail = url.rpartition("@")
    return f"{head.rpartition(':')[0]}:***@{tail}" if at and head.count(":") > 1 else url
