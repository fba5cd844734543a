"""`rota submit`: a job file or a command becomes a job."""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli.manager.connect import ServerOption, client_for, follow
from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.drivers.kubernetes.user import ClusterUser
    from rota.sdk.client import Client

Json = dict[str, Any]
_FILE_ENDINGS = frozenset({".yaml", ".yml", ".json"})
_SPAN = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)
MOST_MEMBERS = 10_000


def submit(
    what: Annotated[list[str], typer.Argument(metavar="WHAT...", help="Job files, or -- and a command.")],
    name: Annotated[str | None, typer.Option("--name", help="What to call it.")] = None,
    gpus: Annotated[str | None, typer.Option(help="GPUs per task; 0.5 shares one.")] = None,
    gpu: Annotated[list[str] | None, typer.Option(help="GPU types that will do, best first.")] = None,
    workers: Annotated[int | None, typer.Option(help="Tasks, started together.", min=1)] = None,
    cpus: Annotated[str | None, typer.Option(help="CPUs per task.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory per task, e.g. 16Gi.")] = None,
    tenant: Annotated[str | None, typer.Option(help="For which tenant.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first; -1 is opportunistic.")] = None,
    time_limit: Annotated[str | None, typer.Option(help="End it after so long, e.g. 12h.")] = None,
    max_restarts: Annotated[int | None, typer.Option(help="How often to start it again if it fails.", min=0)] = None,
    after: Annotated[list[str] | None, typer.Option("--depends-on", help="A job that must succeed first.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE for the tasks.")] = None,
    secret: Annotated[list[str] | None, typer.Option(help="NAME=VALUE that is never shown again.")] = None,
    array: Annotated[str | None, typer.Option(help="One job per number, e.g. 0-9; see ROTA_ARRAY_INDEX.")] = None,
    image: Annotated[
        str | None, typer.Option(help="The container image to run it in; on Kubernetes there must be one.")
    ] = None,
    no_image: Annotated[
        bool, typer.Option("--no-image", help="Run without the file's container image, on the machine as it is.")
    ] = False,
    held: Annotated[bool, typer.Option("--held", help="Keep it from starting until it is released.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Submit nothing; say when it would start.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it to its end; exit 100 if it failed.")] = False,
    server: ServerOption = None,
) -> int:
    """Submit job files, all or none, or a command; print the jobs' ids.

    Examples:

      rota submit train.yaml

      rota submit prepare.yaml train.yaml

      rota submit --name bert --gpus 4 --workers 2 -- torchrun train.py

      rota submit --array 0-9 --gpus 1 -- python sweep.py

      rota submit openpai-job.yaml --no-image

      rota --context my-cluster submit --image pytorch/pytorch:2.5.1 --gpus 1 -- python train.py
    """
    jobs: list[Json] = [_from_file(path) for path in _files(what)] or [{"run": what}]
    needs = {"gpus": gpus, "gpu": gpu, "cpus": cpus, "memory": memory}
    own = {
        "name": name,
        "image": image,
        "workers": workers,
        "tenant": tenant,
        "priority": priority,
        "time_limit": time_limit,
        "max_restarts": max_restarts,
        "depends_on": after,
    }
    given = {key: value for key, value in needs.items() if value is not None}
    for job in jobs:
        job.update({key: value for key, value in own.items() if value is not None})
        if given:
            job["resources"] = {**job.get("resources", {}), **given}
        if no_image:
            job.pop("image", None)
        _set_env(job, env or [], secret or [])
        job.setdefault("workdir", os.getcwd())
    if dry_run:
        if len(jobs) > 1:
            raise RotaError(f"--dry-run tries one job; these are {len(jobs)}")
        return _try_out(jobs[0], server)
    return _send(jobs, array, held=held, wait=wait, server=server)


def _send(jobs: list[Json], array: str | None, *, held: bool, wait: bool, server: str | None) -> int:
    from rota.files.job import job_file

    for job in jobs:
        job_file(job)
    if array is not None:
        jobs = [{**job, "array": number} for job in jobs for number in _members(array)]
    client = client_for(server)
    ids = client.submit(jobs, key=uuid.uuid4().hex, held=held)
    for job_id in ids:
        typer.echo(job_id)
    _warn(client, ids[0])
    if not wait:
        return 0
    outcomes = [follow(client, job_id, show=len(ids) == 1) for job_id in ids]
    return max(outcomes)


def _warn(client: Client | ClusterUser, job_id: str) -> None:
    """Say at once if it will wait for ever."""
    reason = client.job(job_id)["reason"]
    if reason is not None and reason["code"] in ("never-fits", "device-memory-too-small"):
        typer.echo(f"note: job {job_id} waits, and can't start here: {reason['sentence']}", err=True)


def _try_out(job: Json, server: str | None) -> int:
    from rota.cli.jobs.show import expectation
    from rota.files.job import job_file

    job_file(job)
    expected = client_for(server).try_out(job)["expected"]
    if expected is None:
        typer.echo("the cluster would take it; when it would start is known at Rota's own address: --server URL")
    else:
        typer.echo(expectation(expected))
    return 0


def _files(what: list[str]) -> list[Path]:
    """The job files that were named; none if it is a command."""
    paths = [Path(word) for word in what]
    if paths[0].suffix not in _FILE_ENDINGS:
        return []
    for path in paths:
        if path.suffix not in _FILE_ENDINGS:
            raise RotaError(f"{path} is no job file as {paths[0]} is; give files alone, or -- and a command")
    return paths


def _from_file(path: Path) -> Json:
    from rota.files.job import read_job_file

    return dict(read_job_file(path))


def _set_env(job: Json, env: list[str], secret: list[str]) -> None:
    for given, hide in ((env, False), (secret, True)):
        for pair in given:
            key, equals, value = pair.partition("=")
            if not equals:
                raise RotaError(f"--{'secret' if hide else 'env'} is {key!r}; write it as NAME=VALUE")
            job["env"] = {**job.get("env", {}), key: {"secret": value} if hide else value}


def _members(text: str) -> list[int]:
    """The numbers in `0-9` or `1,3,5-7`."""
    found: dict[int, None] = {}
    for part in text.split(","):
        span = _SPAN.fullmatch(part.strip())
        first, last = (int(span[1]), int(span[2] or span[1])) if span else (1, 0)
        if first > last or last - first >= MOST_MEMBERS:
            raise RotaError(f"--array is {text!r}; write it like 0-9 or 1,3,5-7, at most {MOST_MEMBERS} numbers")
        found.update(dict.fromkeys(range(first, last + 1)))
    return list(found)
