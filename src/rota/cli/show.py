"""`rota show` and `rota why`: one job."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

import typer

from rota.cli.manager import ServerOption, client_for
from rota.cli.render import OutputFormat, OutputOption, emit

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]


def show(job: JobArgument, server: ServerOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show everything about a job; secrets are covered.

    Examples:

      rota show 17

      rota show 17 -o json
    """
    found = client_for(server).job(job)
    if output is not OutputFormat.TABLE:
        emit([found], (), output)
        return
    for key, value in found.items():
        if value not in (None, "", []):
            typer.echo(f"{key + ':':<12} {_text(value)}")


def why(job: JobArgument, server: ServerOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """Say why a job waits, and when it is expected to start.

    Examples:

      rota why 17
    """
    client = client_for(server)
    found = client.job(job)
    told = client.why(job)
    if output is not OutputFormat.TABLE:
        emit([{"id": found["id"], **told}], (), output)
        return
    said = told["reason"]["sentence"] if told["reason"] else found["message"]
    typer.echo(f"job {job} is {told['state']}" + (f": {said}" if said else ""))
    if told["expected"] is not None:
        typer.echo(expectation(told["expected"]))


def expectation(expected: dict[str, Any]) -> str:
    """When a job is expected to start, in words."""
    if expected["usual"] is None:
        return "expected start: not within a month, as things are"
    span = f"between {_clock(expected['earliest'])} and {_clock(expected['latest'])}"
    guess = "" if expected["known"] else "; a guess: nothing is known of how long the jobs ahead run"
    place = f"as number {expected['position']} of those that wait"
    return f"expected start: {_clock(expected['usual'])} ({span}), {place}{guess}"


def _clock(moment: str | None) -> str:
    if moment is None:
        return "later than in a month"
    at = datetime.fromisoformat(moment).astimezone()
    return at.strftime("%H:%M:%S" if at.date() == datetime.now(at.tzinfo).date() else "%Y-%m-%d %H:%M")


def _text(value: object) -> str:
    if isinstance(value, dict):
        return str(value["sentence"]) if "sentence" in value else json.dumps(value, ensure_ascii=False)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
