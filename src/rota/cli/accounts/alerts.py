"""`rota alerts`: what the rules found, acknowledged or silenced for a time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rota.cli.completion import alert_ids, alert_rules
from rota.cli.manager.connect import ServerOption
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import RotaError

app = typer.Typer(invoke_without_command=True, help="List alerts, acknowledge them, or silence them for a time.")


def _marks(row: dict[str, object]) -> str:
    by = row["acknowledged_by"]
    return ", ".join(part for part in ("silenced" if row["silenced"] else "", f"taken by {by}" if by else "") if part)


COLUMNS = (
    Column(key="id"),
    Column(key="state"),
    Column(key="severity"),
    Column(key="rule"),
    Column(key="since", show=lambda value: "-" if value is None else str(value)[:16].replace("T", " ")),
    Column(key="text"),
    Column(key="note", show=lambda value: value or "-"),
)
_RULES = (
    Column(key="name"),
    Column(key="severity"),
    Column(key="rule"),
    Column(key="to", show=lambda value: ", ".join(value) or "-"),
)
_SILENCES = (
    Column(key="id"),
    Column(key="rule", show=lambda value: value or "-"),
    Column(key="labels", show=lambda value: value or "-"),
    Column(key="until", show=lambda value: str(value)[:16].replace("T", " ")),
    Column(key="by"),
    Column(key="why", show=lambda value: value or "-"),
)


@app.callback()
def alerts(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Show resolved ones too.")] = False,
    server: ServerOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List alerts that fire or are pending; users see those about their tenants.

    Examples:

      rota alerts

      rota alerts --all -o json
    """
    if context.invoked_subcommand is not None:
        return
    from rota.sdk.client import Client

    found = [{**row, "note": _marks(row)} for row in Client(server).alerts()]
    shown = [row for row in found if everything or row["state"] != "resolved"]
    emit(shown, COLUMNS, output, nothing="nothing is wrong")


@app.command("rules")
def rules(server: ServerOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the rules that hold (for admins).

    Examples:

      rota alerts rules
    """
    from rota.sdk.client import Client

    rows = [{**row, "rule": _words(row)} for row in Client(server).alert_rules()]
    emit(rows, _RULES, output, nothing="there are no rules")


def _words(row: dict[str, object]) -> str:
    from rota.cli.human import duration

    if row["when"] is not None:
        for_s = float(str(row["for_s"]))
        return f"{row['when']}" + (f" for {duration(for_s)}" if for_s else "")
    return f"{row['event']}: {row['count']} within {duration(float(str(row['within_s'])))}"


@app.command("ack")
def acknowledge(
    alert: Annotated[str, typer.Argument(help="The alert's id, as `rota alerts` shows it.", autocompletion=alert_ids)],
    server: ServerOption = None,
) -> None:
    """Say that an alert is taken care of: it is not told again while it lasts (for admins).

    Examples:

      rota alerts ack 3f2a90c1b7de
    """
    from rota.sdk.client import Client

    found = Client(server).acknowledge_alert(alert)
    echo(f"alert {found['id']} ({found['rule']}) is taken by {found['acknowledged_by']}")


@app.command("silence")
def silence(
    rule: Annotated[
        str | None, typer.Argument(help="The rule's name; without it, by labels alone.", autocompletion=alert_rules)
    ] = None,
    for_: Annotated[str, typer.Option("--for", help="For how long, e.g. 2h.")] = "1h",
    labels: Annotated[str, typer.Option(help='Only alerts with these labels: tenant="nlp",node=~"a.*".')] = "",
    why: Annotated[str, typer.Option(help="A note for others.")] = "",
    server: ServerOption = None,
) -> None:
    """Tell nothing for a time of a rule's alerts, or of those with some labels (for admins).

    Examples:

      rota alerts silence node-out-of-use --for 4h --labels 'node="a1"' --why "new power supply"
    """
    from rota.files.quantities import parse_duration
    from rota.sdk.client import Client

    try:
        for_s = parse_duration(for_)
    except RotaError as error:
        raise RotaError(f"--for: {error}") from error
    found = Client(server).silence_alerts(rule or "", labels, for_s=for_s, why=why)
    echo(f"silence {found['id']} until {str(found['until'])[:16].replace('T', ' ')}")


@app.command("silences")
def silences(server: ServerOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the silences that are not over (for admins).

    Examples:

      rota alerts silences
    """
    from rota.sdk.client import Client

    emit(Client(server).silences(), _SILENCES, output, nothing="nothing is silenced")


@app.command("unsilence")
def unsilence(
    silence: Annotated[str, typer.Argument(help="The silence's id, as `rota alerts silences` shows it.")],
    server: ServerOption = None,
) -> None:
    """End a silence (for admins).

    Examples:

      rota alerts unsilence 9c1d77aa
    """
    from rota.sdk.client import Client

    Client(server).end_silence(silence)


@app.command("export")
def export(
    what: Annotated[str, typer.Argument(help="prometheus (a rule file) or grafana (a dashboard).")],
    config: Annotated[
        Path | None, typer.Option("--config", help="The manager's settings: their rules too.", metavar="FILE")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file.", metavar="FILE")] = None,
) -> None:
    """Write a rule file for Prometheus, or a dashboard for Grafana, that watch a manager of one machine.

    Rules about metrics that Prometheus scrapes are in it; those about single jobs, nodes and events are not.

    Examples:

      rota alerts export prometheus --config rota.yaml --out rota-rules.yaml

      rota alerts export grafana --out rota-dashboard.json
    """
    import json

    from rota.files.alerts.monitoring import MonitoredPlace, grafana_dashboard, prometheus_rules
    from rota.files.alerts.settings import AlertsPart
    from rota.files.up_file import read_up_file

    if what not in ("prometheus", "grafana"):
        raise RotaError(f"{what[:40]!r} is neither prometheus nor grafana")
    found: object = None
    if what == "grafana":
        found = grafana_dashboard(MonitoredPlace.MACHINE)
    else:
        part = AlertsPart() if config is None else read_up_file(config).get("alerts", AlertsPart())
        assert isinstance(part, AlertsPart), "as its field is typed"
        found = prometheus_rules(MonitoredPlace.MACHINE, part.all_rules)
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"  # JSON is YAML as well
    if out is None:
        echo(text.rstrip())
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RotaError(f"--out {out}: it can't be written: {error}") from error
    echo(f"written to {out}", err=True)
