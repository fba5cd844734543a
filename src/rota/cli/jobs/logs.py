"""`rota logs`: the output of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.jobs.show import AnyJobArgument
from rota.cli.manager.connect import ServerOption, client_for
from rota.cli.terminal import NeutralOutput

if TYPE_CHECKING:
    from rota.drivers.kubernetes.user import ClusterUser
    from rota.drivers.slurm.user import SlurmUser
    from rota.sdk.client import Client


def logs(
    job: AnyJobArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the output until the job ends; exit 100 if it failed.")
    ] = False,
    task: Annotated[int | None, typer.Option(help="The task's rank; 0 by default.", min=0)] = None,
    attempt: Annotated[int | None, typer.Option(help="Which attempt; the last by default.", min=1)] = None,
    tail: Annotated[int | None, typer.Option(help="Only the last lines.", min=0, metavar="LINES")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print every byte as it is; terminal escapes of the job take effect.")
    ] = False,
    server: ServerOption = None,
) -> int:
    """Print the output of a job. Terminal escapes are shown as text and colours are dropped, unless with --raw.

    Examples:

      rota logs 17

      rota logs -f 17 --task 1

      rota logs 17 --tail 20

      rota logs 17 --raw > output.bin
    """
    from rota.cli.manager.connect import follow as follow_job

    client = client_for(server)
    size = None if tail is None else _size(client, job, tail, task, attempt)
    if follow:
        return follow_job(client, job, raw=raw, task=task, attempt=attempt, tail=size)
    shown = NeutralOutput(raw=raw)
    for output in client.logs(job, task=task, attempt=attempt, tail=size):
        shown.write(output)
    shown.close()
    return 0


def _size(client: Client | ClusterUser | SlurmUser, job: str, lines: int, task: int | None, attempt: int | None) -> int:
    """The number of bytes of the last lines, from as much of a task's output as is needed."""
    size = max(8192, lines * 200)
    while True:
        output = b"".join(client.logs(job, task=task, attempt=attempt, tail=size))
        kept = output.splitlines(keepends=True)
        if len(kept) > lines or len(output) < size:
            return sum(map(len, kept[-lines:])) if lines else 0
        size *= 8
