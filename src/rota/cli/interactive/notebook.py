"""`rota notebook` and `rota tensorboard`: pages of jobs behind the manager's address and login."""

from __future__ import annotations

import os
import uuid
from typing import Annotated, Any

import typer

from rota.cli.completion import all_job_ids
from rota.cli.interactive.page_jobs import NOTEBOOK, TENSORBOARD, WATCH_IDLE, await_page
<<<<<<< HEAD
from rota.cli.interactive.run import manager_for
from rota.cli.manager.connect import ServerOption, TenantOption
=======
from rota.cli.interactive.run import EnvFromShell, manager_for
from rota.cli.manager.connect import ServerOption
>>>>>>> main
from rota.cli.terminal import echo
from rota.core.errors import RotaError

Json = dict[str, Any]


def notebook(
    name: Annotated[str, typer.Option("--name", help="The job's name.")] = "notebook",
    gpus: Annotated[str | None, typer.Option(help="GPUs; 0.5 shares one.")] = None,
    gpu: Annotated[list[str] | None, typer.Option(help="Acceptable GPU types, best first.")] = None,
    cpus: Annotated[str | None, typer.Option(help="CPUs.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory, e.g. 16Gi.")] = None,
    idle: Annotated[str, typer.Option(help="End it when no kernel did anything for so long; 0: never.")] = "2h",
    tenant: TenantOption = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first; -1 is opportunistic.")] = None,
    time_limit: Annotated[str | None, typer.Option(help="End it after this time, e.g. 12h.")] = None,
    env_from_shell: EnvFromShell = "default",
    server: ServerOption = None,
) -> int:
    """Start JupyterLab as a job, in this folder, and print its address at the manager.

    It is the JupyterLab of this shell's environment; browsers reach it with the manager's own login. It runs until
    `rota cancel`, or until it was idle for long.

    Examples:

      rota notebook --gpus 1

      rota notebook --gpus 2 --memory 32Gi --idle 30m
    """
    needs = {"gpus": gpus, "gpu": gpu or None, "cpus": cpus, "memory": memory}
    job: Json = {"name": name, "tenant": tenant, "priority": priority, "time_limit": time_limit}
    job["resources"] = {key: value for key, value in needs.items() if value is not None} or None
    job["run"] = ["sh", "-c", NOTEBOOK, "rota-notebook", f"{idle_seconds(idle):g}", WATCH_IDLE]
    return _serve(job, "notebook", env_from_shell, server, below="lab")


def tensorboard(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="The ids of jobs.", autocompletion=all_job_ids)],
    time_limit: Annotated[str | None, typer.Option(help="End it after this time.")] = "12h",
    env_from_shell: EnvFromShell = "default",
    server: ServerOption = None,
) -> int:
    """Start TensorBoard as a job that reads the folders of jobs, and print its address at the manager.

    It shows what they write to $ROTA_RUN_DIR. It is the TensorBoard of this shell's environment.

    Examples:

      rota tensorboard 17

      rota tensorboard 17 18 19
    """
    client = manager_for(server)
    known = {job_id: client.job(job_id) for job_id in jobs}  # whether they exist
    job: Json = {"name": "tensorboard", "time_limit": time_limit, "run": ["sh", "-c", TENSORBOARD, "rota-tensorboard"]}
    job["run"] += list(known)
    tenants = {each["tenant"] for each in known.values()}
    if len(tenants) > 1:
        raise RotaError(f"the jobs belong to several tenants: {', '.join(sorted(tenants))}; show those of one")
    job["tenant"] = tenants.pop()
    return _serve(job, "tensorboard", env_from_shell, server)


def idle_seconds(text: str) -> float:
    """Read a time after which a session ends; 0 is never."""
    from rota.files.quantities import NotAQuantity, parse_duration

    try:
        return parse_duration(text)
    except NotAQuantity as error:
        raise RotaError(f"--idle: {error}") from None


def _serve(job: Json, service: str, env_from_shell: str, server: str | None, *, below: str = "") -> int:
    """Submit a job that serves a page, and wait for it."""
    from rota.sdk.shell_env import shell_variables

    client = manager_for(server)
    file = {key: value for key, value in job.items() if value is not None}
    file |= {"max_restarts": 0, "workdir": os.getcwd(), "env": shell_variables(env_from_shell, url=client.url)}
    job_id = client.submit(file, key=uuid.uuid4().hex)[0]
    echo(f"rota: job {job_id}; `rota cancel {job_id}` ends it", err=True)
    return await_page(client, job_id, service, below)
