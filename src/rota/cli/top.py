"""`rota top`: nodes and jobs as they are, again and again."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.manager import ServerOption
from rota.cli.nodes import NODE_COLUMNS
from rota.cli.ps import COLUMNS, row
from rota.cli.render import OutputFormat, emit, table

if TYPE_CHECKING:
    from rich.console import Group

    from rota.sdk.client import Client


def top(
    every: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 1.0,
    limit: Annotated[int, typer.Option(help="At most so many jobs.", min=1)] = 30,
    server: ServerOption = None,
) -> None:
    """Show nodes and jobs as they are, until Ctrl-C; once, where the output is not a terminal.

    Examples:

      rota top
    """
    from rota.sdk.client import Client

    client = Client(server)
    if not sys.stdout.isatty():
        emit(client.nodes(), NODE_COLUMNS, OutputFormat.TABLE)
        emit([row(job) for job in client.jobs(limit=limit)], COLUMNS, OutputFormat.TABLE)
        return
    from rich.live import Live

    with contextlib.suppress(KeyboardInterrupt), Live(_view(client, limit), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(every)
            live.update(_view(client, limit), refresh=True)


def _view(client: Client, limit: int) -> Group:
    from rich.console import Group

    jobs = [row(job) for job in client.jobs(limit=limit)]
    shown = [column for column in COLUMNS if not column.wide]
    return Group(table(client.nodes(), NODE_COLUMNS, lines=True), table(jobs, shown, lines=True))
