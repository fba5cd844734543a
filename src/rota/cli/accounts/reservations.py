"""`rota reservations`: nodes that only jobs of a tenant, or of some users, may use in a time."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rota.cli.completion import tenant_names
from rota.cli.manager.connect import ServerOption
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import RotaError

Json = dict[str, Any]
app = typer.Typer(invoke_without_command=True, help="List the reservations of nodes, make or cancel them (for admins).")


def _at(text: str) -> str:
    return text[:16].replace("T", " ")


def _group(row: Json) -> str:
    return row["tenant"] or f"users {', '.join(row['users'])}"


COLUMNS = (
    Column(key="name"),
    Column(key="from", title="from (UTC)", show=_at),
    Column(key="until", title="until (UTC)", show=_at),
    Column(key="active", show=lambda value: "yes" if value else "no"),
    Column(key="for"),
    Column(key="nodes", show=", ".join),
    Column(key="by"),
)


@app.callback()
def reservations(
    context: typer.Context, server: ServerOption = None, output: OutputOption = OutputFormat.TABLE
) -> None:
    """List the reservations that are not over (for admins).

    Examples:

      rota reservations

      rota reservations add course --from 2026-12-01T08:00 --for 2h --nodes n1,n2 --tenant nlp
    """
    if context.invoked_subcommand is not None:
        return
    from rota.sdk.client import Client

    rows = [{**row, "for": _group(row)} for row in Client(server).reservations()]
    emit(rows, COLUMNS, output, nothing="there are no reservations")


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="The reservation's name.")],
    for_: Annotated[str, typer.Option("--for", help="How long, e.g. 2h.")],
    from_: Annotated[str | None, typer.Option("--from", help="When, in UTC, e.g. 2026-12-01T08:00; else now.")] = None,
    nodes: Annotated[str | None, typer.Option(help="Which nodes, e.g. n1,n2.")] = None,
    gpus: Annotated[int | None, typer.Option(help="So many GPUs in whole nodes, which the manager chooses.")] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Of this type; with --gpus.")] = None,
    tenant: Annotated[
        str | None, typer.Option(help="The tenant whose jobs may use them.", autocompletion=tenant_names)
    ] = None,
    users: Annotated[str | None, typer.Option(help="The users whose jobs may use them, e.g. ada,ben.")] = None,
    server: ServerOption = None,
) -> None:
    """Keep nodes for the jobs of a tenant, or of some users, in a time (for admins).

    Jobs of others that may be stopped use them until then; those that may not start there only if their time limit
    ends before.

    Examples:

      rota reservations add course --from 2026-12-01T08:00 --for 2h --nodes n1,n2 --tenant nlp

      rota reservations add demo --for 30m --gpus 8 --type H100 --users ada,ben
    """
    from rota.files.quantities import parse_duration
    from rota.sdk.client import Client

    if (nodes is None) == (gpus is None):
        raise RotaError("give either --nodes or --gpus: the nodes by name, or how many GPUs in whole nodes")
    if (tenant is None) == (users is None):
        raise RotaError("give either --tenant or --users: whose jobs may use the nodes")
    try:
        for_s = parse_duration(for_)
    except RotaError as error:
        raise RotaError(f"--for: {error}") from error
    wanted: Json = {"from": from_, "for_s": for_s, "gpus": gpus, "type": type_, "tenant": tenant}
    wanted |= {"nodes": _names(nodes), "users": _names(users)}
    found = Client(server).reserve(name, {key: value for key, value in wanted.items() if value not in (None, [])})
    echo(
        f"{', '.join(found['nodes'])} reserved for {_group(found)} from {_at(found['from'])} "
        f"until {_at(found['until'])} UTC ({found['name']})"
    )


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]


@app.command("cancel")
def cancel(
    name: Annotated[str, typer.Argument(help="The reservation's name.")],
    server: ServerOption = None,
) -> None:
    """End a reservation now, or before it begins (for admins).

    Examples:

      rota reservations cancel course
    """
    from rota.sdk.client import Client

    Client(server).cancel_reservation(name)
