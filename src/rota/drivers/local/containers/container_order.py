"""The order by which a supervisor runs a task in a container, made of the task's own."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.drivers.local.cgroup import TaskLimits
from rota.drivers.local.containers.apptainer import apptainer_command
from rota.drivers.local.containers.docker import docker_command
from rota.drivers.local.containers.gpu_names import GivenGpu, cdi_names
from rota.drivers.local.containers.plan import ContainerCommand, ContainerPlan, ContainerUser
from rota.drivers.local.containers.podman import own_store, podman_command
from rota.drivers.local.containers.settings import Containers, RuntimeName
from rota.drivers.local.containers.short_folder import remove_short
from rota.drivers.local.containers.volumes import MountedVolume, image_name, volumes_of
from rota.drivers.local.task_runner.files import TELL
from rota.store.data.data_sets import DataSets, data_folder, source_of
from rota.store.run_folder import Json, remove_folder, shared_folder

if TYPE_CHECKING:
    from rota.drivers.local.attempt import Attempt
    from rota.drivers.local.settings import Settings
    from rota.drivers.local.task import TaskHandle

SHM = "/dev/shm"  # mounted, not written to
_PID_MAX = Path("/proc/sys/kernel/pid_max")
_MPS = "CUDA_MPS_PIPE_DIRECTORY"


def container_folder(home: Path, job_id: JobId, attempt: int, rank: int | str) -> Path:
    """Return where the runtime keeps what is of one task's container only."""
    return home / "runs" / job_id / f"container-{attempt}-{rank}"


def container_pid(home: Path, job_id: JobId, attempt: int, rank: int | str) -> int | None:
    """Return the first process of a task's container, where the runtime tells it."""
    try:
        return int((container_folder(home, job_id, attempt, rank) / "pid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def remove_containers(home: Path, job_id: JobId, attempt: int, ranks: Sequence[int]) -> None:
    """Remove what is left of the containers of an attempt that has ended."""
    for rank in ranks:
        folder = container_folder(home, job_id, attempt, rank)
        if folder.exists():
            remove_short(folder)
            remove_folder(folder)


def know_images(containers: Containers) -> None:
    """Find out where the manager's own images are; what is found is kept. It may take a second."""
    if containers.runtime is RuntimeName.PODMAN:
        own_store(containers.program)


def container_login(name: str, home: str) -> dict[str, str]:
    """Return what stands in for a login's variables in a container, whose image says where programs are."""
    return {"USER": name, "LOGNAME": name, "HOME": home}


def container_order(
    attempt: Attempt,
    task: TaskHandle,
    settings: Settings,
    *,
    workdir: str,
    limits: TaskLimits,
    gpus: Sequence[GivenGpu],
    env: Mapping[str, str],
) -> Json:
    """Return what a supervisor has to know; with `fault`, why the task can't be started."""
    try:
        plan = _plan(attempt, task, settings, workdir=workdir, limits=limits, gpus=gpus, env=env)
        return {**_command(plan).order(plan), "allowed": _allowed(settings.containers)}
    except RotaError as error:
        return {"fault": str(error)}


def visible_gpus(gpus: Sequence[GivenGpu], containers: Containers) -> dict[str, str]:
    """Return the variables by which a program in a container sees its GPUs, which are all that are there.

    `NVIDIA_VISIBLE_DEVICES` of an image would give a container all GPUs where NVIDIA's hook is installed.
    """
    if containers.runtime is RuntimeName.APPTAINER:
        return {}
    if not gpus:
        return {"NVIDIA_VISIBLE_DEVICES": "void"}
    is_whole = all(gpu.index is not None for gpu in gpus)
    seen = map(str, range(len(gpus))) if is_whole else (gpu.uuid for gpu in gpus)
    return {"CUDA_VISIBLE_DEVICES": ",".join(seen), "NVIDIA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus)}


def _plan(
    attempt: Attempt,
    task: TaskHandle,
    settings: Settings,
    *,
    workdir: str,
    limits: TaskLimits,
    gpus: Sequence[GivenGpu],
    env: Mapping[str, str],
) -> ContainerPlan:
    containers, account = settings.containers, attempt.account
    if containers.runtime is None:
        raise RotaError(f"image can't be honoured here: {containers.why}")
    folder = container_folder(settings.home, attempt.job.id, attempt.number, task.slot.rank)
    folder.mkdir(mode=0o700, exist_ok=True)
    if account is not None and containers.runtime is RuntimeName.APPTAINER:
        os.chown(folder, account.uid, account.gid)
    tty = attempt.launch.tty if not task.slot.rank else None
    return ContainerPlan(
        containers=containers,
        name="rota-" + task.token.replace("/", "-"),
        image=image_name(attempt.launch.image or ""),
        workdir=workdir,
        folder=folder,
        user=None if account is None else ContainerUser(uid=account.uid, gid=account.gid, groups=account.groups),
        manager_uid=os.geteuid(),
        interactive=tty is not None,
        tty=bool(tty),
        gpus=_names(gpus, containers.runtime),
        limits=_own_limits(),
        cpu_milli=limits.cpu_milli,
        memory_bytes=limits.memory_bytes,
        processes=limits.processes,
        refuses_calls=bool((attempt.confine or {}).get("seccomp")),
        implied=tuple(_implied(attempt, task, settings, workdir, env)),
        volumes=volumes_of(attempt.launch.volumes),
    )


def _command(plan: ContainerPlan) -> ContainerCommand:
    match plan.containers.runtime:
        case RuntimeName.PODMAN:
            return podman_command(plan)
        case RuntimeName.DOCKER:
            return docker_command(plan)
        case RuntimeName.APPTAINER:
            return apptainer_command(plan)
        case None:
            raise RotaError(plan.containers.why)
        case never:
            assert_never(never)


def _names(gpus: Sequence[GivenGpu], runtime: RuntimeName) -> tuple[str, ...]:
    return cdi_names(gpus) if runtime is RuntimeName.PODMAN else tuple(gpu.uuid for gpu in gpus)


def _implied(
    attempt: Attempt, task: TaskHandle, settings: Settings, workdir: str, env: Mapping[str, str]
) -> list[tuple[MountedVolume, str]]:
    """Return what every task has without a container, at the same paths: its run folder, data sets and code."""
    runtime, job_id = settings.containers.runtime, attempt.job.id
    shared, tell = str(shared_folder(settings.home, job_id)), str(task.folder / TELL)
    found = [(_same(shared), "manager"), (_same(tell), "manager")]
    if runtime is RuntimeName.PODMAN:
        found.append((_same(SHM), "manager"))  # the attempt's own, where it is confined
    if env.get(_MPS):
        found.append((_same(env[_MPS]), "manager"))
    places = data_folder(settings.home, job_id)
    for name in attempt.launch.data:
        data_set = DataSets(settings.home).find(name, attempt.job.tenant)
        is_mounted = attempt.confine is not None and runtime is not RuntimeName.DOCKER
        source = str(places / name) if is_mounted else source_of(data_set, task.folder.parent)
        found.append((MountedVolume(source=source, target=str(places / name), read_only=data_set.read_only), "manager"))
    resolves_as_root = runtime is RuntimeName.DOCKER and attempt.account is not None
    if workdir != "/" and not Path(workdir).is_relative_to(shared) and not resolves_as_root:
        found.append((_same(workdir), "user-if-there"))
    return found


def _same(path: str) -> MountedVolume:
    return MountedVolume(source=path, target=path, read_only=False)


def _own_limits() -> tuple[tuple[str, int, int], ...]:
    """Return limits of this process: a runtime that raises them fails where it may not."""
    try:
        most = int(_PID_MAX.read_text(encoding="ascii"))
    except (OSError, ValueError):
        most = 1 << 22
    processes = [most if each < 0 else min(each, most) for each in resource.getrlimit(resource.RLIMIT_NPROC)]
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ("nofile", *files), ("nproc", processes[0], processes[1])


def _allowed(containers: Containers) -> list[str] | None:
    return None if containers.volumes is None else list(containers.volumes)
