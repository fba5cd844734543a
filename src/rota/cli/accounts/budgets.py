"""`rota budgets`: what tenants, users and projects may use in a time, and what follows at the limit."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rota.cli.completion import budget_names, tenant_names
from rota.cli.manager.connect import ServerOption
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import RotaError

Json = dict[str, Any]
app = typer.Typer(
    invoke_without_command=True, help="List the budgets of tenants and what is used of them, or set them."
)


def _limit(row: Json) -> str:
    return f"{row['cost']:g} of cost" if row["gpu_hours"] is None else f"{row['gpu_hours']:g} GPU hours"


COLUMNS = (
    *(Column(key=key) for key in ("name", "tenant")),
    Column(key="user", show=lambda value: value or "-"),
    Column(key="project", show=lambda value: value or "-"),
    Column(key="limit"),
    Column(key="period"),
    Column(key="used", right=True, show=lambda value: f"{value:,.2f}"),
    Column(key="part", title="%", right=True, show=lambda value: f"{value:.0f}"),
    Column(key="at_limit", title="at the limit"),
    Column(key="reached", show=lambda value: "yes" if value else "no"),
)


@app.callback()
def budgets(context: typer.Context, server: ServerOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the budgets of your tenants, and what is used of them.

    Examples:

      rota budgets

      rota budgets set nlp-month --tenant nlp --gpu-hours 5000
    """
    if context.invoked_subcommand is not None:
        return
    from rota.sdk.client import Client

    rows = [{**row, "limit": _limit(row), "part": _part(row)} for row in Client(server).budgets()]
    emit(rows, COLUMNS, output, nothing="there are no budgets")


def _part(row: Json) -> float:
    limit = row["cost"] if row["gpu_hours"] is None else row["gpu_hours"]
    return 100.0 * row["used"] / limit if limit else 100.0


@app.command("set")
def set_budget(
    name: Annotated[str, typer.Argument(help="The budget's name.", autocompletion=budget_names)],
    tenant: Annotated[
        str | None, typer.Option(help="Whose usage counts; required for a new one.", autocompletion=tenant_names)
    ] = None,
    user: Annotated[str | None, typer.Option(help="Only this user's.")] = None,
    project: Annotated[str | None, typer.Option(help="Only that of jobs with this label `project`.")] = None,
    gpu_hours: Annotated[float | None, typer.Option(help="The limit in GPU hours.", min=0)] = None,
    cost: Annotated[float | None, typer.Option(help="The limit in money, at the set prices.", min=0)] = None,
    period: Annotated[
        str | None, typer.Option(help="After which it begins again: day, month, quarter, year or total (never).")
    ] = None,
    warn: Annotated[list[float] | None, typer.Option(help="Warn at this part of it, e.g. 0.8.")] = None,
    at_limit: Annotated[str | None, typer.Option(help="warn, hold (no job starts) or stop.")] = None,
    server: ServerOption = None,
) -> None:
    """Add or change a budget (for admins); what is not given keeps its value.

    Examples:

      rota budgets set nlp-month --tenant nlp --gpu-hours 5000

      rota budgets set thesis --tenant nlp --user ada --cost 800 --period total --at-limit hold
    """
    from rota.sdk.client import Client

    client = Client(server)
    given: Json = {"tenant": tenant, "user": user, "project": project, "gpu_hours": gpu_hours, "cost": cost}
    given |= {"period": period, "warn": warn or None, "at_limit": at_limit}
    known = next((each for each in client.budgets() if each["name"] == name), {})
    wanted = {key: value for key, value in known.items() if key not in ("name", "used", "reached")}
    if gpu_hours is not None or cost is not None:
        wanted |= {"gpu_hours": None, "cost": None}
    wanted |= {key: value for key, value in given.items() if value is not None}
    if "tenant" not in wanted:
        raise RotaError(f"budget {name!r} is new; say whose usage counts: --tenant NAME")
    found = client.put_budget(name, wanted)
    echo(f"budget {name} of tenant {found['tenant']}: {_limit(found)}, {found['used']:.2f} used")


@app.command("remove")
def remove(
    name: Annotated[str, typer.Argument(help="The budget's name.", autocompletion=budget_names)],
    server: ServerOption = None,
) -> None:
    """Remove a budget; jobs that only it held are released (for admins).

    Examples:

      rota budgets remove thesis
    """
    from rota.sdk.client import Client

    Client(server).remove_budget(name)
