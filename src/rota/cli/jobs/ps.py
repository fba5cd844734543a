"""`rota ps`: list jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from rota.cli.completion import tenant_names
from rota.cli.manager.connect import ServerOption, client_for
from rota.cli.render import Column, OutputFormat, OutputOption, emit
from rota.core.errors import RotaError
from rota.sdk.client import Client


def _ago(moment: str) -> str:
    passed_s = int((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if passed_s >= 2 * size:
            return f"{passed_s // size}{unit} ago"
    return f"{max(passed_s, 0)}s ago"


COLUMNS = (
    Column(key="id", right=True),
    Column(key="name"),
    Column(key="tenant"),
    Column(key="state_text", title="state"),
    Column(key="gpus", right=True, show=lambda gpus: f"{gpus:g}"),
    Column(key="tasks", right=True, wide=True),
    Column(key="priority", right=True, wide=True),
    Column(key="owner", wide=True),
    Column(key="attempt", right=True, wide=True),
    Column(key="submitted", show=_ago),
    Column(key="started", show=_ago, wide=True),
    Column(key="ended", show=_ago, wide=True),
    Column(key="exit_code", title="exit", right=True, wide=True),
    Column(key="failure", wide=True),
    Column(key="reason"),
)


def ps(
    every: Annotated[bool, typer.Option("--all", "-a", help="Also jobs that have ended.")] = False,
    tenant: Annotated[str | None, typer.Option(help="Only jobs of this tenant.", autocompletion=tenant_names)] = None,
    state: Annotated[str | None, typer.Option(help="Only jobs in this state.")] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs of this name.")] = None,
    array: Annotated[str | None, typer.Option(help="The jobs of this array, one by one.", metavar="ID")] = None,
    limit: Annotated[int | None, typer.Option(help="At most this many, the newest.", min=1)] = None,
    server: ServerOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List jobs, newest first. A table has one row for each array; `--array ID` lists its jobs.

    Examples:

      rota ps

      rota ps --array 17

      rota ps --all --tenant nlp -o json

      rota ps --all -o wide
    """
    client = client_for(server)
    only = {"tenant": tenant, "state": state, "name": name}
    if isinstance(client, Client):
        only["array"] = array
        only["collapse"] = "true" if output in (OutputFormat.TABLE, OutputFormat.WIDE) else None
    elif array is not None:
        raise RotaError("--array: a Kubernetes cluster has no arrays of Rota's; list by --name")
    rows = [row(job) for job in client.jobs(all=every, limit=limit, **only)]
    emit(rows, COLUMNS, output, nothing=_nothing(every, any((tenant, state, name, array))))


def _nothing(every: bool, filtered: bool) -> str:
    if filtered:
        return "no job matches"
    ended = "" if every else "; `rota ps --all` lists ended jobs too"
    return f"no jobs{ended}; submit one with `rota submit --gpus 1 -- python train.py`"


def row(job: dict[str, Any]) -> dict[str, Any]:
    """A job as a row: the reason in words, or why it failed."""
    reason = job["reason"]
    code = None if reason is None else reason["code"]
    sentence = reason["sentence"] if reason is not None else job["message"] or None
    array = job.get("array") or {}
    if sum((array.get("states") or {}).values()) > 1:
        return {**_array_row(job, array["states"]), "reason": sentence, "reason_code": code}
    return {**job, "reason": sentence, "reason_code": code, "state_text": job.get("state_text") or job["state"]}


def _array_row(job: dict[str, Any], states: dict[str, int]) -> dict[str, Any]:
    """An array as one row: how many jobs it has in which state; devices and tasks are those of all."""
    count = sum(states.values())
    return {
        **job,
        "id": job["array"]["id"],
        "name": f"{job['name']} ({count} jobs)",
        "state_text": ", ".join(f"{number} {state}" for state, number in sorted(states.items())),
        "gpus": job["gpus"] * count,
        "tasks": job["tasks"] * count,
    }
