"""Migrates the tables of an older Rota with Alembic; imported only when that is needed.

There are no downgrades: an older Rota can use the copy that is made beside the file before the migration.
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
    """Migrate from a revision to the newest in one transaction; refuse an unknown revision.

    A SQLite file is first copied to its name followed by the old revision.
    """
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found not in known:
        raise RotaError(f"the database is of a newer Rota (revision {found!r}); use that version, or restore a backup")
    if engine.dialect.name == "sqlite" and engine.url.database:
        copy_database(Path(engine.url.database), Path(f"{engine.url.database}.{found}"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def copy_database(source: Path, target: Path) -> None:
    """Make a consistent copy of a SQLite file, even while it is in use, readable by its owner only."""
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
