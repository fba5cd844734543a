"""`rota run`: a job in the foreground, as srun has it."""

from __future__ import annotations

import os
import uuid
from typing import Annotated, Any

import typer

from rota.cli.interactive import terminal_mode
from rota.cli.interactive.loop import SessionLoop, SessionPlan
from rota.cli.jobs.show import JobArgument
from rota.cli.jobs.submit import VolumeOption
from rota.cli.manager.connect import ServerOption, TenantOption, client_for
from rota.cli.terminal import echo
from rota.core.errors import RotaError
from rota.sdk.client import Client

Json = dict[str, Any]
IdleOption = Annotated[
    str | None, typer.Option(help="End it when nothing was typed or written for so long.", metavar="TIME")
]
EnvFromShell = Annotated[
    str, typer.Option(help="This shell's variables for it: default, all, none, or names.", metavar="WHICH")
]
TtyOption = Annotated[
    bool | None,
    typer.Option("--tty/--no-tty", "-t/-T", help="A terminal for it, or pipes; by default as this one is."),
]


def manager_for(server: str | None) -> Client:
    """The client of a manager; raises a `RotaError` where a cluster is asked itself."""
    client = client_for(server)
    if not isinstance(client, Client):
        raise RotaError(
            "sessions go through a manager; name one with --server URL, also for pods of a Kubernetes cluster"
        )
    return client


def run(
    what: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="The command and its arguments.")],
    name: Annotated[str | None, typer.Option("--name", help="The job's name.")] = None,
    gpus: Annotated[str | None, typer.Option(help="GPUs; 0.5 shares one.")] = None,
    gpu: Annotated[list[str] | None, typer.Option(help="Acceptable GPU types, best first.")] = None,
    workers: Annotated[int | None, typer.Option(help="Tasks, started together; the first has the terminal.")] = None,
    cpus: Annotated[str | None, typer.Option(help="CPUs per task.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory per task, e.g. 16Gi.")] = None,
    image: Annotated[str | None, typer.Option(help="The container image to run it in.")] = None,
    volume: VolumeOption = None,
    tenant: TenantOption = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first; -1 is opportunistic.")] = None,
    time_limit: Annotated[str | None, typer.Option(help="End it after this time, e.g. 12h.")] = None,
    idle: IdleOption = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE for the tasks.")] = None,
    secret: Annotated[list[str] | None, typer.Option(help="NAME=VALUE that is never shown again.")] = None,
    env_from_shell: EnvFromShell = "default",
    tty: TtyOption = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Print its id and leave it; see rota attach.")] = False,
    server: ServerOption = None,
) -> int:
    """Run a command as a job in the foreground, with this terminal; exit with its status.

    Keys, Ctrl-C and the size of the window reach the job. Enter ~. leaves it running; `rota attach` comes back.
    Without a terminal its input and output are pipes; Ctrl-C twice cancels it.

    Examples:

      rota run --gpus 1 -- bash

      rota run --gpus 1 -- python train.py --epochs 1

      rota run --gpus 1 --image pytorch/pytorch:2.5.1 --volume /data:/data:ro -- bash

      rota run --gpus 1 --idle 2h -- bash

      cat data.txt | rota run -- sort | head
    """
    has_tty = _has_tty(tty, idle, detach=detach)
    needs = {"gpus": gpus, "gpu": gpu, "cpus": cpus, "memory": memory}
    job: Json = {"name": name, "workers": workers, "tenant": tenant, "priority": priority, "time_limit": time_limit}
    job |= {"resources": {key: value for key, value in needs.items() if value is not None} or None}
    job |= {"image": image, "volumes": volume or None}
    job = {key: value for key, value in job.items() if value is not None}
    interactive = {"tty": has_tty} if idle is None else {"tty": has_tty, "idle": idle}
    job |= {"run": what, "interactive": interactive, "max_restarts": 0, "workdir": os.getcwd()}
    job["env"] = _variables(env or [], secret or [], has_tty=has_tty)
    client = manager_for(server)
    from rota.sdk.shell_env import shell_variables

    if image is None:  # a container has variables of its own
        job["env"] = {**shell_variables(env_from_shell, url=client.url), **job["env"]}
    job_id = client.submit(job, key=uuid.uuid4().hex)[0]
    if detach:
        echo(job_id)
        return 0
    plan = SessionPlan(job_id=job_id, tty=has_tty, since=0, is_own=True)
    return SessionLoop(lambda: manager_for(server), plan).run()


def _has_tty(tty: bool | None, idle: str | None, *, detach: bool) -> bool:
    found = terminal_mode.is_terminal() if tty is None else tty
    if found and not detach and not terminal_mode.is_terminal():
        raise RotaError("--tty needs a terminal; leave it out, and its input and output are pipes")
    if idle is not None and not found:
        raise RotaError("--idle is for terminals; leave it out, or give it one with --tty")
    return found


def _variables(env: list[str], secret: list[str], *, has_tty: bool) -> Json:
    found: Json = {"TERM": os.environ.get("TERM", "xterm")} if has_tty else {}
    for given, hide in ((env, False), (secret, True)):
        for pair in given:
            key, equals, value = pair.partition("=")
            if not equals:
                raise RotaError(f"--{'secret' if hide else 'env'} is {key!r}; write it as NAME=VALUE")
            found[key] = {"secret": value} if hide else value
    return found


def exec_(
    job: JobArgument,
    what: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND...]", help="The command; a shell if there is none.")
    ] = None,
    rank: Annotated[int, typer.Option("--rank", "--task", help="Beside which task.", min=0)] = 0,
    tty: TtyOption = None,
    server: ServerOption = None,
) -> int:
    """Run a command beside a running task: with its devices, limits, files, user and variables.

    Examples:

      rota exec 17

      rota exec 17 --rank 1 -- nvidia-smi

      rota exec 17 -- tail -n 3 train.log | grep loss
    """
    has_tty = terminal_mode.is_terminal() if tty is None else tty
    if has_tty and not terminal_mode.is_terminal():
        raise RotaError("--tty needs a terminal; leave it out, and its input and output are pipes")
    plan = SessionPlan(job_id=job, mode="exec", task=rank, tty=has_tty, argv=list(what or []))
    return SessionLoop(lambda: manager_for(server), plan).run()


def attach(
    job: JobArgument,
    session: Annotated[
        str | None, typer.Option(help="A command beside the task that was left, by its number.", metavar="N")
    ] = None,
    rank: Annotated[int, typer.Option("--rank", "--task", help="Of which task, with --session.", min=0)] = 0,
    watch: Annotated[bool, typer.Option("--watch", help="Only watch; what is typed goes nowhere.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the sessions in the task.")] = False,
    server: ServerOption = None,
) -> int:
    """Come back to the terminal of a job that `rota run` began, also after the manager was restarted.

    Examples:

      rota attach 17

      rota attach 17 --list

      rota attach 17 --session 2
    """
    client = manager_for(server)
    if list_:
        for each in client.get(f"/jobs/{job}/sessions?task={rank}"):
            clients = "1 client" if each["clients"] == 1 else f"{each['clients']} clients"
            echo(f"{each['session']}  {clients}, idle {each['idle_s']:.0f} s  {each['command']}".rstrip())
        return 0
    is_tty = terminal_mode.is_terminal()
    found = client.job(job)
    has_tty = bool((found["spec"].get("interactive") or _own_session(client, found, rank)).get("tty", True))
    plan = SessionPlan(job_id=job, task=rank, tty=is_tty and has_tty, watch=watch, tail=16384)
    plan.mode, plan.session = ("exec", session) if session is not None else ("attach", "")
    plan.has_input = not watch
    return SessionLoop(lambda: manager_for(server), plan).run()


def _own_session(client: Client, job: Json, rank: int) -> Json:
    """Return the session of a task's own streams, which of pods is known once they run."""
    if job["state"] != "running":
        return {}
    listed: list[Json] = client.get(f"/jobs/{job['id']}/sessions?task={rank}")
    return next((each for each in listed if each["session"] == "main"), {})
