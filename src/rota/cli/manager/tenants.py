"""`rota tenants`: the tenants, their usage and their guarantees, which may change while jobs run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rota.cli.manager.connect import ServerOption
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.cli.terminal import echo
from rota.core.errors import RotaError

app = typer.Typer(invoke_without_command=True, help="List the tenants and their jobs, or change their guarantees.")
COLUMNS = (
    Column(key="tenant"),
    Column(key="running", right=True),
    Column(key="waiting", right=True),
    Column(key="ended", right=True),
    Column(key="held", title="devices held", right=True, show=lambda held: f"{held:g}"),
    Column(key="guaranteed", right=True),
    Column(key="borrowed", right=True, show=lambda held: f"{held:g}"),
    Column(key="lent", right=True, show=lambda held: f"{held:.3g}"),
)
CHANGE_COLUMNS = (Column(key="change"), Column(key="number", right=True), Column(key="names"))
SHOWN = 8
"""How many names of one kind a table shows."""


@app.callback()
def tenants(context: typer.Context, server: ServerOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the tenants and their jobs; `rota tenants apply FILE` changes their guarantees.

    Examples:

      rota tenants

      rota tenants apply hived.yaml --dry-run
    """
    if context.invoked_subcommand is not None:
        return
    from rota.sdk.client import Client

    rows = []
    for each in Client(server).tenants():
        jobs = each["jobs"]
        rows.append(
            {
                **each,
                "running": sum(jobs.get(state, 0) for state in ("starting", "running")),
                "waiting": sum(jobs.get(state, 0) for state in ("waiting", "held", "suspended")),
                "ended": sum(jobs.get(state, 0) for state in ("succeeded", "failed", "cancelled")),
            }
        )
    emit(rows, COLUMNS, output)


@app.command("apply")
def apply(
    file: Annotated[Path, typer.Argument(help="A cluster file, Rota's or HiveD's.", metavar="FILE")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    server: ServerOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Apply a cluster file: nodes, tenants, shares and cells change while jobs run.

    Nothing that runs is stopped. A job that no longer fits its tenant's guarantee continues without one. A file that
    can't be kept changes nothing.

    Examples:

      rota tenants apply hived.yaml --dry-run

      rota tenants apply hived.yaml
    """
    from rota.files.cluster_file import cluster_from_document
    from rota.files.document import read_document
    from rota.sdk.client import Client

    document = read_document(file)
    cluster_from_document(document, file)
    if not isinstance(document, dict):
        raise RotaError(f"{file}: not a cluster file")
    answer = Client(server).change_cluster(document, dry_run=dry_run)
    changed: dict[str, list[str]] = answer["changed"]
    if not dry_run and answer["without_guarantee"]:
        changed = {**changed, "jobs without a guarantee now": answer["without_guarantee"]}
    rows: list[dict[str, Any]] = [
        {"change": kind, "number": len(names), "names": names if output is OutputFormat.JSON else _some(names)}
        for kind, names in changed.items()
    ]
    if rows or output is not OutputFormat.TABLE:
        emit(rows, CHANGE_COLUMNS, output)
    if not answer["changed"]:
        echo("nothing changes: the cluster is as the file says", err=True)
    elif dry_run:
        echo("this is what would change; nothing was", err=True)


def _some(names: list[str]) -> str:
    rest = "" if len(names) <= SHOWN else f" and {len(names) - SHOWN} more"
    return ", ".join(names[:SHOWN]) + rest
