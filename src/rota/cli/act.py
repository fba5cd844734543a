"""`rota cancel`, `rota hold`, `rota release`: what a user does to jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.manager import ServerOption

Jobs = Annotated[list[str], typer.Argument(metavar="JOB...", help="The jobs' ids.")]


def cancel(jobs: Jobs, server: ServerOption = None) -> None:
    """End jobs, whatever they are doing.

    Examples:

      rota cancel 17 18
    """
    _act(jobs, "cancel", server)


def hold(jobs: Jobs, server: ServerOption = None) -> None:
    """Keep waiting jobs from starting.

    Examples:

      rota hold 17
    """
    _act(jobs, "hold", server)


def release(jobs: Jobs, server: ServerOption = None) -> None:
    """Let held jobs run.

    Examples:

      rota release 17
    """
    _act(jobs, "release", server)


def _act(jobs: list[str], action: str, server: str | None) -> None:
    from rota.sdk.client import Client

    client = Client(server)
    for job in jobs:
        client.act(job, action)
