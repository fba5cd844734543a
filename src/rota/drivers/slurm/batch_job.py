"""A job file as a batch job of Slurm: the options of `sbatch`, and the script."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.core.model.job import WHOLE, Level
from rota.files.job_shape import JobFile, Secret

MEBI = 2**20
_MAIL = {"start": "BEGIN", "end": "END", "fail": "FAIL", "preempted": "REQUEUE"}
WITHOUT_EFFECT = frozenset({"estimate", "tolerate_suspects", "completion", "model", "plan", "labels", "estimated"})
"""Fields that tell Rota's policies something, and change nothing about what a job is."""


@dataclass(frozen=True, slots=True)
class BatchJob:
    """What `sbatch` is given."""

    options: tuple[str, ...]
    script: str


def batch_job(file: JobFile, source: str = "job", *, held: bool = False) -> BatchJob:
    """Return a job file as a batch job; raise a `RotaError` that names what Slurm has no counterpart for."""
    _refuse(file, source)
    return BatchJob(tuple(_options(file, held)), _script(file))


def _refuse(file: JobFile, source: str) -> None:
    secrets = [name for name, value in file.env.items() if isinstance(value, Secret)]
    for is_there, what in (
        (bool(file.roles), "roles has no counterpart in a batch job; use workers, or a heterogeneous job of sbatch"),
        (file.elastic is not None, "elastic: a batch job does not change its size; give workers"),
        (file.image is not None, "image: Slurm runs containers by plugins; drop it and call yours in `run`"),
        (bool(file.volumes), "volumes: Slurm has none; drop it"),
        (bool(secrets), f"env.{secrets[0] if secrets else ''}: Slurm keeps no secrets; read it from a file in `run`"),
        (0 < file.resources.gpus < WHOLE, "resources.gpus: Slurm gives whole GPUs to jobs; ask for 1"),
        (file.priority is not None, "priority: Slurm's is set by a QOS; name one with SBATCH_QOS"),
        (not file.gang, "gang: Slurm starts all tasks of a job together; drop it, or use --array"),
        (file.deadline is not None, "deadline: pass it to sbatch yourself, with --deadline"),
        (file.class_ == "opportunistic", "class: Slurm's is set by a QOS; name one with SBATCH_QOS"),
        (file.resources.gpu_memory > 0, "resources.gpu_memory: Slurm does not know it; name a type with resources.gpu"),
        (_must_be_near(file) not in (None, Level.NODE), "locality: of hard ones Slurm has `level: node` only"),
        (file.interactive is not None, "interactive: use srun --pty, or salloc"),
        (bool(file.data), "data: Slurm fetches no data sets; name their folders in `run`"),
        (file.snapshot is not None, "snapshot: Slurm keeps no code; it runs in workdir"),
        (file.array_limit is not None, "array_limit: jobs are sent to Slurm one by one; use sbatch --array=0-9%2"),
        (file.member is not None, "member: Slurm starts all tasks of a job together"),
        (bool(file.notify) and file.notify_to != ("email",), "notify_to: Slurm sends mail only"),
    ):
        if is_there:
            raise RotaError(f"{source}: {what}")


def _must_be_near(file: JobFile) -> Level | None:
    """How near to each other the tasks have to be."""
    return file.locality.level if file.locality is not None and file.locality.hard else None


def _options(file: JobFile, held: bool) -> list[str]:
    asked, tasks = file.resources, file.workers
    options = [f"--ntasks={tasks}"]
    cpus = max(math.ceil(asked.cpus / WHOLE), 1)
    if asked.cpus:
        options.append(f"--cpus-per-task={cpus}")
    if asked.gpus:
        kind = f"{asked.gpu[0]}:" if asked.gpu else ""
        per = "--gres=gpu:" if tasks == 1 else "--gpus-per-task="
        options.append(f"{per}{kind}{asked.gpus // WHOLE}")
    if asked.memory:
        options.append(f"--mem-per-cpu={math.ceil(asked.memory / cpus / MEBI)}M")
    if file.name:
        options.append(f"--job-name={file.name}")
    if file.tenant != "default":
        options.append(f"--account={file.tenant}")
    if file.time_limit:
        options.append(f"--time={max(math.ceil(file.time_limit / 60), 1)}")
    if file.depends_on:
        options.append(f"--dependency=afterok:{':'.join(file.depends_on)}")
    if file.exclusive:
        options.append("--exclusive")
    if file.exclude_nodes:
        options.append(f"--exclude={','.join(file.exclude_nodes)}")
    if file.checkpoint is not None:
        options.append(f"--signal=B:{file.checkpoint.signal.removeprefix('SIG')}@{math.ceil(file.checkpoint.grace)}")
    if file.max_restarts is not None or file.preemptible:
        options.append("--requeue" if file.max_restarts or file.preemptible else "--no-requeue")
    if _must_be_near(file) is Level.NODE:
        options.append("--nodes=1")
    if file.notify:
        options.append(f"--mail-type={','.join(_MAIL[event] for event in file.notify)}")
    if file.workdir:
        options.append(f"--chdir={file.workdir}")
    if held:
        options.append("--hold")
    return options


def _script(file: JobFile) -> str:
    assert file.run is not None, "a file without roles says what to run"
    command = _command(file.run)
    lines = ["#!/bin/sh"]
    lines += [f"export {name}={shlex.quote(str(value))}" for name, value in file.env.items()]
    if file.array is not None:
        lines.append(f"export ROTA_ARRAY_INDEX={file.array}")
    lines.append('export ROTA_JOB_ID="$SLURM_JOB_ID" ROTA_TASKS="$SLURM_NTASKS"')
    if file.workers == 1:
        lines.append(f"export ROTA_RANK=0\nexec {command}")
    else:
        inner = f'export ROTA_RANK="$SLURM_PROCID"; exec {command}'
        lines.append(f"exec srun --kill-on-bad-exit=1 sh -c {shlex.quote(inner)}")
    return "\n".join(lines) + "\n"


def _command(run: str | Sequence[str]) -> str:
    return f"sh -c {shlex.quote(run)}" if isinstance(run, str) else shlex.join(run)
