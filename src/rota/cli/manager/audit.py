"""`rota audit`: changes by users and by the manager itself."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.manager.connect import ServerOption
from rota.cli.render import Column, OutputFormat, OutputOption, emit

COLUMNS = tuple(Column(key=key) for key in ("at", "who", "what", "thing", "detail"))


def audit(
    limit: Annotated[int, typer.Option(help="How many changes to show.", min=1, max=1000)] = 100,
    what: Annotated[str | None, typer.Option(help="Only changes of this kind, e.g. weights-swap.")] = None,
    server: ServerOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List changes and the users who made them, newest first; for admins.

    Examples:

      rota audit --limit 20

      rota audit --what weights-keep
    """
    from rota.sdk.client import Client

    rows = Client(server).get(f"/audit?limit={limit}")
    emit([row for row in rows if what is None or row["what"] == what], COLUMNS, output)
