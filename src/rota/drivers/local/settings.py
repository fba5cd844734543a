"""How tasks are run, and the order that a supervisor gets for its task."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rota.drivers.local.attempt import Attempt
from rota.drivers.local.cgroup import Cgroups, NoCgroups, TaskLimits
from rota.drivers.local.plan_environment import plan_variables
from rota.drivers.local.task import TaskHandle
from rota.drivers.local.task_environment import environment, tied_cpus
from rota.drivers.local.task_runner.files import TELL
from rota.store.run_folder import Json, shared_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How tasks are run."""

    home: Path
    barrier_s: float = 60.0
    log_bytes: int = 16 << 20
    log_files: int = 8
    user: tuple[int, int, tuple[int, ...]] | None = None
    """User, group and further groups of the tasks' processes; None: those of the manager."""
    limits: Cgroups | NoCgroups = field(default_factory=lambda: NoCgroups(why="not asked for"))
    """What enforces the tasks' limits: the kernel, or the supervisors as far as they can."""
    max_processes: int = 4096
    """Processes and threads that a task may have at a time, where the kernel counts them."""
    nvml: str | None = None
    """The folder of `pynvml`, by which supervisors see what tasks use of GPUs; None where devices are no GPUs."""

    @property
    def pipe(self) -> Path:
        """The pipe on which supervisors report changes in their folders."""
        return self.home / "notify"


def task_order(attempt: Attempt, task: TaskHandle, port: int, settings: Settings) -> Json:
    """Return what a supervisor has to know to run a task."""
    slot = task.slot
    role = attempt.job.roles[slot.role]
    user, group, groups = settings.user or (None, None, ())
    cgroup = settings.limits.make(
        task.token,
        TaskLimits(cpu_milli=role.cpu_milli, memory_bytes=role.memory_bytes, processes=settings.max_processes),
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
    )
    tasks = [other.slot for other in attempt.tasks]
    plan = plan_variables(attempt.job, attempt.launch.plan, tasks, slot, address=env["MASTER_ADDR"], port=port)
    return {
        "argv": list(attempt.launch.roles[slot.role].argv),
        "env": {**plan, **env},
        "workdir": attempt.launch.workdir or str(shared_folder(settings.home, attempt.job.id)),
        "barrier": attempt.is_gang,
        "barrier_s": settings.barrier_s,
        "grace_s": attempt.launch.grace_s,
        "memory_bytes": role.memory_bytes,
        "cgroup": cgroup,
        "cpus": [] if cgroup and settings.limits.keeps_cpus else tied_cpus(role.cpu_milli),
        "gpus": list(slot.devices) if settings.nvml else [],
        "nvml": settings.nvml,
        "log_bytes": settings.log_bytes,
        "log_files": settings.log_files,
        "token": task.token,
        "notify": str(settings.pipe),
        "uid": user,
        "gid": group,
        "groups": list(groups),
    }
