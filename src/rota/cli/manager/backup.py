"""`rota backup`: the manager's database in one file, while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rota.cli.terminal import echo
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
    from rota.sdk.place import managers_data_folder
    from rota.store.backup_mark import mark_backup
    from rota.store.migrate import copy_database

    source = (data or managers_data_folder()) / "rota.db"
    try:
        is_there = source.is_file()
        source.open("rb").close() if is_there else None
    except PermissionError as error:
        raise RotaError(f"{source} can't be read; run this as the manager's user, for a service with sudo") from error
    if not is_there:
        raise RotaError(f"there is no database {source}; name the manager's folder with --data")
    if out.exists():
        raise RotaError(f"{out} exists already; name a new file")
    copy_database(source, out)
    if not mark_backup(source.parent):
        echo("the manager can't be told of this backup: its folder can't be written by this account", err=True)
    echo(f"backup: {out}", err=True)
