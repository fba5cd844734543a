"""`rota cancel`, `rota hold`, `rota release`."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.completion import all_job_ids, job_ids
from rota.cli.manager.connect import ServerOption, client_for
from rota.core.errors import RotaError

AnyJobs = Annotated[
    list[str] | None, typer.Argument(metavar="JOB...", help="The jobs' ids.", autocompletion=all_job_ids)
]
Jobs = Annotated[list[str] | None, typer.Argument(metavar="JOB...", help="The jobs' ids.", autocompletion=job_ids)]
NameOption = Annotated[str | None, typer.Option("--name", help="All unfinished jobs of this name, such as an array.")]


def cancel(
    jobs: Jobs = None,
    name: NameOption = None,
    force: Annotated[bool, typer.Option("--force", help="Kill at once: no time to save or clean up.")] = False,
    server: ServerOption = None,
) -> None:
    """End jobs in any state.

    Examples:

      rota cancel 17 18

      rota cancel --name sweep

      rota cancel --force 17
    """
    _act(jobs, name, "cancel", server, force=force)


def hold(jobs: Jobs = None, name: NameOption = None, server: ServerOption = None) -> None:
    """Keep waiting jobs from starting.

    Examples:

      rota hold 17
    """
    _act(jobs, name, "hold", server)


def release(jobs: Jobs = None, name: NameOption = None, server: ServerOption = None) -> None:
    """Let held jobs run.

    Examples:

      rota release 17
    """
    _act(jobs, name, "release", server)


def _act(jobs: list[str] | None, name: str | None, action: str, server: str | None, *, force: bool = False) -> None:
    """Apply the action to all jobs in one request; raise the first refusal at the end."""
    from rota.sdk.client import Client, Refused

    client = client_for(server)
    if not jobs and name is None:
        raise RotaError("name the jobs: by their ids, or with --name NAME")
    refused: list[str] = []
    if isinstance(client, Client):
        answer = client.act_on_all(action, ids=list(dict.fromkeys(jobs or [])), name=name, force=force)
        refused = [each["error"] for each in answer["refused"]]
    elif force:
        raise RotaError("--force: pods are ended by Kubernetes; use kubectl delete pod --grace-period=0 --force")
    else:
        found = [] if name is None else [str(job["id"]) for job in client.jobs(name=name)]
        if name is not None and not found:
            raise RotaError(f"--name: there is no unfinished job {name!r}")
        for job in dict.fromkeys([*(jobs or []), *reversed(found)]):
            try:
                client.act(job, action)
            except Refused as error:
                refused.append(str(error))
    if refused:
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        raise RotaError(f"{refused[0]}{more}")
