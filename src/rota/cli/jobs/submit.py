"""`rota submit`: submit job files, or a command, as jobs.

Files are validated once, by the manager or, with `--context`, by the client of the cluster.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli.completion import data_set_names, job_events, job_ids, template_names
from rota.cli.jobs.batch_script import batch_script_of, how_sent, numbered
from rota.cli.jobs.sending import pack_code, pass_on, send_sweep, try_out, warn_of_misfit
from rota.cli.manager.connect import SLURM, ServerOption, SlurmOption, TenantOption, client_for, follow, slurm_user
from rota.cli.terminal import echo
from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.files.sbatch.script import BatchScript

Json = dict[str, Any]
_FILE_ENDINGS = frozenset({".yaml", ".yml", ".json"})
_JOB = re.compile(r"job(?: (\d+))?: ", re.ASCII)
"""How errors name a submitted job file."""

WhatArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="WHAT...", help="Job files, a script with #SBATCH lines, or -- and a command."),
]
NotifyOption = Annotated[
    str | None,
    typer.Option(
        help="Of what it sends messages: start, end, fail, preempted.", metavar="EVENTS", autocompletion=job_events
    ),
]
TemplateOption = Annotated[
    str | None, typer.Option(help="A template instead; see `rota template`.", autocompletion=template_names)
]
AfterOption = Annotated[
    list[str] | None, typer.Option("--depends-on", help="A job that must succeed first.", autocompletion=job_ids)
]
DataOption = Annotated[list[str] | None, typer.Option(help="A data set that it uses.", autocompletion=data_set_names)]
EstimateOption = Annotated[str | None, typer.Option(help="How long it will run, as far as you know, e.g. 2h.")]
CheckpointOption = Annotated[
    str | None,
    typer.Option(help="It saves its work when stopped: the path in ROTA_CHECKPOINT, or '' for the usual one."),
]
PreemptibleOption = Annotated[
    bool, typer.Option("--preemptible", help="It may be stopped for other jobs although it starts over then.")
]
EnvFromShellOption = Annotated[
    str, typer.Option(help="This shell's variables for the tasks: default, all, none, or names.", metavar="WHICH")
]
NoImageOption = Annotated[
    bool, typer.Option("--no-image", help="Run without the file's container image, directly on the machine.")
]
VolumeOption = Annotated[
    list[str] | None, typer.Option(help="What is mounted in its container, as /data:/data:ro.", metavar="FROM:TO")
]
SnapshotOption = Annotated[
    bool, typer.Option("--snapshot", help="Pack the code and run that; what was run can be run again.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Submit nothing; print when it would start.")]


def submit(
    what: WhatArgument = None,
    template: TemplateOption = None,
    param: Annotated[list[str] | None, typer.Option("-p", help="NAME=VALUE of a parameter of the template.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="The job's name.")] = None,
    gpus: Annotated[str | None, typer.Option(help="GPUs per task; 0.5 shares one.")] = None,
    gpu: Annotated[list[str] | None, typer.Option(help="Acceptable GPU types, best first.")] = None,
    workers: Annotated[int | None, typer.Option(help="Tasks, started together.", min=1)] = None,
    cpus: Annotated[str | None, typer.Option(help="CPUs per task.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory per task, e.g. 16Gi.")] = None,
    tenant: TenantOption = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first; -1 is opportunistic.")] = None,
    time_limit: Annotated[str | None, typer.Option(help="End it after this time, e.g. 12h.")] = None,
    estimate: EstimateOption = None,
    checkpoint: CheckpointOption = None,
    preemptible: PreemptibleOption = False,
    max_restarts: Annotated[int | None, typer.Option(help="How often it is restarted if it fails.", min=0)] = None,
    after: AfterOption = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE for the tasks.")] = None,
    secret: Annotated[list[str] | None, typer.Option(help="NAME=VALUE that is never shown again.")] = None,
    env_from_shell: EnvFromShellOption = "default",
    array: Annotated[str | None, typer.Option(help="One job per number, e.g. 0-9, or 0-9%4: 4 at once.")] = None,
    data: DataOption = None,
    image: Annotated[str | None, typer.Option(help="The container image to run it in; required on Kubernetes.")] = None,
    volume: VolumeOption = None,
    no_image: NoImageOption = False,
    notify: NotifyOption = None,
    held: Annotated[bool, typer.Option("--held", help="Keep it from starting until it is released.")] = False,
    snapshot: SnapshotOption = False,
    dry_run: DryRunOption = False,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it to its end; exit 100 if it failed.")] = False,
    slurm: SlurmOption = False,
    server: ServerOption = None,
) -> int:
    """Submit job files, all or none, a batch script of Slurm, or a command; print the jobs' ids.

    Examples:

      rota submit train.yaml

      rota submit --name bert --gpus 4 --workers 2 -- torchrun train.py

      rota submit --array 0-9 --gpus 1 -- python sweep.py

      rota --context my-cluster submit --image pytorch/pytorch:2.5.1 --gpus 1 -- python train.py
    """
    files, jobs, script, sweep = _asked(what or [], template, param or [], tenant, server)
    needs = {"gpus": gpus, "gpu": gpu, "cpus": cpus, "memory": memory}
    own: Json = {"name": name, "image": image, "workers": workers, "tenant": tenant, "priority": priority}
    own |= {"time_limit": time_limit, "max_restarts": max_restarts, "depends_on": after, "estimate": estimate}
    own |= {"volumes": volume, "data": data, "preemptible": preemptible or None, "notify": notify and notify.split(",")}
    with _files_named(files):
        _complete(jobs, own, needs, checkpoint, (env or [], secret or []), no_image=no_image)
        sent = how_sent(script, array, env_from_shell, held=held, wait=wait)
        if sweep is not None:
            return send_sweep(sweep, server, snapshot=snapshot, dry_run=dry_run, **sent)
        return _send(jobs, script, server=server, snapshot=snapshot, dry_run=dry_run, **sent)


def _complete(
    jobs: list[Json],
    own: Json,
    needs: Json,
    checkpoint: str | None,
    env: tuple[list[str], list[str]],
    *,
    no_image: bool,
) -> None:
    """Put the options that were given over the fields of every job."""
    for number, job in enumerate(jobs, start=1):
        source = "job" if len(jobs) == 1 else f"job {number}"
        _add_options(job, own, needs, checkpoint, source, no_image=no_image)
        _set_env(job, *env, source)


def _asked(
    what: list[str], template: str | None, params: list[str], tenant: str | None, server: str | None
) -> tuple[list[Path], list[Json], BatchScript | None, Json | None]:
    """The job files that are named, and the jobs of these, of a template, a script of Slurm, or a command.

    If a template stands for a sweep, it is the last; the job of its trials is then the only one.
    """
    if template is None:
        if not params and (script := batch_script_of(what)) is not None:
            return [], [script.job], script, None
        if params:
            raise RotaError("-p: it is for --template; give the template, or -- and a command")
        if not what:
            raise RotaError("there is nothing to submit; give job files, -- and a command, or --template NAME")
        files = _files(what)
        return files, [_from_file(path) for path in files] or [{"run": what}], None, None
    if what:
        raise RotaError(f"--template is {template!r} and {what[0]!r} is given; give one of them")
    from rota.cli.jobs.template import given_parameters
    from rota.sdk.client import Client

    filled = Client(server).fill_template(template, given_parameters(params), tenant)
    sweep: Json | None = filled.get("sweep")
    return [], filled["jobs"] if sweep is None else [sweep["job"]], None, sweep


def _add_options(job: Json, own: Json, needs: Json, checkpoint: str | None, source: str, *, no_image: bool) -> None:
    """Put the options that were given over the fields of a job."""
    job.update({key: value for key, value in own.items() if value is not None})
    given = {key: value for key, value in needs.items() if value is not None}
    if given:
        job["resources"] = {**_mapping(job, "resources", source), **given}
    if checkpoint is not None:
        saves = {"path": checkpoint} if checkpoint else {}
        job["checkpoint"] = {**_mapping(job, "checkpoint", source), **saves}
    job.setdefault("workdir", os.getcwd())
    if no_image:
        job.pop("image", None)


@contextmanager
def _files_named(files: list[Path]) -> Iterator[None]:
    """Put the file's name in place of `job` or `job 2` at the head of an error."""
    try:
        yield
    except RotaError as error:
        found = _JOB.match(str(error))
        number = int(found[1] or 1) if found else 0
        if found is None or not 1 <= number <= len(files):
            raise
        raise RotaError(f"{files[number - 1]}: {str(error)[found.end() :]}") from error


def _mapping(job: Json, field: str, source: str) -> Json:
    """A field that options are added to."""
    found = job.get(field)
    if found is not None and not isinstance(found, dict):
        raise RotaError(f"{source}: {field} is {found!r:.60}; it must be a mapping of fields to values")
    return found or {}


def _send(
    jobs: list[Json],
    script: BatchScript | None,
    array: str | None,
    env_from_shell: str,
    *,
    held: bool,
    wait: bool,
    snapshot: bool,
    dry_run: bool,
    server: str | None,
) -> int:
    if dry_run or (script is not None and script.dry_run):
        return try_out(jobs, server)
    if snapshot:
        pack_code(jobs, server)
    if array is not None:
        jobs = numbered(jobs, array, script)
    if os.environ.get(SLURM):
        return _send_to_slurm(jobs, held=held, wait=wait, server=server)
    client = client_for(server)
    pass_on(jobs, env_from_shell, client)
    ids = client.submit(jobs, key=uuid.uuid4().hex, held=held)
    for job_id in ids:
        echo(job_id)
    warn_of_misfit(client, ids[0])
    if not wait:
        return 0
    outcomes = [follow(client, job_id, show=len(ids) == 1) for job_id in ids]
    return max(outcomes)


def _send_to_slurm(jobs: list[Json], *, held: bool, wait: bool, server: str | None) -> int:
    """Submit with `sbatch`, which needs no Rota and hands this shell's variables on by itself."""
    if wait:
        raise RotaError("--wait: use sbatch --wait; Slurm writes the output of its jobs to files")
    for job_id in slurm_user(server).submit(jobs, held=held):
        echo(job_id)
    return 0


def _files(what: list[str]) -> list[Path]:
    """The job files that are named; none for a command."""
    paths = [Path(word) for word in what]
    if paths[0].suffix not in _FILE_ENDINGS:
        return []
    for path in paths:
        if path.suffix not in _FILE_ENDINGS:
            raise RotaError(f"{path} is not a job file, unlike {paths[0]}; give only files, or -- and a command")
    return paths


def _from_file(path: Path) -> Json:
    from rota.files.job import read_job_values
    from rota.sweeps.file import is_sweep_file

    try:
        plain: Json = json.loads(json.dumps(read_job_values(path), default=_as_text))
    except (TypeError, ValueError, RecursionError) as error:
        raise RotaError(f"{path}: it can't be sent to a manager: {error}") from error
    if is_sweep_file(plain):
        raise RotaError(f"{path} is a sweep file; start it with `rota sweep {path}`")
    if isinstance(plain.get("plan"), str):
        plain["plan"] = _plan(path.parent / plain["plan"], path)
    return plain


def _plan(path: Path, source: Path) -> Json:
    """The plan in a file that a job file names, relative to it."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RotaError(f"{source}: plan: {path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise RotaError(f"{source}: plan: {path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise RotaError(f"{source}: plan: {path} is a {type(found).__name__}, not an object of fields")
    return found


def _as_text(value: object) -> str:
    """Dates, which YAML has and JSON has not."""
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"JSON has no {type(value).__name__}")


def _set_env(job: Json, env: list[str], secret: list[str], source: str) -> None:
    for given, hide in ((env, False), (secret, True)):
        for pair in given:
            key, equals, value = pair.partition("=")
            if not equals:
                raise RotaError(f"--{'secret' if hide else 'env'} is {key!r}; write it as NAME=VALUE")
            job["env"] = {**_mapping(job, "env", source), key: {"secret": value} if hide else value}
