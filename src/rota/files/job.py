"""Reads job files, and makes of them the engine's job and the commands to run."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.core.errors import RotaError
from rota.core.model.job import (
    OPPORTUNISTIC,
    Checkpoint,
    DeviceType,
    Elastic,
    Job,
    JobId,
    Locality,
    Role,
    TenantId,
)
from rota.core.model.labels import NODE_NAME, TOLERATES_SUSPECTS, Operator, Requirement, fault_in_apart
from rota.files.auto import settled
from rota.files.document import read_document
from rota.files.job_strictness import refuse_ambiguous
from rota.files.shape import checked
from rota.perf.speed.sharing_labels import fault_in_labels

if TYPE_CHECKING:
    from rota.files.job_shape import JobFile, ResourcesPart, RolePart

MASK = "***"
"""The text that is shown in place of a secret."""
DEFAULT_GRACE_S = 10.0
"""The time that a job without checkpoints may take to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRun:
    """The command of a role's tasks, and how many of them decide the job's end."""

    name: str
    count: int
    argv: tuple[str, ...]
    env: dict[str, str]
    min_failed: int
    min_succeeded: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a job's tasks are run and stopped: all that a driver needs besides their placement."""

    name: str
    roles: tuple[RoleRun, ...]
    image: str | None = None
    """The image of its containers; None: its tasks are plain processes."""
    volumes: tuple[str, ...] = ()
    """What is mounted in its containers, as the file has it."""
    data: tuple[str, ...] = ()
    """The names of its data sets."""
    workdir: str | None = None
    snapshot: str | None = None
    """The digest of the packed code that is its working directory."""
    checkpoint: bool = False
    checkpoint_path: str | None = None
    grace_s: float = DEFAULT_GRACE_S
    signal: str = "SIGTERM"
    max_restarts: int | None = None
    array: int | None = None
    member: Member | None = None
    tty: bool | None = None
    """Whether users type to the first task through a terminal or through pipes; None: not at all."""
    idle_s: float | None = None
    """How long its terminal may be idle; None: as the manager says."""
    plan: str | None = None
    """The job's own plan, as JSON."""
    estimates_gpu_memory: bool = False
    """Whether `gpu_memory` is an amount that Rota has estimated, not one that the user asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """The place of a task in a job without gang, whose tasks are separate jobs."""

    rank: int
    role_rank: int
    tasks: int
    role_tasks: int


def is_job_file(document: object) -> bool:
    """Whether the values of a file are a job in Rota's own form."""
    return isinstance(document, dict) and ("run" in document or ("roles" in document and "nodes" not in document))


def read_job_file(path: Path) -> dict[str, Any]:
    """The plain values of a job file, checked; an error names file and field."""
    values = read_job_values(path)
    submitted_job(values, path)
    return values


def read_job_values(path: Path) -> dict[str, Any]:
    """The plain values of a job file, not yet checked; an OpenPAI job file is translated."""
    values = read_document(path)
    if isinstance(values, dict) and "protocolVersion" in values:
        from rota.files.openpai_job import job_values

        values = job_values(values, path)
    if not isinstance(values, dict):
        raise RotaError(f"{path}: it must be a mapping of fields to values")
    return values


def job_file(values: object, source: Path | str = "job") -> JobFile:
    """Validate plain values as a job file; an error names the field."""
    from rota.files.job_shape import JobFile

    return checked(JobFile, settled(values), Path(source))


def submitted_job(values: object, source: Path | str = "job") -> JobFile:
    """Validate plain values as a job that a user submits, its labels included."""
    file = job_file(values, source)
    if isinstance(values, dict):
        refuse_ambiguous(values, source)
    _refuse_labels(file, source)
    return file


def job_of(file: JobFile, job_id: JobId, depends_on: tuple[JobId, ...] = (), user: str = "") -> Job:
    """The job as the engine knows it."""
    locality = file.locality
    relax_after = None if locality is None else locality.relax_after
    return Job(
        id=job_id,
        roles=_roles(file),
        name=file.name or str(job_id),
        tenant=TenantId(file.tenant),
        user=user,
        priority=_priority(file),
        estimate_s=None if file.estimate == math.inf else file.estimate,
        locality=None
        if locality is None
        else Locality(
            level=locality.level, hard=locality.hard, relax_after_s=math.inf if relax_after is None else relax_after
        ),
        model=file.model,
        exclusive=file.exclusive,
        labels=tuple(sorted(file.labels.items())),
        elastic=None if file.elastic is None else Elastic(min_tasks=file.elastic.min, max_tasks=file.elastic.max),
        depends_on=depends_on,
        deadline_s=None if file.deadline is None else file.deadline.timestamp(),
        time_limit_s=None if file.time_limit == math.inf else file.time_limit,
        checkpoint=_checkpoint(file),
        preemptible=file.preemptible,
    )


def _checkpoint(file: JobFile) -> Checkpoint:
    """What the job saves; one that does not say how it saves its progress starts over."""
    if file.checkpoint is None:
        return Checkpoint(interval_s=math.inf, grace_s=DEFAULT_GRACE_S)
    return Checkpoint(interval_s=file.checkpoint.interval, grace_s=file.checkpoint.grace)


def launch_of(file: JobFile, job_id: JobId) -> Launch:
    """The commands of the job's tasks, and how they are stopped."""
    shared = {name: _reveal(value) for name, value in file.env.items()}
    parts: dict[str, RolePart | None] = {**file.roles} or {"worker": None}
    checkpoint = file.checkpoint
    return Launch(
        name=file.name or str(job_id),
        roles=tuple(_run_of(file, name, part, shared) for name, part in parts.items()),
        image=file.image,
        volumes=file.volumes,
        data=tuple(dict.fromkeys(file.data)),
        workdir=file.workdir,
        snapshot=None if file.snapshot is None else file.snapshot.digest,
        checkpoint=checkpoint is not None,
        checkpoint_path=None if checkpoint is None else checkpoint.path,
        grace_s=DEFAULT_GRACE_S if checkpoint is None else checkpoint.grace,
        signal="SIGTERM" if checkpoint is None else checkpoint.signal,
        max_restarts=file.max_restarts,
        array=file.array,
        tty=None if file.interactive is None else file.interactive.tty,
        idle_s=None if file.interactive is None else file.interactive.idle,
        member=None if file.member is None else Member(**file.member.model_dump()),
        plan=None if file.plan is None else json.dumps(file.plan),
        estimates_gpu_memory="gpu_memory" in file.estimated,
    )


def apart(
    values: dict[str, Any], source: Path | str = "job", file: JobFile | None = None
) -> Iterator[tuple[dict[str, Any], JobFile]]:
    """Yield the jobs that a file's plain values stand for: one, or without gang one for each task.

    `file` is what the values were validated as, if they were. The jobs are made from it without another validation.
    """
    from rota.files.job_shape import MemberPart

    if file is None:
        file = job_file(values, source)
    _refuse_labels(file, source)
    counts = {name: part.count for name, part in file.roles.items()} or {"": file.full_size}
    total = sum(counts.values())
    if file.gang or total == 1:
        yield values, file
        return
    ranks = itertools.count()
    for name, count in counts.items():
        alone = {"roles": {name: {**values["roles"][name], "count": 1}}} if name else {"workers": 1}
        fields = {"roles": {name: file.roles[name].model_copy(update={"count": 1})}} if name else {"workers": 1}
        for number in range(count):
            member = {"rank": next(ranks), "role_rank": number, "tasks": total, "role_tasks": count}
            part = file.model_copy(update={**fields, "gang": True, "member": MemberPart(**member)})
            yield {**values, **alone, "gang": True, "member": member}, part


def with_amounts(file: JobFile, values: dict[str, Any], source: Path | str = "job") -> JobFile:
    """Return a validated file with the amounts, labels and estimates of `values`; only these are validated.

    The other values must be those of the file.
    """
    from rota.files.job_shape import AmountsPart

    given = {name: values[name] for name in AmountsPart.model_fields if name in values}
    amounts = checked(AmountsPart, given, Path(source))
    return file.model_copy(update={name: getattr(amounts, name) for name in AmountsPart.model_fields})


def _refuse_labels(file: JobFile, source: Path | str) -> None:
    """Refuse labels of sharing and of placement that can't be read; jobs that were accepted before are not refused."""
    labels = file.labels.items()
    fault = fault_in_apart(labels) or fault_in_labels(labels, _roles(file)[0].device_milli)
    if fault is not None:
        raise RotaError(f"{source}: {f'job {file.name}: ' if file.name else ''}{fault}")


def masked(values: dict[str, Any], *, whole: bool = False) -> dict[str, Any]:
    """A job file's plain values with every secret masked; `whole`: the value of every variable."""
    shown = dict(values)
    if isinstance(shown.get("env"), dict):
        shown["env"] = {name: MASK if whole else _mask(value) for name, value in shown["env"].items()}
    if isinstance(shown.get("roles"), dict):
        shown["roles"] = {
            name: masked(role, whole=whole) if isinstance(role, dict) else role for name, role in shown["roles"].items()
        }
    return shown


def _mask(value: object) -> object:
    return {"secret": MASK} if isinstance(value, dict) else value


def _reveal(value: Any) -> str:
    return value if isinstance(value, str) else str(value.secret)


def _priority(file: JobFile) -> int:
    if file.priority is not None:
        return file.priority
    return OPPORTUNISTIC if file.class_ == "opportunistic" else 0


def _roles(file: JobFile) -> tuple[Role, ...]:
    if not file.roles:
        return (_role(file, "worker", file.full_size, file.resources),)
    return tuple(_role(file, name, part.count, part) for name, part in file.roles.items())


def _role(file: JobFile, name: str, count: int, needs: ResourcesPart | RolePart) -> Role:
    away = Requirement(NODE_NAME, Operator.NOT_IN.value, file.exclude_nodes)
    types = (needs.gpu,) if isinstance(needs.gpu, str) else needs.gpu
    return Role(
        name=name,
        count=count,
        device_milli=needs.gpus or 0,
        device_types=tuple(DeviceType(kind) for kind in types),
        device_memory_bytes=needs.gpu_memory,
        cpu_milli=needs.cpus,
        memory_bytes=needs.memory,
        requires=((away,),) if file.exclude_nodes else (),
        tolerates=(TOLERATES_SUSPECTS,) if file.tolerate_suspects else (),
    )


def _run_of(file: JobFile, name: str, part: RolePart | None, shared: dict[str, str]) -> RoleRun:
    command = file.run if part is None or part.run is None else part.run
    completion = file.completion if part is None else part.completion
    own = {} if part is None else {key: _reveal(value) for key, value in part.env.items()}
    assert command is not None
    return RoleRun(
        name=name,
        count=file.full_size if part is None else part.count,
        argv=("/bin/sh", "-c", command) if isinstance(command, str) else command,
        env={**shared, **own},
        min_failed=completion.min_failed,
        min_succeeded=completion.min_succeeded,
    )
