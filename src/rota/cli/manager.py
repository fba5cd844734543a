"""What the commands for a manager share: its address, and how a followed job's end becomes a status."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from rota.core.errors import Unavailable
from rota.sdk.client import Client

SUCCEEDED, FAILED, CANCELLED = 0, 100, 103
INTERRUPTED = 130
_STATUS = {"succeeded": SUCCEEDED, "failed": FAILED, "cancelled": CANCELLED}

ServerOption = Annotated[
    str | None,
    typer.Option("--server", help="The manager's address; by default the one on this machine.", metavar="URL"),
]


def follow(client: Client, job_id: str, *, show: bool = True, **which: int | None) -> int:
    """Print what a job says until it ends; its outcome as a status. Ctrl-C only stops the printing."""
    back = f"job {job_id} goes on; come back with `rota logs -f {job_id}`"
    try:
        for said in client.logs(job_id, follow=True, **which):
            if show:
                sys.stdout.buffer.write(said)
                sys.stdout.buffer.flush()
    except KeyboardInterrupt:
        typer.echo(f"\n{back}", err=True)
        return INTERRUPTED
    except Unavailable as error:
        raise Unavailable(f"{error}; {back} when it is there again") from error
    job = client.job(job_id)
    if job["state"] not in _STATUS:
        raise Unavailable(f"the manager at {client.url} stopped; {back} when it is there again")
    if job["state"] != "succeeded":
        typer.echo(f"job {job_id} {job['state']}{_because(job)}", err=True)
    return _STATUS[job["state"]]


def _because(job: dict[str, Any]) -> str:
    return f": {job['message']}" if job["message"] else ""
