"""Cgroups: where they can be created, the kernel enforces a task's limits and knows all of its processes.

Version 2 is used where it has the memory controller, otherwise version 1. The server makes and removes a task's
cgroup; the task enters it itself, so that the supervisor beside it is never counted or killed. Where cgroups
can't be made, the supervisor watches memory and the task is tied to as many CPUs as it asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rota.drivers.local.task_runner.processes import send_if
from rota.store.run_folder import Json

PERIOD_US = 100_000
LEAST_QUOTA_US = 1000
"""The kernel takes no smaller share of a period."""
PROBE_BYTES = 64 << 20
GONE_TRIES = 50
_SWAP = {"memory.max": ("memory.swap.max", "0"), "memory.limit_in_bytes": ("memory.memsw.limit_in_bytes", "")}
"""By the file of a memory limit: the file that forbids to swap past it, and what to write there if not the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCgroups:
    """No cgroups can be used here; holds the reason."""

    why: str

    keeps_cpus = False

    def __str__(self) -> str:
        return "watched"

    def make(self, token: str, cpu_milli: int, memory_bytes: int) -> None:
        """No cgroup."""

    def remove(self, token: str) -> None:
        """There is nothing to remove."""

    def sweep(self, known: Sequence[str]) -> None:
        """There is nothing to remove."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroups:
    """Where tasks' cgroups are made: one folder for each hierarchy. `cpu` is None where only memory can be limited."""

    version: int
    memory: Path
    cpu: Path | None

    @property
    def keeps_cpus(self) -> bool:
        """Whether CPU time is limited too."""
        return self.cpu is not None

    def __str__(self) -> str:
        return f"cgroup v{self.version}" + ("" if self.cpu is not None else " (memory only)")

    def make(self, token: str, cpu_milli: int, memory_bytes: int) -> Json:
        """A cgroup for a task with its limits, and what the supervisor has to know of it; 0 is no limit."""
        if self.version == 2 and not self.memory.exists():
            self.memory.mkdir()
            _enable(self.memory, ["memory", "cpu"] if self.keeps_cpus else ["memory"])
        folders = self._folders(token)
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        if memory_bytes:
            _limit_memory(folders[0], self.version, memory_bytes)
        if cpu_milli and self.cpu is not None:
            _limit_cpu(folders[-1], self.version, cpu_milli)
        counter = "memory.events" if self.version == 2 else "memory.oom_control"
        return {"enter": [str(folder / "cgroup.procs") for folder in folders], "kills": str(folders[0] / counter)}

    def remove(self, token: str) -> None:
        """Kill the processes left in a task's cgroup, and remove it."""
        for folder in self._folders(token):
            _remove(folder)

    def sweep(self, known: Sequence[str]) -> None:
        """Remove the cgroups of unknown tasks, and empty parent cgroups of this manager."""
        kept = {_name(token) for token in known}
        for parent in dict.fromkeys((self.memory, self.cpu or self.memory)):
            with contextlib.suppress(FileNotFoundError):
                for folder in list(parent.iterdir()):
                    if folder.is_dir() and folder.name not in kept:
                        _remove(folder)
            with contextlib.suppress(OSError):
                parent.rmdir()

    def _folders(self, token: str) -> list[Path]:
        """A task's folder in the hierarchy of memory, and in that of CPUs where it is another."""
        return [parent / _name(token) for parent in dict.fromkeys((self.memory, self.cpu or self.memory))]


def find(home: Path, proc: Path = Path("/proc/self")) -> Cgroups | NoCgroups:
    """Return how limits can be enforced for the tasks of a manager, found by trying."""
    name = f"rota-{hashlib.sha256(str(home).encode()).hexdigest()[:12]}"
    why = "there is no cgroup file system"
    for version, look in ((2, _second), (1, _first)):
        try:
            found = look(proc, name)
            if found is None:
                continue
            memory, cpu = found
            made = Cgroups(version=version, memory=memory, cpu=cpu)
            made.make("probe", 1000, PROBE_BYTES)
            made.remove("probe")
        except OSError as error:
            why = f"cgroup v{version}: {error.strerror}"
        else:
            return made
    return NoCgroups(why=why)


def _second(proc: Path, name: str) -> tuple[Path, Path | None] | None:
    """The folders under version 2. Only a cgroup without processes can have limited ones below it, so that a manager
    that is alone in its own moves into a leaf."""
    own = _own_folder(proc, "")
    if own is None or "memory" not in (offered := (own / "cgroup.controllers").read_text().split()):
        return None
    wanted = [controller for controller in ("memory", "cpu") if controller in offered]
    if own.name == "rota-manager":  # it moved there itself when it was started before
        own = own.parent
    try:
        _enable(own, wanted)
    except OSError:
        if (own / "cgroup.procs").read_text().split() != [str(os.getpid())]:
            raise
        leaf = own / "rota-manager"
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
        _enable(own, wanted)
    parent = own / name
    if parent.exists():
        _enable(parent, wanted)
    return parent, parent if "cpu" in wanted else None


def _enable(folder: Path, controllers: Sequence[str]) -> None:
    (folder / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in controllers))


def _first(proc: Path, name: str) -> tuple[Path, Path | None] | None:
    """The folders under version 1, which has a hierarchy for each controller."""
    memory, cpu = _own_folder(proc, "memory"), _own_folder(proc, "cpu")
    return None if memory is None else (memory / name, None if cpu is None else cpu / name)


def _own_folder(proc: Path, controller: str) -> Path | None:
    """This process's own cgroup in the hierarchy of a controller (none: version 2); None if it is not mounted."""
    own = None
    for line in (proc / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            own = path
    for line in (proc / "mountinfo").read_text().splitlines():
        fields = line.split()
        root, at, (kind, _, options) = fields[3], fields[4], fields[fields.index("-") + 1 :]
        fits = controller in options.split(",") if controller else True
        if own is not None and kind == ("cgroup" if controller else "cgroup2") and fits:
            inside = own.removeprefix("/" if root == "/" else root).lstrip("/")
            return Path(at) / inside
    return None


def _limit_memory(folder: Path, version: int, limit: int) -> None:
    name = "memory.max" if version == 2 else "memory.limit_in_bytes"
    (folder / name).write_text(str(limit))
    swap, amount = _SWAP[name]
    if (folder / swap).exists():
        (folder / swap).write_text(amount or str(limit))
    if version == 2:
        (folder / "memory.oom.group").write_text("1")


def _limit_cpu(folder: Path, version: int, cpu_milli: int) -> None:
    quota_us = max(cpu_milli * PERIOD_US // 1000, LEAST_QUOTA_US)
    if version == 2:
        (folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        return
    (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (folder / "cpu.cfs_quota_us").write_text(str(quota_us))


def _remove(folder: Path) -> None:
    """Kill until nothing is left: a cgroup with processes can't be removed."""
    for _ in range(GONE_TRIES):
        with contextlib.suppress(FileNotFoundError):
            for pid in _members(folder):
                send_if(pid, partial(_is_member, folder, pid), signal.SIGKILL)
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.002)
        else:
            return


def _members(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]


def _is_member(folder: Path, pid: int) -> bool:
    return pid in _members(folder)


def _name(token: str) -> str:
    return token.replace("/", "-")
