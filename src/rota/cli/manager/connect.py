"""The connection to a manager, and the exit status of a followed job; for all commands of a manager."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli.completion import tenant_names
from rota.cli.extras import need
from rota.cli.terminal import NeutralOutput, echo
from rota.core.errors import RotaError, Unavailable
from rota.core.neutral_text import neutral
from rota.sdk.client import Client

if TYPE_CHECKING:
    from rota.drivers.kubernetes.user import ClusterUser
    from rota.drivers.slurm.user import SlurmUser

SUCCEEDED, FAILED, CANCELLED = 0, 100, 103
INTERRUPTED = 130
_STATUS = {"succeeded": SUCCEEDED, "failed": FAILED, "cancelled": CANCELLED}

CONTEXT = "ROTA_CONTEXT"
"""The variable that names a cluster of the kubeconfig instead of a manager."""
SLURM = "ROTA_SLURM"
"""The variable that says that jobs are those of the Slurm cluster of this machine."""

TenantOption = Annotated[str | None, typer.Option(help="The tenant that it belongs to.", autocompletion=tenant_names)]
ServerOption = Annotated[
    str | None,
    typer.Option("--server", help="The manager's address; by default the one on this machine.", metavar="URL"),
]


def _to_slurm(wanted: bool) -> bool:
    """Take the Slurm cluster of this machine in place of a manager, as `rota --slurm` does."""
    if wanted and (context := os.environ.get(CONTEXT)):
        raise RotaError(f"--slurm is the cluster of this machine and --context {context} another; give one of them")
    if wanted:
        os.environ[SLURM] = "1"
    return wanted


SlurmOption = Annotated[
    bool, typer.Option("--slurm", callback=_to_slurm, help="Submit to the Slurm cluster of this machine.")
]


def client_for(server: str | None) -> Client | ClusterUser | SlurmUser:
    """The client of a manager, with `rota --context` of a Kubernetes cluster, with `rota --slurm` of Slurm."""
    if os.environ.get(SLURM):
        return slurm_user(server)
    context = os.environ.get(CONTEXT)
    if context is None or server is not None:
        return Client(server)
    return cluster_user(context)


def slurm_user(server: str | None) -> SlurmUser:
    """The Slurm cluster of this machine."""
    from rota.drivers.slurm.user import SlurmUser

    return SlurmUser(server)


def cluster_user(context: str) -> ClusterUser:
    """A cluster by the name of its context."""
    need("kubernetes")
    from rota.drivers.kubernetes.user import ClusterUser

    return ClusterUser(context)


def follow(
    client: Client | ClusterUser | SlurmUser, job_id: str, *, show: bool = True, raw: bool = False, **which: int | None
) -> int:
    """Print what a job says until it ends; its outcome as a status. Ctrl-C only stops the printing."""
    back = f"job {job_id} goes on; come back with `rota logs -f {job_id}`"
    shown = NeutralOutput(raw=raw)
    try:
        for output in client.logs(job_id, follow=True, **which):
            if show:
                shown.write(output)
        shown.close()
    except KeyboardInterrupt:
        echo(err=True)
        echo(back, err=True)
        return INTERRUPTED
    except Unavailable as error:
        raise Unavailable(f"{error}; {back} when it is there again") from error
    job = client.job(job_id)
    if job["state"] not in _STATUS:
        raise Unavailable(f"the manager at {client.url} stopped; {back} when it is there again")
    if job["state"] != "succeeded":
        echo(f"job {job_id} {job['state']}{_because(job)}", err=True)
    return _STATUS[job["state"]]


def _because(job: dict[str, Any]) -> str:
    return f": {neutral(job['message'])}" if job["message"] else ""
