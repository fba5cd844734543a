"""Cgroups: where they can be created, the kernel enforces a task's limits and knows all of its processes.

Version 2 is used where it has the memory controller, otherwise version 1. The server makes and removes a task's
cgroup; the task enters it itself, so that the supervisor beside it is never counted or killed. Where cgroups
can't be made, the supervisor watches memory and the task is tied to as many CPUs as it asked for.
"""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

from rota.drivers.local.confinement.device_rules import DeviceNumber, attach, replace_rules
from rota.drivers.local.task_runner.processes import send_if
from rota.store.run_folder import Json

CONTROLLERS = ("memory", "cpu", "pids")
"""What version 2 enforces by files; devices are refused by a program there."""
PERIOD_US = 100_000
LEAST_QUOTA_US = 1000
"""The kernel takes no smaller share of a period."""
MOST_WEIGHT = 10_000
LEAST_SHARES, MOST_SHARES = 2, 262_144
"""What the kernel takes for the weight of a cgroup: one CPU is 100 in version 2, 1024 in version 1."""
GONE_TRIES = 50
GONE_TRY_S = 0.002
MAKE_TRIES = 5
"""How often a cgroup is made: another manager may remove the parent while that is empty."""
_OF_A_MANAGER = re.compile(r"rota-[0-9a-f]{12}")
_SWAP = {"memory.max": ("memory.swap.max", "0"), "memory.limit_in_bytes": ("memory.memsw.limit_in_bytes", "")}
"""By the file of a memory limit: the file that forbids to swap past it, and what to write there if not the limit."""

_GROWING = {1: ("memory.memsw.limit_in_bytes", "memory.limit_in_bytes"), 2: ("memory.max",)}
"""By version: the files of the memory limit, in the order in which they are raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """The limits of one task; 0 is no limit."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    processes: int = 0
    """Processes and threads that it may have at a time."""
    cpu_share: int = 0
    """Its share of the CPUs while tasks want more than there are, in thousandths of a CPU; 0: as the kernel has it."""
    refused: tuple[DeviceNumber, ...] = ()
    """Devices that it may not open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCgroups:
    """No cgroups can be used here; holds the reason."""

    why: str

    keeps_cpus = False
    waits = False

    def __str__(self) -> str:
        return "watched"

    def make(self, token: str, limits: TaskLimits) -> None:
        """No cgroup."""

    def refuse(self, token: str, devices: Sequence[DeviceNumber]) -> None:
        """No device is refused."""

    def remove(self, token: str) -> None:
        """There is nothing to remove."""

    def removal(self, token: str) -> Iterator[float]:
        """There is nothing to remove."""
        return iter(())

    def sweep(self, known: Sequence[str]) -> None:
        """There is nothing to remove."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroups:
    """Where tasks' cgroups are made: by controller, the parent folder. Version 2 has one folder for all."""

    version: int
    parents: Mapping[str, Path]
    missing: Mapping[str, str] = field(default_factory=dict)
    """Controllers that can't be used here, each with the reason."""
    waits: ClassVar[bool] = True
    """Whether to make and remove them may take long, while other processes do the same."""
    tasks_bytes: int = 0
    """What all tasks may have of memory together; 0 is no limit."""

    @property
    def keeps_cpus(self) -> bool:
        """Whether CPU time is limited too."""
        return "cpu" in self.parents

    @property
    def why(self) -> str | None:
        """What is not enforced, and why; None if everything is."""
        return "; ".join(f"{name}: {reason}" for name, reason in self.missing.items()) or None

    def __str__(self) -> str:
        return f"cgroup v{self.version}: {', '.join(sorted(self.parents))}"

    def make(self, token: str, limits: TaskLimits) -> Json:
        """Make a cgroup for a task with its limits; return what the supervisor has to know of it."""
        by_controller = {name: folder / _name(token) for name, folder in self.parents.items()}
        folders = list(dict.fromkeys(by_controller.values()))
        for folder in folders:
            self._make(folder)
        self._limit(by_controller, limits)
        counter = "memory.events" if self.version == 2 else "memory.oom_control"
        enter = [str(folder / "cgroup.procs") for folder in folders]
        limit = [str(by_controller["memory"] / name) for name in _GROWING[self.version]]
        return {
            "enter": enter,
            "kills": str(by_controller["memory"] / counter),
            "limit": [path for path in limit if Path(path).exists()],
        }

    def _make(self, folder: Path) -> None:
        for left in reversed(range(MAKE_TRIES)):
            try:
                if self._make_parent(folder.parent):
                    self._set_up_parent(folder.parent)
                folder.mkdir(exist_ok=True)
            except FileNotFoundError:
                if not left:
                    raise
            else:
                return

    def _set_up_parent(self, parent: Path) -> None:
        """Hand controllers down, and limit what all tasks may have together."""
        if self.version == 2:
            enable(parent, [name for name in CONTROLLERS if name in self.parents])
        if self.tasks_bytes and parent == self.parents["memory"]:
            if self.version == 1:
                with contextlib.suppress(OSError):  # the limit is that of all below it; always so on newer kernels
                    (parent / "memory.use_hierarchy").write_text("1")
            with contextlib.suppress(OSError):  # not below what the tasks of an earlier manager hold
                _set_memory(parent, self.version, self.tasks_bytes)

    def _make_parent(self, parent: Path) -> bool:
        """Return whether it had to be made."""
        try:
            parent.mkdir()
        except FileExistsError:
            return False
        return True

    def _limit(self, folders: Mapping[str, Path], limits: TaskLimits) -> None:
        if limits.memory_bytes:
            _limit_memory(folders["memory"], self.version, limits.memory_bytes)
        if limits.cpu_milli and "cpu" in folders:
            _limit_cpu(folders["cpu"], self.version, limits.cpu_milli)
        if (limits.cpu_milli or limits.cpu_share) and "cpu" in folders:
            _share_cpu(folders["cpu"], self.version, limits.cpu_milli or limits.cpu_share)
        if limits.processes and "pids" in folders:
            (folders["pids"] / "pids.max").write_text(str(limits.processes))
        if limits.refused and "devices" in folders:
            if self.version == 2:
                attach(folders["devices"], limits.refused)
            else:
                for device in limits.refused:
                    (folders["devices"] / "devices.deny").write_text(f"{device} rwm")

    def refuse(self, token: str, devices: Sequence[DeviceNumber]) -> None:
        """Refuse a task these devices from now on, instead of those of before."""
        folder = self.parents.get("devices")
        if folder is None:
            return
        if self.version == 2:
            replace_rules(folder / _name(token), devices)
            return
        (folder / _name(token) / "devices.allow").write_text("a")
        for device in devices:
            (folder / _name(token) / "devices.deny").write_text(f"{device} rwm")

    def remove(self, token: str) -> None:
        """Kill the processes left in a task's cgroup, and remove it."""
        for wait_s in self.removal(token):
            time.sleep(wait_s)

    def removal(self, token: str) -> Iterator[float]:
        """Do the same in steps; yields how long to wait before the next one."""
        for parent in dict.fromkeys(self.parents.values()):
            yield from _removal(parent / _name(token))

    def sweep(self, known: Sequence[str]) -> None:
        """Remove the cgroups of unknown tasks, and empty parent cgroups of this and of earlier managers."""
        kept = {_name(token) for token in known}
        for parent in dict.fromkeys(self.parents.values()):
            with contextlib.suppress(FileNotFoundError):
                for folder in list(parent.iterdir()):
                    if folder.is_dir() and folder.name not in kept:
                        for wait_s in _removal(folder):
                            time.sleep(wait_s)
        self.drop_empty()
        for parent in dict.fromkeys(self.parents.values()):
            for folder in parent.parent.glob("rota-*"):
                if _OF_A_MANAGER.fullmatch(folder.name):
                    _drop(folder)

    def drop_empty(self) -> None:
        """Remove the parent cgroups of this manager that are empty; they are made again when they are needed."""
        for parent in dict.fromkeys(self.parents.values()):
            _drop(parent)


def _drop(folder: Path) -> None:
    """Remove a cgroup without cgroups and processes in it; the kernel refuses any other."""
    with contextlib.suppress(OSError):
        folder.rmdir()


def enable(folder: Path, controllers: Sequence[str]) -> None:
    """Hand controllers down to the cgroups below one of version 2."""
    (folder / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in controllers))


def _limit_memory(folder: Path, version: int, limit: int) -> None:
    _set_memory(folder, version, limit)
    if version == 2:
        (folder / "memory.oom.group").write_text("1")


def _set_memory(folder: Path, version: int, limit: int) -> None:
    name = "memory.max" if version == 2 else "memory.limit_in_bytes"
    (folder / name).write_text(str(limit))
    swap, amount = _SWAP[name]
    if (folder / swap).exists():
        (folder / swap).write_text(amount or str(limit))


def _limit_cpu(folder: Path, version: int, cpu_milli: int) -> None:
    quota_us = max(cpu_milli * PERIOD_US // 1000, LEAST_QUOTA_US)
    if version == 2:
        (folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        return
    (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (folder / "cpu.cfs_quota_us").write_text(str(quota_us))


def _share_cpu(folder: Path, version: int, cpu_milli: int) -> None:
    """Let tasks share CPUs in proportion to what they asked for, while they want more than there are."""
    if version == 2:
        (folder / "cpu.weight").write_text(str(min(max(cpu_milli // 10, 1), MOST_WEIGHT)))
    else:
        (folder / "cpu.shares").write_text(str(min(max(cpu_milli * 1024 // 1000, LEAST_SHARES), MOST_SHARES)))


def _removal(folder: Path) -> Iterator[float]:
    """Kill until nothing is left: a cgroup with processes can't be removed."""
    for _ in range(GONE_TRIES):
        for pid in _members(folder):
            send_if(pid, partial(_is_member, folder, pid), signal.SIGKILL)
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            yield GONE_TRY_S
        else:
            return


def _members(folder: Path) -> list[int]:
    """Return the processes of a cgroup; none if it is gone, is removed while it is read, or can't be read now."""
    with contextlib.suppress(OSError):
        return [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]
    return []


def _is_member(folder: Path, pid: int) -> bool:
    return pid in _members(folder)


def _name(token: str) -> str:
    return token.replace("/", "-")
