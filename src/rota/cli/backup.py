"""`rota backup`: the manager's database in one file, while it runs."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from rota.core.errors import RotaError


def backup(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it; must not exist.")],
    data: Annotated[Path | None, typer.Option(help="The manager's folder.", metavar="DIR")] = None,
) -> None:
    """Copy the manager's database, whole and consistent, while it runs or not.

    To restore it, stop the manager and put the file in place of `rota.db` in its folder.

    Examples:

      rota backup monday.db
    """
    from rota.sdk.place import data_folder

    source = (data or data_folder()) / "rota.db"
    if not source.is_file():
        raise RotaError(f"there is no database {source}; name the manager's folder with --data")
    if out.exists():
        raise RotaError(f"{out} exists already; name a new file")
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    os.close(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
    readable = f"{source.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(readable, uri=True)) as old, closing(sqlite3.connect(draft)) as new:
        old.backup(new)
        fault = new.execute("PRAGMA integrity_check").fetchone()[0]
    if fault != "ok":
        draft.unlink()
        raise RotaError(f"the database {source} is damaged: {fault}")
    draft.replace(out)
    typer.echo(f"backup: {out}", err=True)
