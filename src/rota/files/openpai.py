"""OpenPAI job files (protocol version 2) as Rota's jobs.

A task role becomes a role. With gang allocation (the default) all of them are one job that starts together;
without it each task is a job of its own. CPUs and memory are turned into a number of devices where the cluster says
what stands for one, as OpenPAI does for HiveD.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.cells import CellTypeName, SkuSize
from rota.core.model.job import DEFAULT_TENANT, OPPORTUNISTIC, WHOLE, DeviceType, Job, JobId, Role, TenantId
from rota.files.document import read_document
from rota.files.shape import FileModel, checked

PRIORITIES = {"oppo": OPPORTUNISTIC, "test": 10, "prod": 100, "crit": 120}
"""OpenPAI's classes as HiveD's priorities; `test` is the default."""

_MEGABYTE = 1 << 20

Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(strict=True, ge=0)]
Positive = Annotated[int, Field(strict=True, ge=1)]


class _Resource(FileModel):
    gpu: Count = 0
    cpu: Annotated[float, Field(ge=0)] = 0
    memory_mb: Count = Field(default=0, validation_alias="memoryMB")
    ports: Any = None
    shared_memory: Any = Field(default=None, validation_alias="shmMB")


class _Completion(FileModel):
    min_failed: int | None = Field(default=None, validation_alias="minFailedInstances")
    min_succeeded: int | None = Field(default=None, validation_alias="minSucceededInstances")


class _TaskRole(FileModel):
    instances: Positive = 1
    resource: _Resource = Field(default=_Resource(), validation_alias="resourcePerInstance")
    completion: _Completion = _Completion()
    retries: Annotated[int, Field(strict=True, ge=-2)] = Field(default=0, validation_alias="taskRetryCount")
    commands: tuple[str, ...] = ()
    image: Any = Field(default=None, validation_alias="dockerImage")
    data: Any = None
    output: Any = None
    script: Any = None
    extra: Any = Field(default=None, validation_alias="extraContainerOptions")
    prerequisites: Any = None


class _RoleExtras(FileModel):
    sku_type: Name | None = Field(default=None, validation_alias="skuType")
    sku_number: Any = Field(default=None, validation_alias="skuNum")
    pinned: Name | None = Field(default=None, validation_alias="pinnedCellId")
    group: Name | None = Field(default=None, validation_alias="affinityGroupName")


class _Hived(FileModel):
    priority: Name = Field(default="test", validation_alias="jobPriorityClass")
    roles: dict[Name, _RoleExtras] = Field(default={}, validation_alias="taskRoles")


class _Extras(FileModel):
    hived: _Hived = Field(default=_Hived(), validation_alias="hivedScheduler")
    gang: bool = Field(default=True, validation_alias="gangAllocation", strict=True)
    other: Any = Field(default=None, validation_alias="com.microsoft.pai.runtimeplugin")
    submitted_from: Any = Field(default=None, validation_alias="submitFrom")
    job_status: Any = Field(default=None, validation_alias="jobStatusChangeNotification")


class _Defaults(FileModel):
    tenant: Name = Field(default=str(DEFAULT_TENANT), validation_alias="virtualCluster")
    deployment: Any = None


class _OpenPaiFile(FileModel):
    protocol: int | str = Field(validation_alias="protocolVersion")
    name: Name
    type: Any = None
    version: Any = None
    contributor: Any = None
    description: Any = None
    prerequisites: Any = None
    parameters: Any = None
    secrets: Any = None
    deployments: Any = None
    retries: Annotated[int, Field(strict=True, ge=-2)] = Field(default=0, validation_alias="jobRetryCount")
    roles: Annotated[dict[Name, _TaskRole], Field(min_length=1, validation_alias="taskRoles")]
    defaults: _Defaults = _Defaults()
    extras: _Extras = _Extras()


def is_openpai(document: object) -> bool:
    """Whether a file's values are an OpenPAI job."""
    return isinstance(document, Mapping) and "protocolVersion" in document and "taskRoles" in document


def read_openpai(path: Path, skus: Mapping[CellTypeName, SkuSize] | None = None) -> tuple[Job, ...]:
    """The jobs in an OpenPAI file: one, or one for each task where they need not start together."""
    return jobs_from(read_document(path), path, skus)


def jobs_from(document: object, path: Path, skus: Mapping[CellTypeName, SkuSize] | None = None) -> tuple[Job, ...]:
    """The jobs in a document that was read from `path`."""
    file = checked(_OpenPaiFile, document, path)
    if str(file.protocol) != "2":
        raise RotaError(f"{path}: protocolVersion is {file.protocol!r}; only 2 is known")
    if file.extras.hived.priority not in PRIORITIES:
        wrong = file.extras.hived.priority
        hint = did_you_mean(wrong, PRIORITIES)
        raise RotaError(f"{path}: extras.hivedScheduler.jobPriorityClass is {wrong!r}; {hint}")
    for name in file.extras.hived.roles:
        if name not in file.roles:
            hint = did_you_mean(name, file.roles)
            raise RotaError(f"{path}: extras.hivedScheduler.taskRoles: unknown task role {name}; {hint}")
    roles = [(_role(file, name, path, skus or {}), _pinned(file, name)) for name in file.roles]
    if not file.extras.gang:
        return tuple(
            _job(file, f"{file.name}-{role.name}-{task}", [(_single(role), pinned)])
            for role, pinned in roles
            for task in range(role.count)
        )
    if len({pinned for _, pinned in roles}) > 1:
        raise RotaError(
            f"{path}: extras.hivedScheduler.taskRoles: a gang can't be in a pinned cell and elsewhere; "
            "name one pinnedCellId for all roles, or set extras.gangAllocation to false"
        )
    return (_job(file, file.name, roles),)


def _job(file: _OpenPaiFile, name: str, roles: list[tuple[Role, str | None]]) -> Job:
    pinned = roles[0][1]
    # Retries of -1 and -2 mean without end; the job's count and its tasks' add up to how often a run may fail.
    retries = [file.retries, *(file.roles[role.name].retries for role, _ in roles)]
    return Job(
        id=JobId(name),
        name=file.name,
        tenant=TenantId(file.defaults.tenant),
        priority=PRIORITIES[file.extras.hived.priority],
        roles=tuple(role for role, _ in roles),
        max_restarts=None if min(retries) < 0 else sum(retries),
        labels=() if pinned is None else (("pinned_cell", pinned),),
    )


def _pinned(file: _OpenPaiFile, name: str) -> str | None:
    extras = file.extras.hived.roles.get(name)
    return None if extras is None else extras.pinned


def _single(role: Role) -> Role:
    return Role(name=role.name, count=1, device_milli=role.device_milli, device_types=role.device_types)


def _role(file: _OpenPaiFile, name: str, path: Path, skus: Mapping[CellTypeName, SkuSize]) -> Role:
    task = file.roles[name]
    extras = file.extras.hived.roles.get(name, _RoleExtras())
    where = f"extras.hivedScheduler.taskRoles.{name}"
    if extras.sku_type is not None and extras.pinned is not None:
        raise RotaError(f"{path}: {where} has a skuType and a pinnedCellId; keep one")
    size = None
    if extras.sku_type is not None and skus:
        size = skus.get(CellTypeName(extras.sku_type))
        if size is None:
            raise RotaError(f"{path}: {where}.skuType is {extras.sku_type!r}; {did_you_mean(extras.sku_type, skus)}")
    return Role(
        name=name,
        count=task.instances,
        device_milli=_devices(task.resource, size) * WHOLE,
        device_types=() if extras.sku_type is None else (DeviceType(extras.sku_type),),
    )


def _devices(resource: _Resource, size: SkuSize | None) -> int:
    """The devices that stand for what a task asks for: as many as the scarcest of its resources takes."""
    if size is None:
        return resource.gpu
    parts = [resource.gpu / size.gpu if size.gpu else 0.0]
    if size.cpu_milli:
        parts.append(resource.cpu * 1000 / size.cpu_milli)
    if size.memory_bytes:
        parts.append(resource.memory_mb * _MEGABYTE / size.memory_bytes)
    return max(math.ceil(max(parts)), 1)
