"""The processes of a task: finding, measuring and killing them."""

from __future__ import annotations

import contextlib
import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.drivers.local.task_runner.files import Json


def kills_for_memory(task: Json) -> bool:
    """Whether the kernel killed a process of the task because its cgroup had no memory left."""
    cgroup = task.get("cgroup")
    if not cgroup:
        return False
    try:
        with open(cgroup["kills"], encoding="ascii") as file:
            return any(line.startswith("oom_kill ") and int(line.split()[1]) > 0 for line in file)
    except OSError:
        return False


def members_of(task: Json) -> str | None:
    """The file that lists the processes in the task's cgroup."""
    return str(task["cgroup"]["enter"][0]) if task.get("cgroup") else None


def end_session(pid: int, token: str, members: str | None = None) -> None:
    """Kill every process of the task's session and cgroup, and any other that still carries its token."""
    if not pid:
        return
    for _ in range(20):  # a process may fork while we look; look until none is found
        found = processes_of(pid, token, members)
        for each in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)
        if not found:
            return
        time.sleep(0.005)


def signal_group(pid: int, number: int) -> None:
    """A signal to the task's own process group, which is nearly always all of it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def hold_session(pid: int, token: str, members: str | None = None) -> None:
    """Suspend every process of the task, including new ones and those that left its group."""
    for _ in range(20):
        going = [each for each in processes_of(pid, token, members) if not _is_stopped(each)]
        for each in going:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGSTOP)
        if not going:
            return


def continue_session(pid: int, token: str, members: str | None = None) -> None:
    """Resume every process of the task."""
    for each in processes_of(pid, token, members):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    stat = _stat(pid)
    return stat is None or stat[0] in ("T", "t", "Z", "X")


def processes_of(pid: int, token: str, members: str | None = None) -> list[int]:
    """The processes of a task that have not ended."""
    inside = _inside(members)
    return [each for each in _processes() if each in inside or belongs(each, pid, token)]


def _inside(members: str | None) -> set[int]:
    """The processes in a cgroup that have not ended."""
    if members is None:
        return set()
    try:
        with open(members, encoding="ascii") as file:
            return {pid for line in file if start_time(pid := int(line))}
    except OSError:
        return set()


def belongs(process: int, session: int, token: str) -> bool:
    """Whether a process that has not ended is of a task's session, or carries its token."""
    stat = _stat(process)
    if stat is None or stat[0] in ("Z", "X") or process == os.getpid():
        return False
    if stat[3] == str(session):
        return True
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            return f"ROTA_TASK_TOKEN={token}".encode() in file.read().split(b"\0")
    except OSError:
        return False


def session_bytes(session: int) -> int:
    """Memory that the processes of a session have in use together."""
    pages = 0
    for process in _processes():
        stat = _stat(process)
        if stat is not None and stat[3] == str(session):
            pages += int(stat[21])
    return pages * os.sysconf("SC_PAGE_SIZE")


def start_time(pid: int) -> int:
    """When a process started, in the kernel's ticks: with the id it names one process for ever. 0: it is gone."""
    stat = _stat(pid)
    return 0 if stat is None or stat[0] in ("Z", "X") else int(stat[19])


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
