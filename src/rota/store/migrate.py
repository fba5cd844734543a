"""Brings the tables of an older Rota up to date with Alembic; loaded only when they are not."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

from rota.core.errors import RotaError

MIGRATIONS = Path(__file__).with_name("migrations")


def migrate(engine: Engine, found: str) -> None:
    """Go from a revision to the newest, in one transaction; refuse a revision that is not known here."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found not in known:
        raise RotaError(f"the database is of a newer Rota (revision {found!r}); use that one, or restore a backup")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
