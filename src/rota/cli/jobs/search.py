"""`rota search`: jobs by any of their words, the ends of their outputs included."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.completion import tenant_names
from rota.cli.manager.connect import ServerOption
from rota.cli.render import Column, OutputFormat, OutputOption, emit

COLUMNS = (
    Column(key="id", right=True),
    Column(key="name"),
    Column(key="tenant"),
    Column(key="state"),
    Column(key="field", title="found in"),
    Column(key="excerpt"),
)


def search(
    words: Annotated[list[str], typer.Argument(help="Words that a job must have.", metavar="WORDS...")],
    tenant: Annotated[str | None, typer.Option(help="Only jobs of this tenant.", autocompletion=tenant_names)] = None,
    limit: Annotated[int, typer.Option(help="At most this many, the best matches.", min=1, max=200)] = 50,
    server: ServerOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Search jobs: names, owners, labels, commands, messages, and the ends of their outputs.

    Examples:

      rota search out of memory

      rota search bert --tenant nlp
    """
    from rota.sdk.client import Client

    found = Client(server).search(" ".join(words), tenant=tenant, limit=limit)
    rows = [{**each["job"], "field": each["field"], "excerpt": each["excerpt"]} for each in found]
    emit(rows, COLUMNS, output, nothing="no job has all of these words")
