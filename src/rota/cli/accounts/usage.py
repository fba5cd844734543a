"""`rota usage` and `rota shares`: used device time, what it costs, and the standing of tenants and users."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rota.cli.completion import tenant_names
from rota.cli.manager.connect import ServerOption
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import RotaError

Json = dict[str, Any]
app = typer.Typer(invoke_without_command=True, help="Show used GPU hours, energy and their cost, or set prices.")


def _number(value: float) -> str:
    return f"{value:,.2f}"


_SUMS = (
    Column(key="gpu_hours", title="GPU hours", right=True, show=_number),
    Column(key="energy_kwh", title="kWh", right=True, show=lambda value: f"{value:,.3f}"),
    Column(key="jobs", title="ended jobs", right=True),
)
_STANDINGS = (
    Column(key="tenant"),
    Column(key="user"),
    Column(key="shares", title="raw shares", right=True, show=lambda value: f"{value:g}"),
    Column(key="norm_shares", title="norm shares", right=True, show=lambda value: f"{value:.6f}"),
    Column(key="raw_usage_s", title="raw usage", right=True, show=lambda value: f"{value:.0f}"),
    Column(key="usage", title="effectv usage", right=True, show=lambda value: f"{value:.6f}"),
    Column(key="factor", title="fair share", right=True, show=lambda value: f"{value:.6f}"),
)


@app.callback()
def usage(
    context: typer.Context,
    by: Annotated[str, typer.Option(help="Commas between hour, day, month, year, tenant, user, project, type.")] = (
        "tenant,user"
    ),
    since: Annotated[str | None, typer.Option(help="From this month or date on; by default this month.")] = None,
    until: Annotated[str | None, typer.Option(help="Up to this month or date, exclusive.")] = None,
    month: Annotated[str | None, typer.Option(help="One month, e.g. 2026-11.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.", autocompletion=tenant_names)] = None,
    user: Annotated[str | None, typer.Option(help="Only this user.")] = None,
    project: Annotated[str | None, typer.Option(help="Only jobs with this label `project`.")] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write the rows to a file: .parquet or .csv.", metavar="FILE")
    ] = None,
    server: ServerOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show used GPU hours, energy, ended jobs and cost; of running jobs up to now.

    Examples:

      rota usage

      rota usage --by month,project --since 2026-01

      rota usage --month 2026-11 --by user,type --save november.parquet

      rota usage -o csv
    """
    if context.invoked_subcommand is not None:
        return
    from rota.sdk.client import Client

    if month is not None:
        if since is not None or until is not None:
            raise RotaError("--month stands for --since and --until; give one of them")
        since, until = month, _month_after(month)
    if save is not None and save.suffix not in (".parquet", ".csv"):
        raise RotaError(f"--save {save}: the name must end in .parquet or .csv")
    found = Client(server).usage(by, since=since, until=until, tenant=tenant, user=user, project=project)
    if save is not None:
        _save(found["rows"], found["by"], save)
        echo(f"{len(found['rows'])} rows written to {save}", err=True)
        return
    cost = Column(key="cost", title=f"cost {found['currency']}".rstrip(), right=True, show=_number)
    columns = (*(Column(key=name) for name in found["by"]), *_SUMS, cost)
    emit(found["rows"], columns, output, nothing=f"nothing was used since {found['since']}")
    if output is OutputFormat.TABLE and len(found["rows"]) > 1:
        total = found["total"]
        words = "" if total["cost"] is None else f", {_number(total['cost'])} {found['currency']}".rstrip()
        echo(f"in all {_number(total['gpu_hours'])} GPU hours, {total['jobs']} ended jobs{words}", err=True)


def _month_after(month: str) -> str:
    year, dash, number = month.partition("-")
    if not (dash and year.isdecimal() and number.isdecimal() and len(month) == 7 and 1 <= int(number) <= 12):
        raise RotaError(f"--month is {month!r}; write it like 2026-11")
    return f"{int(year) + 1}-01" if number == "12" else f"{year}-{int(number) + 1:02}"


def _save(rows: list[Json], by: list[str], path: Path) -> None:
    """Write rows to a file, with the same columns and types whatever there is in them: files of months fit together."""
    import polars

    number, text = polars.Float64(), polars.String()
    sums = {"gpu_hours": number, "cost": number, "energy_kwh": number, "jobs": polars.Int64()}
    frame = polars.DataFrame(rows, schema={**dict.fromkeys(by, text), **sums})
    try:
        frame.write_parquet(path) if path.suffix == ".parquet" else frame.write_csv(path)
    except OSError as error:
        raise RotaError(f"--save {path}: it can't be written: {error}") from error


@app.command("prices")
def prices(
    pairs: Annotated[list[str] | None, typer.Argument(help="TYPE=PRICE for an hour; `*` stands for others.")] = None,
    energy: Annotated[float | None, typer.Option(help="The price of a kilowatt-hour.", min=0)] = None,
    currency: Annotated[str | None, typer.Option(help="The currency, e.g. EUR.")] = None,
    server: ServerOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the prices, or set them from the present hour on (for admins).

    Examples:

      rota usage prices

      rota usage prices H100=3.20 A100=1.80 '*=1' --currency EUR
    """
    from rota.sdk.client import Client

    client = Client(server)
    found = client.prices()
    if pairs or energy is not None or currency is not None:
        wanted = {**found["per_gpu_hour"], **dict(_pair(each) for each in pairs or ())}
        found = client.set_prices(
            wanted,
            per_kwh=found["per_kwh"] if energy is None else energy,
            currency=found["currency"] if currency is None else currency,
        )
    rows = [{"what": f"GPU hour of {kind}", "price": price} for kind, price in found["per_gpu_hour"].items()]
    rows += [{"what": "kWh", "price": found["per_kwh"]}] if found["per_kwh"] else []
    title = f"price {found['currency']}".rstrip()
    emit(rows, (Column(key="what"), Column(key="price", title=title, right=True)), output, nothing="no prices are set")


def _pair(text: str) -> tuple[str, float]:
    kind, equals, price = text.rpartition("=")
    try:
        if equals and kind:
            return kind, float(price)
    except ValueError:
        pass
    raise RotaError(f"{text!r} is not a price; write it like H100=3.20")


def shares(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.", autocompletion=tenant_names)] = None,
    server: ServerOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the fair-share standing of tenants and users, with the columns of Slurm's `sshare`.

    Usage counts half after every 7 days. A fair share of 1 is unused, 0.5 exactly its share, less is above it.

    Examples:

      rota shares

      rota shares --tenant nlp -o csv
    """
    from rota.sdk.client import Client

    emit(Client(server).shares(tenant), _STANDINGS, output, nothing="nothing was used yet")
