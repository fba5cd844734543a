"""Brings the tables of an older Rota up to date with Alembic; loaded only when they are not.

There is no way down: the older Rota works with the copy that is left beside the file before anything is changed.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

from rota.core.errors import RotaError

MIGRATIONS = Path(__file__).with_name("migrations")


def migrate(engine: Engine, found: str) -> None:
    """Go from a revision to the newest, in one transaction; refuse a revision that is not known here.

    A SQLite file is copied first, to its name with the old revision at the end.
    """
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found not in known:
        raise RotaError(f"the database is of a newer Rota (revision {found!r}); use that one, or restore a backup")
    if engine.dialect.name == "sqlite" and engine.url.database:
        copy_database(Path(engine.url.database), Path(f"{engine.url.database}.{found}"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def copy_database(source: Path, target: Path) -> None:
    """Copy a SQLite file, whole and consistent though it may be in use, readable by its owner only."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    os.close(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
    readable = f"{source.resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(readable, uri=True)) as old, closing(sqlite3.connect(draft)) as new:
            old.backup(new)
            fault = new.execute("PRAGMA integrity_check").fetchone()[0]
        if fault != "ok":
            raise RotaError(f"the database {source} is damaged: {fault}")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
