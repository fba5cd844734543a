"""`rota logs`: what a job says."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rota.cli.manager import ServerOption
from rota.cli.show import JobArgument


def logs(
    job: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends; exit as it does.")] = False,
    task: Annotated[int | None, typer.Option(help="The task's rank; 0 by default.", min=0)] = None,
    attempt: Annotated[int | None, typer.Option(help="Which attempt; the last by default.", min=1)] = None,
    tail: Annotated[int | None, typer.Option(help="Only the last so many bytes.", min=0)] = None,
    server: ServerOption = None,
) -> int:
    """Print what a job says.

    Examples:

      rota logs 17

      rota logs -f 17 --task 1
    """
    from rota.cli.manager import follow as follow_job
    from rota.sdk.client import Client

    client = Client(server)
    if follow:
        return follow_job(client, job, task=task)
    for said in client.logs(job, task=task, attempt=attempt, tail=tail):
        sys.stdout.buffer.write(said)
    sys.stdout.buffer.flush()
    return 0
