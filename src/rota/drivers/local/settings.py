"""How tasks are run, and the order that a supervisor gets for its task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rota.core.model.job import WHOLE
from rota.drivers.local.attempt import Attempt
from rota.drivers.local.cgroup import Cgroups, NoCgroups, TaskLimits
from rota.drivers.local.confinement.abilities import Confinement
from rota.drivers.local.confinement.accounts import AccountMap, own_account
from rota.drivers.local.confinement.device_rules import DeviceNumber, refused
from rota.drivers.local.gpu.abilities import GpuAbilities
from rota.drivers.local.gpu.mps import MpsDaemons
from rota.drivers.local.gpu.settings import GpuSettings
from rota.drivers.local.plan_environment import plan_variables
from rota.drivers.local.task import TaskHandle
from rota.drivers.local.task_environment import environment, login_environment, tied_cpus
from rota.drivers.local.task_runner.files import TELL
from rota.store import clock
from rota.store.run_folder import Json, shared_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How tasks are run."""

    home: Path
    barrier_s: float = 60.0
    log_bytes: int = 16 << 20
    log_files: int = 8
    accounts: AccountMap = field(default_factory=AccountMap)
    """Under which Unix account the tasks of a job run."""
    confinement: Confinement = field(default_factory=Confinement)
    """How tasks are kept apart that run as other users than the manager."""
    umask: int | None = None
    """The mode bits that files of tasks don't get where no account is mapped; None: as the manager."""
    task_env: Mapping[str, str] = field(default_factory=dict)
    """Variables of all tasks; those of the submitting shell and of the job take precedence."""
    device_nodes: tuple[DeviceNumber | None, ...] = ()
    """By index of a device: its node, which only tasks may open that have the device."""
    scratch_bytes: int = 0
    """What a job may write to its own folders; 0 is no limit."""
    limits: Cgroups | NoCgroups = field(default_factory=lambda: NoCgroups(why="not asked for"))
    """What enforces the tasks' limits: the kernel, or the supervisors as far as they can."""
    max_processes: int = 4096
    """Processes and threads that a task may have at a time, where the kernel counts them."""
    nvml: str | None = None
    """The folder of `pynvml`, by which supervisors see what tasks use of GPUs; None where devices are no GPUs."""
    gpu_settings: GpuSettings = field(default_factory=GpuSettings)
    """How GPUs are watched, limited and shared."""
    mps: MpsDaemons | None = None
    """The daemons through which packed jobs share a GPU; None: they share it as the driver schedules them."""
    gpu: GpuAbilities | None = None
    """By what supervisors suspend what runs on GPUs; None where that can't be or is not to be done."""

    @property
    def pipe(self) -> Path:
        """The pipe on which supervisors report changes in their folders."""
        return self.home / "notify"


def task_order(attempt: Attempt, task: TaskHandle, port: int, settings: Settings) -> Json:
    """Return what a supervisor has to know to run a task."""
    slot = task.slot
    role = attempt.job.roles[slot.role]
    account = attempt.account
    cgroup = settings.limits.make(
        task.token,
        TaskLimits(
            cpu_milli=role.cpu_milli,
            memory_bytes=role.memory_bytes,
            processes=settings.max_processes,
            refused=refused(settings.device_nodes, slot.devices),
        ),
    )
    env = environment(
        slot,
        attempt.job,
        attempt.launch,
        tasks=len(attempt.tasks),
        attempt=attempt.number,
        port=port,
        folder=str(shared_folder(settings.home, attempt.job.id)),
        token=task.token,
        tell=str(task.folder / TELL),
        login={**login_environment(account or own_account()), **settings.task_env},
    )
    tasks = [other.slot for other in attempt.tasks]
    plan = plan_variables(attempt.job, attempt.launch.plan, tasks, slot, address=env["MASTER_ADDR"], port=port)
    return {
        "argv": list(attempt.launch.roles[slot.role].argv),
        "env": {**plan, **env, **_mps_variables(attempt, task, settings)},
        "workdir": attempt.launch.workdir or str(shared_folder(settings.home, attempt.job.id)),
        "barrier": attempt.is_gang,
        "barrier_s": settings.barrier_s,
        "grace_s": attempt.launch.grace_s,
        "clock_offset_s": clock.offset_s(),
        "memory_bytes": role.memory_bytes,
        "cgroup": cgroup,
        "cpus": [] if cgroup and settings.limits.keeps_cpus else tied_cpus(role.cpu_milli),
        "gpus": list(slot.devices) if settings.nvml else [],
        "nvml": settings.nvml,
        "gpu_memory": _gpu_memory_limit(attempt, task, settings),
        "cuda": settings.gpu.library if settings.gpu and slot.devices and len(attempt.tasks) == 1 else None,
        "log_bytes": settings.log_bytes,
        "log_files": settings.log_files,
        "token": task.token,
        "notify": str(settings.pipe),
        "uid": None if account is None else account.uid,
        "gid": None if account is None else account.gid,
        "groups": [] if account is None else list(account.groups),
        "umask": settings.umask if account is None else account.umask,
        "confine": attempt.confine,
        "scratch": attempt.scratch,
    }


def _mps_variables(attempt: Attempt, task: TaskHandle, settings: Settings) -> dict[str, str]:
    """Return the variables by which a packed task shares its GPU through MPS; none for other tasks.

    A client reaches one daemon, and there is one for each GPU: a task with parts of several GPUs does without.
    """
    if settings.mps is None or len(task.slot.devices) != 1:
        return {}
    gpu = task.slot.devices[0]
    held = [slot for slot in attempt.placement if slot.role == task.slot.role and slot.devices >> gpu & 1]
    if not held or held[0].in_turn or held[0].milli == WHOLE:
        return {}
    memory_bytes = attempt.job.roles[task.slot.role].device_memory_bytes
    return settings.mps.variables(gpu, attempt.account, held[0].milli, memory_bytes)


def _gpu_memory_limit(attempt: Attempt, task: TaskHandle, settings: Settings) -> Json | None:
    """What a task may hold of each GPU, and how long it may hold more; None: as much as it likes.

    An amount that Rota has estimated does not limit a job that has its GPUs to itself.
    """
    asked = attempt.job.roles[task.slot.role].device_memory_bytes
    is_shared = any(slot.milli != WHOLE for slot in attempt.placement)
    if (
        not asked
        or settings.gpu_settings.memory_grace_s is None
        or (attempt.launch.estimates_gpu_memory and not is_shared)
    ):
        return None
    return {"bytes": asked, "grace_s": settings.gpu_settings.memory_grace_s}
