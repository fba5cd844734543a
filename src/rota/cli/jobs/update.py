"""`rota update` and `rota requeue`: change a job that waits, or run one again."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rota.cli.jobs.act import AnyJobs
from rota.cli.jobs.show import JobArgument
from rota.cli.manager.connect import ServerOption
from rota.cli.terminal import echo
from rota.core.errors import RotaError


def update(
    job: JobArgument,
    name: Annotated[str | None, typer.Option("--name", help="Its new name.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first; -1 is opportunistic.")] = None,
    estimate: Annotated[str | None, typer.Option(help="How long it will run, e.g. 2h; 'none' removes it.")] = None,
    time_limit: Annotated[str | None, typer.Option(help="End it after this time; 'none' removes it.")] = None,
    deadline: Annotated[str | None, typer.Option(help="When it should have ended; 'none' removes it.")] = None,
    max_restarts: Annotated[int | None, typer.Option(help="How often it is restarted if it fails.", min=0)] = None,
    preemptible: Annotated[
        bool | None, typer.Option("--preemptible/--not-preemptible", help="Whether it may be stopped and start over.")
    ] = None,
    server: ServerOption = None,
) -> None:
    """Change a job that waits or is held; a running job stays as it is.

    Examples:

      rota update 17 --estimate 2h

      rota update 17 --name bert-large --time-limit 12h
    """
    from rota.sdk.client import Client

    given: dict[str, Any] = {"name": name, "priority": priority, "estimate": estimate, "time_limit": time_limit}
    given |= {"deadline": deadline, "max_restarts": max_restarts, "preemptible": preemptible}
    changes = {key: None if value == "none" else value for key, value in given.items() if value is not None}
    if not changes:
        raise RotaError("nothing to change; give at least one option, such as --priority")
    Client(server).update(job, changes)


def requeue(jobs: AnyJobs = None, server: ServerOption = None) -> None:
    """Stop running jobs and let them wait again; submit ended ones again. Prints the jobs' ids.

    A running job goes on from its checkpoint, or starts over if it has none. An ended job gets a new id.

    Examples:

      rota requeue 17
    """
    from rota.sdk.client import Client

    if not jobs:
        raise RotaError("name the jobs by their ids")
    client = Client(server)
    for job in dict.fromkeys(jobs):
        echo(client.act(job, "requeue")["id"])
