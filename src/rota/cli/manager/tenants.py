"""`rota tenants`: the tenants, their usage and their guarantees, which may change while jobs run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from rota.cli.completion import tenant_names
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
    Column(key="max_priority", title="max priority", show=lambda caps: _caps(caps)),
    Column(key="max_time_s", title="max time", right=True, show=lambda limit: _time(limit)),
    Column(
        key="max_gpus_per_job", title="max GPUs", right=True, show=lambda limit: "-" if limit is None else f"{limit:g}"
    ),
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
                "waiting": sum(jobs.get(state, 0) for state in ("waiting", "held", "suspended", "preempted")),
                "ended": sum(jobs.get(state, 0) for state in ("succeeded", "failed", "cancelled")),
            }
        )
    emit(rows, COLUMNS, output)


TimeOption = Annotated[str | None, typer.Option(help="The longest time limit of a job, e.g. 12h, or none.")]
GpusOption = Annotated[str | None, typer.Option(help="The most GPUs of one job, or none.")]
RoleOption = Annotated[str, typer.Option(help="Whose jobs: member or maintainer.")]


@app.command("add")
def add(
    tenant: Annotated[str, typer.Argument(help="The tenant's name.")],
    max_priority: Annotated[int | None, typer.Option(help="The highest priority of its members' jobs.")] = None,
    max_time: TimeOption = None,
    max_gpus_per_job: GpusOption = None,
    server: ServerOption = None,
) -> None:
    """Add a tenant, so that jobs and tokens can name it.

    Examples:

      rota tenants add nlp

      rota tenants add nlp --max-priority 5
    """
    caps = {} if max_priority is None else {"member": max_priority}
    _put(tenant, caps, _limits(max_time, max_gpus_per_job), server)


@app.command("set")
def set_cap(
    tenant: Annotated[str, typer.Argument(help="The tenant's name.", autocompletion=tenant_names)],
    max_priority: Annotated[int | None, typer.Option(help="The highest priority that its jobs may have.")] = None,
    role: RoleOption = "member",
    max_time: TimeOption = None,
    max_gpus_per_job: GpusOption = None,
    server: ServerOption = None,
) -> None:
    """Set how high the priorities of a tenant's jobs may be, by role, and how long and large all of them may be.

    A job without a time limit gets the tenant's. Jobs that were submitted before keep theirs until they are updated.

    Examples:

      rota tenants set nlp --max-priority 5

      rota tenants set nlp --max-priority 100 --role maintainer

      rota tenants set nlp --max-time 2d --max-gpus-per-job 8
    """
    limits = _limits(max_time, max_gpus_per_job)
    if max_priority is None and not limits:
        raise RotaError("nothing to set; give --max-priority, --max-time or --max-gpus-per-job")
    _put(tenant, {} if max_priority is None else {role: max_priority}, limits, server)


@app.command("remove")
def remove(
    tenant: Annotated[str, typer.Argument(help="The tenant's name.", autocompletion=tenant_names)],
    server: ServerOption = None,
) -> None:
    """Remove a tenant that has no unfinished jobs.

    Examples:

      rota tenants remove nlp
    """
    from urllib.parse import quote

    from rota.sdk.client import Client

    Client(server).delete(f"/tenants/{quote(tenant, safe='')}")


def _limits(max_time: str | None, max_gpus: str | None) -> dict[str, float | None]:
    """The limits that options name; `none` removes one."""
    from rota.files.quantities import parse_duration

    found: dict[str, float | None] = {}
    if max_time is not None:
        try:
            found["max_time_s"] = None if max_time == "none" else parse_duration(max_time)
        except RotaError as error:
            raise RotaError(f"--max-time: {error}") from error
    if max_gpus is not None:
        try:
            found["max_gpus_per_job"] = None if max_gpus == "none" else float(max_gpus)
        except ValueError as error:
            raise RotaError(f"--max-gpus-per-job is {max_gpus[:40]!r}; it must be a number, or none") from error
    if any(limit is not None and not math.isfinite(limit) for limit in found.values()):
        raise RotaError("a limit must be a number; none removes it")
    return found


def _time(limit_s: float | None) -> str:
    from rota.cli.human import duration

    return "-" if limit_s is None else duration(limit_s)


def _put(tenant: str, caps: dict[str, int], limits: dict[str, float | None], server: str | None) -> None:
    from rota.sdk.client import Client

    found = Client(server).put_tenant(tenant, caps, **limits)
    words = [f"max priority {_caps(found['max_priority'])}"]
    words += [f"max time {_time(found['max_time_s'])}"] if found["max_time_s"] is not None else []
    words += [f"max GPUs per job {found['max_gpus_per_job']:g}"] if found["max_gpus_per_job"] is not None else []
    echo(f"tenant {found['tenant']}: {', '.join(words)}")


def _caps(caps: dict[str, int]) -> str:
    """Caps by role in words; one number where all are equal."""
    if len(set(caps.values())) <= 1:
        return str(next(iter(caps.values()), "-"))
    return ", ".join(f"{role} {cap}" for role, cap in caps.items())


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
