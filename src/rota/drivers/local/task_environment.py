"""The environment variables of a task, and the CPUs that it may use."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence

from rota.core.model.job import Job
from rota.core.model.ranks import TaskRank
from rota.drivers.local.confinement.accounts import UnixAccount
from rota.files.job import Launch, Member

_PATH, _PATH_OF_ROOT = "/usr/local/bin:/usr/bin:/bin", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def login_environment(account: UnixAccount) -> dict[str, str]:
    """Return the variables that a login gives a user; nothing of the manager's own environment."""
    return {
        "PATH": _PATH if account.uid else _PATH_OF_ROOT,
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": account.shell,
        "LANG": "C.UTF-8",
    }


_SHIFTS = {"shift_s": "ROTA_SHIFT_S", "period_s": "ROTA_PERIOD_S"}
"""Labels that keep a job's iterations in step with those of others, and the variables that `rota.sdk.ddp` reads."""
TURN = frozenset(_SHIFTS.values())


def environment(
    slot: TaskRank,
    job: Job,
    launch: Launch,
    *,
    tasks: int,
    attempt: int,
    port: int,
    folder: str,
    token: str,
    tell: str,
    login: Mapping[str, str],
) -> dict[str, str]:
    """Return the environment of a task; the job's own variables take precedence."""
    role = launch.roles[slot.role]
    given: Mapping[str, object] = {
        "ROTA_JOB_ID": job.id,
        "ROTA_JOB_NAME": launch.name,
        "ROTA_TENANT": job.tenant,
        "ROTA_TASKS": tasks,
        "ROTA_RANK": slot.rank,
        "ROTA_ROLE": role.name,
        "ROTA_ROLE_RANK": slot.role_rank,
        "ROTA_ROLE_TASKS": tasks if job.elastic is not None else role.count,
        "ROTA_NODE": slot.node.id,
        "ROTA_GPUS": len(slot.devices),
        "ROTA_ATTEMPT": attempt,
        "ROTA_RUN_DIR": folder,
        "ROTA_TELL": tell,
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, slot.devices)),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "RANK": slot.rank,
        "WORLD_SIZE": tasks,
        "LOCAL_RANK": slot.local_rank,
    }
    extra: dict[str, object] = {"ROTA_STOP_SIGNAL": launch.signal}
    if launch.member is not None:
        extra |= _as_member(launch.member)
    if launch.array is not None:
        extra["ROTA_ARRAY_INDEX"] = launch.array
    if launch.checkpoint_path is not None:
        extra["ROTA_CHECKPOINT"] = launch.checkpoint_path
    if tasks > 1:
        extra |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}  # all of its tasks are on this machine
    extra |= {_SHIFTS[name]: value for name, value in job.labels if name in _SHIFTS}
    plain = {name: str(value) for name, value in (*given.items(), *extra.items())}
    return {**login, **plain, **role.env, "ROTA_TASK_TOKEN": token}


def _as_member(member: Member) -> dict[str, object]:
    """The numbers of a task that is a job of its own among others that belong together."""
    return {
        "ROTA_RANK": member.rank,
        "ROTA_TASKS": member.tasks,
        "ROTA_ROLE_RANK": member.role_rank,
        "ROTA_ROLE_TASKS": member.role_tasks,
    }


def tied_cpus(cpu_milli: int, near: Sequence[int] = ()) -> list[int]:
    """The CPUs that a task may use, where that is fewer than there are; neighbours begin at different ones.

    `near` are those beside its GPUs, if others are farther away: it gets some of them, or all of them.
    """
    everywhere = sorted(os.sched_getaffinity(0))
    usable = [cpu for cpu in everywhere if cpu in set(near)] or everywhere
    wanted = -(-cpu_milli // 1000)
    if not wanted or wanted >= len(usable):
        return usable if len(usable) < len(everywhere) else []
    first = secrets.randbelow(len(usable))
    return [usable[(first + number) % len(usable)] for number in range(wanted)]
