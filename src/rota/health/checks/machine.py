"""Checks of the host: disk, memory, time and cgroups."""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
from pathlib import Path

from rota.health.checks.result import CheckResult, worst_of
from rota.health.node_state import Severity

LOW_FREE, FULL_FREE = 0.05, 0.01
"""Free parts of a disk below which it is suspicious, and full."""
LOW_MEMORY = 0.02
_CLOCK_UNSYNCHRONISED = 5
"""What adjtimex returns for a clock that nothing keeps in step."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


def check_disk(folder: str) -> CheckResult:
    """The disk of a folder: free space, free inodes, and whether it can be written and read back."""
    found: list[tuple[Severity, str]] = []
    is_only_full = True
    try:
        about = os.statvfs(folder)
    except OSError as error:
        return CheckResult(
            check="disk", severity=Severity.SEVERE, text=f"{folder} can't be looked at: {error.strerror}"
        )
    free = about.f_bavail / about.f_blocks if about.f_blocks else 1.0
    inodes = about.f_favail / about.f_files if about.f_files else 1.0
    for part, what in ((free, "space"), (inodes, "inodes")):
        if part < LOW_FREE:
            severity = Severity.SEVERE if part < FULL_FREE else Severity.WARNING
            found.append((severity, f"{folder} has {part:.1%} of its {what} left"))
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"rota" * 1024)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            if file.read() != b"rota" * 1024:
                is_only_full = False
                found.append((Severity.SEVERE, f"{folder} gives back other bytes than were written"))
    except OSError as error:
        is_only_full = error.errno in _FULL
        found.append((Severity.SEVERE, f"{folder} can't be written: {error.strerror}"))
    values = {"free": round(free, 4), "free_inodes": round(inodes, 4)}
    return worst_of("disk", found, values, passes=bool(found) and is_only_full)


def check_memory(proc: Path = Path("/proc"), edac: Path = Path("/sys/devices/system/edac/mc")) -> CheckResult:
    """The host's memory: how much is available, and the errors that its controllers counted."""
    found: list[tuple[Severity, str]] = []
    amounts = _meminfo(proc / "meminfo")
    total, available = amounts.get("MemTotal", 0), amounts.get("MemAvailable", 0)
    part = available / total if total else 1.0
    if part < LOW_MEMORY:
        found.append((Severity.WARNING, f"{part:.1%} of the memory is available"))
    uncorrected = sum(_count(path) for path in edac.glob("mc*/ue_count"))
    corrected = sum(_count(path) for path in edac.glob("mc*/ce_count"))
    if uncorrected:
        found.append((Severity.SEVERE, f"the host's memory had {uncorrected} uncorrectable errors"))
    values = {"available": round(part, 4), "ecc_corrected": corrected, "ecc_uncorrected": uncorrected}
    return worst_of("memory", found, values, passes=bool(found) and not uncorrected)


def _meminfo(path: Path) -> dict[str, int]:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    pairs = [line.partition(":") for line in lines]
    return {name: int(rest.split()[0]) for name, _, rest in pairs if rest.split() and rest.split()[0].isdigit()}


def _count(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def check_time() -> CheckResult:
    """Whether something keeps the clock in step; ranks whose clocks differ blame each other."""
    try:
        state = int(ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(256)))
    except (OSError, AttributeError):
        return CheckResult(check="time", text="the kernel does not tell")
    if state == _CLOCK_UNSYNCHRONISED:
        return CheckResult(check="time", text="nothing keeps the clock in step", values={"state": state})
    return CheckResult(check="time", values={"state": state})


def check_cgroup(mount: Path = Path("/sys/fs/cgroup")) -> CheckResult:
    """Whether the kernel's limits on memory and CPUs can be used, where they are mounted at all."""
    listed = mount / "cgroup.controllers"
    if not listed.exists():
        return CheckResult(check="cgroup", text="cgroup v2 is not mounted", values={"version": 1})
    try:
        known = listed.read_text(encoding="ascii").split()
    except OSError as error:
        return CheckResult(check="cgroup", severity=Severity.WARNING, text=f"cgroups can't be read: {error.strerror}")
    missing = [name for name in ("cpu", "memory", "pids") if name not in known]
    if missing:
        return CheckResult(check="cgroup", severity=Severity.WARNING, text=f"cgroups lack {', '.join(missing)}")
    return CheckResult(check="cgroup", values={"version": 2})
