"""`rota show` and `rota why`: one job."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from rota.cli.manager import ServerOption
from rota.cli.render import OutputFormat, OutputOption, emit

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]


def show(job: JobArgument, server: ServerOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show everything about a job; secrets are covered.

    Examples:

      rota show 17

      rota show 17 -o json
    """
    from rota.sdk.client import Client

    found = Client(server).job(job)
    if output is not OutputFormat.TABLE:
        emit([found], (), output)
        return
    for key, value in found.items():
        if value not in (None, "", []):
            typer.echo(f"{key + ':':<12} {_text(value)}")


def why(job: JobArgument, server: ServerOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """Say why a job waits.

    Examples:

      rota why 17
    """
    from rota.sdk.client import Client

    client = Client(server)
    found = client.job(job)
    reason = client.why(job)
    answer: dict[str, Any] = {"id": found["id"], "state": found["state"], "reason": reason}
    if output is not OutputFormat.TABLE:
        emit([answer], (), output)
        return
    said = reason["sentence"] if reason else found["message"]
    typer.echo(f"job {job} is {found['state']}" + (f": {said}" if said else ""))


def _text(value: object) -> str:
    if isinstance(value, dict):
        return str(value["sentence"]) if "sentence" in value else json.dumps(value, ensure_ascii=False)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
