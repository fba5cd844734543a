"""How tasks are run, and the order that a supervisor gets for its task."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rota.core.errors import RotaError
from rota.core.model.job import OPPORTUNISTIC, WHOLE
from rota.drivers.local.attempt import Attempt
from rota.drivers.local.cgroup import Cgroups, NoCgroups, TaskLimits
from rota.drivers.local.confinement.abilities import Confinement
from rota.drivers.local.confinement.accounts import AccountMap, own_account
from rota.drivers.local.confinement.default_limits import DefaultLimits
from rota.drivers.local.confinement.device_rules import DeviceNumber, refused
from rota.drivers.local.containers.container_order import (
    container_login,
    container_order,
    know_images,
    visible_gpus,
)
from rota.drivers.local.containers.gpu_names import given_gpus
from rota.drivers.local.containers.settings import Containers
from rota.drivers.local.gpu.abilities import GpuAbilities
from rota.drivers.local.gpu.mig import DevicesByNode, NamedDevice
from rota.drivers.local.gpu.mig_layouts import MigLayouts
from rota.drivers.local.gpu.mps import MpsDaemons
from rota.drivers.local.gpu.settings import GpuSettings, MpsUse
from rota.drivers.local.gpu.topology import GpuTopology
from rota.drivers.local.interactive.idle_limit import IdleSessionLimit
from rota.drivers.local.task import TaskHandle
from rota.drivers.local.task_environment import TURN, environment, login_environment, tied_cpus
from rota.drivers.local.task_runner.code import CODE
from rota.drivers.local.task_runner.files import TELL
from rota.health.causes import CauseOfFailure, built_in_causes
from rota.health.failure_rate import FailureRate
from rota.network.link_guide import LinkGuide
from rota.planner.parallel.plan_environment import plan_variables
from rota.store import clock
from rota.store.data.data_sets import data_variables
from rota.store.data.snapshots import Snapshots
from rota.store.run_folder import Json, shared_folder

MPS_SLACK_BYTES = 1 << 30
"""How far a client of MPS may be above its request before the watch ends it: MPS refuses more than that by itself,
unless the client has removed the variable that says how much."""


LOG_FILES = 8
"""In how many files the output of a task is kept; the oldest is dropped whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How tasks are run."""

    home: Path
    barrier_s: float = 60.0
    log_bytes: int = 16 << 20
    log_files: int = LOG_FILES
    accounts: AccountMap = field(default_factory=AccountMap)
    """Under which Unix account the tasks of a job run."""
    confinement: Confinement = field(default_factory=Confinement)
    """How tasks are kept apart that run as other users than the manager."""
    containers: Containers = field(default_factory=Containers)
    """What runs tasks in containers."""
    data_cache_bytes: int = 64 << 30
    """What the cache of data sets from buckets may hold."""
    umask: int | None = None
    """The mode bits that files of tasks don't get where no account is mapped; None: as the manager."""
    task_env: Mapping[str, str] = field(default_factory=dict)
    """Variables of all tasks; those of the submitting shell and of the job take precedence."""
    device_nodes: tuple[DeviceNumber | None, ...] = ()
    """By index of a device: its node, which only tasks may open that have the device."""
    defaults: DefaultLimits = field(default_factory=DefaultLimits)
    """What tasks get that ask for no CPUs or no memory."""
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
    devices: DevicesByNode = field(default_factory=dict)
    """The devices of each node by name, where some are instances of partitioned GPUs."""
    mig: MigLayouts | None = None
    """The GPUs that are repartitioned when waiting jobs ask for it; None: none are."""
    topology: GpuTopology = field(default_factory=GpuTopology)
    """Where the GPUs are attached; tasks get CPUs and memory beside theirs."""
    mps: MpsDaemons | None = None
    """The daemons through which packed jobs share a GPU; None: they share it as the driver schedules them."""
    failure_rate: FailureRate = field(default_factory=FailureRate)
    """How often nodes fail, for the interval of checkpoints."""
    causes: tuple[CauseOfFailure, ...] = field(default_factory=built_in_causes)
    """The table by which the output of a failed task tells the cause."""
    guide: LinkGuide | None = None
    """What settles the order of ranks, interfaces and turns of jobs; None without a network."""
    idle_sessions: IdleSessionLimit = field(default_factory=IdleSessionLimit)
    """When terminals end in which nothing happens."""
    gpu: GpuAbilities | None = None
    """By what supervisors suspend what runs on GPUs; None where that can't be or is not to be done."""

    @property
    def pipe(self) -> Path:
        """The pipe on which supervisors report changes in their folders."""
        return self.home / "notify"


def make_cgroup(attempt: Attempt, task: TaskHandle, settings: Settings) -> Json | None:
    """Make the cgroup of a task, where there are cgroups; return what its supervisor has to know of it."""
    if attempt.launch.image is not None:
        with contextlib.suppress(RotaError):  # said when the task is started
            know_images(settings.containers)
    return settings.limits.make(task.token, _limits(attempt, task, settings))


def _limits(attempt: Attempt, task: TaskHandle, settings: Settings) -> TaskLimits:
    role = attempt.job.roles[task.slot.role]
    named, gpus = _devices(task, settings)
    return TaskLimits(
        cpu_milli=role.cpu_milli or settings.defaults.cpus(role.device_milli),
        cpu_share=settings.defaults.cpu_share(role.device_milli),
        memory_bytes=role.memory_bytes or settings.defaults.memory(role.device_milli),
        processes=settings.max_processes,
        refused=() if any(each.profile for each in named) else refused(settings.device_nodes, gpus),
    )


def _devices(task: TaskHandle, settings: Settings) -> tuple[list[NamedDevice], Sequence[int]]:
    """Return the devices of a task by name, where some are instances of GPUs, and those of them that are whole GPUs."""
    slot = task.slot
    if not settings.devices:
        return [], slot.devices
    named = [settings.devices[slot.node.id][index] for index in slot.devices]
    return named, [each.gpu for each in named if not each.profile]


def task_order(attempt: Attempt, task: TaskHandle, port: int, settings: Settings, cgroup: Json | None) -> Json:
    """Return what a supervisor has to know to run a task; `cgroup` is what it has to know of its cgroup."""
    limits = _limits(attempt, task, settings)
    slot = task.slot
    role = attempt.job.roles[slot.role]
    account = attempt.account
    named, gpus = _devices(task, settings)
    beside = sorted({each.gpu for each in named}) if named else slot.devices
    mps = _mps_variables(attempt, task, settings)
    near = settings.topology.cpus_near(beside)
    in_container = attempt.launch.image is not None
    cuda = settings.gpu if slot.devices and len(attempt.tasks) == 1 and not in_container else None
    launch = [cuda.launcher, "--launch-job"] if cuda and cuda.launcher and not mps else []
    env = {**_environment(attempt, task, port, settings), **_seen(named), **mps}
    workdir, container = _workdir(attempt, settings), None
    if in_container:
        given = given_gpus(slot.devices, named, settings.nvml)
        env |= visible_gpus(given, settings.containers)
        container = container_order(attempt, task, settings, workdir=workdir, limits=limits, gpus=given, env=env)
    return {
        "argv": [*launch, *attempt.launch.roles[slot.role].argv],
        "env": env,
        "container": container,
        "workdir": workdir,
        "code": _code(attempt, settings),
        "barrier": attempt.is_gang,
        "barrier_s": settings.barrier_s,
        "grace_s": attempt.launch.grace_s,
        "clock_offset_s": clock.offset_s(),
        "memory_bytes": limits.memory_bytes if cgroup else role.memory_bytes,
        "first_to_kill": not role.memory_bytes,
        "cgroup": cgroup,
        "cpus": tied_cpus(0 if cgroup and settings.limits.keeps_cpus else limits.cpu_milli, near),
        "numa": settings.topology.memory_near(beside),
        "gpus": list(gpus) if settings.nvml else [],
        "nvml": settings.nvml,
        "gpu_memory": _gpu_memory_limit(attempt, task, settings, MPS_SLACK_BYTES if mps else 0),
        "cuda": None if cuda is None else cuda.library,
        "cuda_several": None if cuda is None else cuda.several,
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
        "interactive": None if attempt.launch.tty is None or slot.rank else {"tty": attempt.launch.tty},
        "idle_sessions": settings.idle_sessions.order(attempt.launch.idle_s),
    }


def _workdir(attempt: Attempt, settings: Settings) -> str:
    shared = shared_folder(settings.home, attempt.job.id)
    return str(shared / CODE) if attempt.launch.snapshot else attempt.launch.workdir or str(shared)


def _code(attempt: Attempt, settings: Settings) -> str | None:
    """Return the archive that a task unpacks as its working directory."""
    digest = attempt.launch.snapshot
    return None if digest is None else str(Snapshots(settings.home).path(attempt.job.tenant, digest))


def _environment(attempt: Attempt, task: TaskHandle, port: int, settings: Settings) -> dict[str, str]:
    """Return the variables of a task, with the plan of its job if it has one."""
    env = environment(
        task.slot,
        attempt.job,
        attempt.launch,
        tasks=len(attempt.tasks),
        attempt=attempt.number,
        port=port,
        folder=str(shared_folder(settings.home, attempt.job.id)),
        token=task.token,
        tell=str(task.folder / TELL),
        login={**_login(attempt, settings), **settings.task_env},
    )
    tasks = [other.slot for other in attempt.tasks]
    plan = plan_variables(attempt.job, attempt.launch.plan, tasks, task.slot, address=env["MASTER_ADDR"], port=port)
    interval = {}
    if attempt.launch.checkpoint:
        interval = settings.failure_rate.variables(len({slot.node.id for slot in tasks}))
    links = {} if attempt.links is None else attempt.links.environment
    own = {*attempt.launch.roles[task.slot.role].env, *(env.keys() & TURN)}  # the job's own variables and labels win
    data = data_variables(settings.home, attempt.job.id, attempt.launch.data)
    return {**plan, **interval, **data, **env, **{name: value for name, value in links.items() if name not in own}}


def _login(attempt: Attempt, settings: Settings) -> dict[str, str]:
    account = attempt.account or own_account()
    if attempt.launch.image is None:
        return login_environment(account)
    return container_login(account.name, str(shared_folder(settings.home, attempt.job.id)))


def _seen(named: Sequence[NamedDevice]) -> dict[str, str]:
    """Return the variable by which a task sees devices that have names."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(each.uuid for each in named)} if named else {}


def _mps_variables(attempt: Attempt, task: TaskHandle, settings: Settings) -> dict[str, str]:
    """Return the variables by which a task shares its GPU through MPS; none for tasks that do without.

    A client reaches one daemon, and there is one for each GPU: a task with several GPUs does without. A task that asked
    for a fraction gets that fraction of the threads; one that asked for a whole GPU may use what others leave.
    """
    if settings.mps is None or len(task.slot.devices) != 1 or settings.devices:
        return {}
    gpu = task.slot.devices[0]
    held = [slot for slot in attempt.placement if slot.role == task.slot.role and slot.devices >> gpu & 1]
    takes_all = settings.gpu_settings.mps is MpsUse.ALL
    if not held or held[0].in_turn or (held[0].milli == WHOLE and not takes_all):
        return {}
    role = attempt.job.roles[task.slot.role]
    milli = held[0].milli if role.is_fraction else WHOLE
    found = settings.mps.variables(gpu, attempt.account, milli, role.device_memory_bytes)
    if settings.gpu_settings.bound and attempt.job.priority <= OPPORTUNISTIC:
        found["CUDA_MPS_CLIENT_PRIORITY"] = "1"  # below that of guaranteed jobs, whose speed is kept
    return found


def _gpu_memory_limit(attempt: Attempt, task: TaskHandle, settings: Settings, slack_bytes: int) -> Json | None:
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
    return {"bytes": asked, "slack_bytes": slack_bytes, "grace_s": settings.gpu_settings.memory_grace_s}
