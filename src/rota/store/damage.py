"""Damaged databases: recognised before anything is accepted, with the way to restore one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from rota.core.errors import RotaError

RESTORE = "stop the manager, put a file made by `rota backup` in place of rota.db, delete rota.db-wal and rota.db-shm"
_SIGNS = ("malformed", "not a database", "no such table", "file is encrypted")


def is_damage(error: DBAPIError) -> bool:
    """Whether a failure means that a SQLite file is damaged, and not only that it can't be used now."""
    if not isinstance(error.orig, sqlite3.Error):
        return False
    text = str(error.orig).lower()
    return any(sign in text for sign in _SIGNS)


def refuse_damaged(path: Path) -> None:
    """Raise a `RotaError` if a SQLite file is damaged, empty though jobs ran here, or not a database."""
    runs = path.parent / "runs"
    has_run = path.parent.joinpath(f"{path.name}-wal").exists() or (runs.is_dir() and any(runs.iterdir()))
    size = path.stat().st_size if path.exists() else 0
    if not size:
        if has_run:
            what = "is empty" if path.exists() else "is missing"
            raise RotaError(
                f"database {str(path)!r} {what}, but jobs were run from {str(path.parent)!r}; to restore it, "
                f"{RESTORE}; or start with an empty --data folder"
            )
        return
    try:
        with closing(sqlite3.connect(path)) as connection:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
            return  # it can't be opened now; that is said when it is opened
        found = str(error)
    if found != "ok":
        why = " ".join(str(found).removeprefix("*** in database main ***").split())
        raise RotaError(f"database {str(path)!r} is damaged: {why}; to restore it, {RESTORE}")


def refuse_older_than_folders(last_job: int, home: Path) -> None:
    """Raise a `RotaError` if there are run folders of jobs that the database does not know yet.

    Such a database has lost its last changes, as without its write-ahead log, or is a backup that was put back. New
    jobs would get the ids of those folders and take over what is in them.
    """
    runs = home / "runs"
    numbers = [int(path.name) for path in runs.iterdir() if path.name.isdigit()] if runs.is_dir() else []
    newer = sorted(number for number in numbers if number > last_job)
    if newer:
        span = f"{runs}/{newer[0]}" + (f" to {runs}/{newer[-1]}" if len(newer) > 1 else "")
        raise RotaError(
            f"the database ends with job {last_job}, but there are folders of later jobs: it has lost its last "
            f"changes (is rota.db-wal missing?), or is an older backup; put the newest files back, or move {span} away "
            "and start again"
        )
