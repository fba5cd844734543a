"""What this machine offers to a manager and its jobs, and what is missing for what: the findings of `rota doctor`.

Nothing is changed: kernels and drivers are asked, and what has to be tried is tried in a process of its own.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from rota.cli.extras import way_to
from rota.drivers.local.confinement.abilities import find_confinement
from rota.drivers.local.containers.gpu_names import has_specification
from rota.drivers.local.containers.podman import fault_of_podman, find_init
from rota.drivers.local.containers.settings import RuntimeName, runtimes_here
from rota.drivers.local.gpu.abilities import gpu_abilities
from rota.drivers.local.task_runner.nvml import find_nvml
from rota.health.checks.machine import check_cgroup, check_disk, check_memory, check_time
from rota.health.checks.result import CheckResult
from rota.health.node_state import Severity

OLDEST_PYTHON = (3, 11)
LOW_DESCRIPTORS = 4096
OPTIONAL = (
    ("polars", "sim", "reports, experiments, planner, policies that solve programs"),
    ("fastapi", "server", "a manager and its dashboard"),
    ("aiohttp", "kubernetes", "pods on Kubernetes"),
    ("authlib", "oidc", "single sign-on"),
    ("psycopg", "postgresql", "a PostgreSQL database"),
    ("matplotlib", "figures", "figures as PDF and SVG"),
    ("sklearn", "estimate", "estimates of what jobs need"),
    ("torch", "learn", "learned placement and planners"),
)
"""Modules of optional parts, their extras, and what each is for."""


class Standing(Enum):
    """How a finding is rated."""

    GOOD = "good"
    MISSING = "missing"
    """Something optional is not there."""
    BAD = "bad"
    """Something that every manager needs is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFinding:
    """One thing that was looked at."""

    what: str
    standing: Standing
    found: str
    needed_for: str
    way_out: str = ""


def machine_report(folder: Path, port: int) -> Iterator[MachineFinding]:
    """Yield what is found; `folder` is where a manager would keep its data, `port` where it would listen."""
    yield _python()
    yield from _compiled()
    yield from _limits()
    yield from _checks(folder)
    yield _port(port)
    yield from _gpus()
    yield from _containers()
    yield from _extras()


def _python() -> MachineFinding:
    here = sys.version_info[:2]
    return MachineFinding(
        what="Python",
        standing=Standing.GOOD if here >= OLDEST_PYTHON else Standing.BAD,
        found=f"{platform.python_version()} on {platform.system()} {platform.release()}",
        needed_for="everything",
        way_out="" if here >= OLDEST_PYTHON else f"install Python {'.'.join(map(str, OLDEST_PYTHON))} or later",
    )


def _compiled() -> Iterator[MachineFinding]:
    from rota.core.engine import engine

    is_compiled = not str(engine.__file__).endswith(".py")
    yield MachineFinding(
        what="compiled modules",
        standing=Standing.GOOD if is_compiled else Standing.MISSING,
        found="yes" if is_compiled else "no",
        needed_for="simulations in a half to a third of the time",
        way_out="" if is_compiled else "install the wheel of this Python version, or run `make compile` in a clone",
    )


def _limits() -> Iterator[MachineFinding]:
    root = os.geteuid() == 0
    yield MachineFinding(
        what="root",
        standing=Standing.GOOD if root else Standing.MISSING,
        found="yes" if root else "no",
        needed_for="jobs that run as their users",
        way_out="" if root else "run the manager as a service of root; jobs then run as their users",
    )
    confinement = find_confinement("auto", seccomp=True)
    yield MachineFinding(
        what="confinement",
        standing=Standing.GOOD if confinement.why is None else Standing.MISSING,
        found=str(confinement),
        needed_for="tasks of strangers kept apart",
        way_out="" if confinement.why is None else f"{confinement.why}",
    )
    soft, hard = _descriptors()
    yield MachineFinding(
        what="open files",
        standing=Standing.GOOD if hard >= LOW_DESCRIPTORS else Standing.MISSING,
        found=f"{soft} (at most {hard})",
        needed_for="hundreds of jobs and users at once",
        way_out="" if hard >= LOW_DESCRIPTORS else "raise LimitNOFILE of the service, or `ulimit -Hn`",
    )


def _descriptors() -> tuple[int, int]:
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)


def _checks(folder: Path) -> Iterator[MachineFinding]:
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    yield _of_check(
        _cgroup(), "limits of memory, CPUs and processes", "mount cgroup v2 read-write; see the manager's how-to"
    )
    yield _of_check(
        check_disk(str(existing)), "the database and the output of jobs", "free space in the folder of the data"
    )
    yield _of_check(check_memory(), "the manager and its jobs", "")
    yield _of_check(check_time(), "tokens and times that agree between machines", "run chrony or systemd-timesyncd")


def _cgroup(mount: Path = Path("/sys/fs/cgroup")) -> CheckResult:
    found = check_cgroup(mount)
    if found.values.get("version") == 1 and os.access(mount / "memory", os.W_OK):
        return CheckResult(check=found.check, values=found.values)
    return found


def _of_check(result: CheckResult, needed_for: str, way_out: str) -> MachineFinding:
    is_good = result.severity is Severity.GOOD and not result.text
    figures = ", ".join(f"{name} {value}" for name, value in result.values.items() if value is not None)
    return MachineFinding(
        what=result.check,
        standing=Standing.GOOD if is_good else Standing.MISSING,
        found=result.text or figures or "nothing wrong",
        needed_for=needed_for,
        way_out="" if is_good else way_out,
    )


def _port(port: int) -> MachineFinding:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            return MachineFinding(
                what=f"port {port}",
                standing=Standing.MISSING,
                found=error.strerror or str(error),
                needed_for="the manager's default address",
                way_out="a manager may run already (`rota ps`); another port: `rota up --port 0`",
            )
    return MachineFinding(
        what=f"port {port}", standing=Standing.GOOD, found="free", needed_for="the manager's default address"
    )


def _gpus() -> Iterator[MachineFinding]:
    nvml = find_nvml()
    if nvml is None:
        yield MachineFinding(
            what="GPUs",
            standing=Standing.MISSING,
            found="no NVIDIA driver answers",
            needed_for="jobs on real GPUs",
            way_out="to try Rota without: `rota up --emulate gpu=8/4`",
        )
        return
    uuids = nvml.uuids()
    yield MachineFinding(
        what="GPUs",
        standing=Standing.GOOD,
        found=f"{len(uuids)}, driver {nvml.release()}",
        needed_for="jobs on real GPUs",
    )
    can_suspend = gpu_abilities() is not None
    yield MachineFinding(
        what="GPU suspend",
        standing=Standing.GOOD if can_suspend else Standing.MISSING,
        found="yes" if can_suspend else "no",
        needed_for="preemption that loses nothing",
        way_out="" if can_suspend else "driver 570 or later; 580 with several GPUs",
    )
    has_mps = shutil.which("nvidia-cuda-mps-control") is not None
    yield MachineFinding(
        what="MPS",
        standing=Standing.GOOD if has_mps else Standing.MISSING,
        found="yes" if has_mps else "nvidia-cuda-mps-control is not on the PATH",
        needed_for="packed jobs with limits of memory and threads",
        way_out="" if has_mps else "install the driver's compute utilities",
    )


def _containers() -> Iterator[MachineFinding]:
    faults = runtimes_here()
    there = [name for name, why in faults.items() if not why]
    missing = [f"{why} (`apt-get install podman crun catatonit`)" for name, why in faults.items() if why][:1]
    if RuntimeName.PODMAN in there and (fault := fault_of_podman()):
        missing, there = [f"mend: {fault}"], [name for name in there if name is not RuntimeName.PODMAN]
        faults[RuntimeName.PODMAN] = "podman starts no containers here"
    elif RuntimeName.PODMAN in there:
        missing = [] if find_init() else ["install catatonit: signals then reach programs that do not handle them"]
    yield MachineFinding(
        what="containers",
        standing=Standing.GOOD if there and not missing else Standing.MISSING,
        found=", ".join(name.value for name in there) or "; ".join(faults.values()),
        needed_for="jobs with an image",
        way_out="" if there and not missing else missing[0],
    )
    if find_nvml() is not None and RuntimeName.PODMAN in there:
        yield MachineFinding(
            what="GPUs in containers",
            standing=Standing.GOOD if has_specification() else Standing.MISSING,
            found="a CDI specification" if has_specification() else "no CDI specification",
            needed_for="jobs with an image and GPUs",
            way_out="" if has_specification() else "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`",
        )


def _extras() -> Iterator[MachineFinding]:
    for module, extra, needed_for in OPTIONAL:
        is_there = importlib.util.find_spec(module) is not None
        yield MachineFinding(
            what=f"extra {extra}",
            standing=Standing.GOOD if is_there else Standing.MISSING,
            found="yes" if is_there else f"{module} is not installed",
            needed_for=needed_for,
            way_out="" if is_there else way_to(extra),
        )
