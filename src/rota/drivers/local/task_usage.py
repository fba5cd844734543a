"""Resources that a job's tasks use while they run, from the kernel's accounting of their sessions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rota.core.model.job import JobId
from rota.drivers.local.containers.container_order import container_pid
from rota.drivers.local.task_runner.processes import start_time
from rota.store.run_folder import attempt_folder, read_json

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SESSION, _CPU, _PAGES = 3, slice(11, 15), 21
"""Where the fields are that follow the command in /proc/PID/stat; ended children's CPU time is among the four."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskUsage:
    """Total usage of the running tasks of an attempt."""

    tasks: int
    cpu_s: float
    memory_bytes: int


def use_now(home: Path, job_id: JobId, attempt: int) -> TaskUsage | None:
    """Return the present usage; None if no task runs."""
    try:
        ranks = [path for path in attempt_folder(home, job_id, attempt).iterdir() if path.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return None
    sessions: set[str] = set()
    running = 0
    for path in ranks:
        state = read_json(path / "state.json")
        if (
            state is not None
            and state.get("phase") == "running"
            and state["pid_start"] == start_time(state["pid"]) != 0
        ):
            running += 1
            sessions.add(str(state["pid"]))
            if (first := container_pid(home, job_id, attempt, path.name)) is not None:
                sessions.add(str(first))  # the container's session is not the runtime's
    if not sessions:
        return None
    cpu_s, memory_bytes = use_of_sessions(sessions)
    return TaskUsage(tasks=running, cpu_s=cpu_s, memory_bytes=memory_bytes)


def use_of_sessions(sessions: set[str]) -> tuple[float, int]:
    """Return CPU seconds and memory of all processes of some sessions, with the CPU time of ended children."""
    ticks = pages = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path("/proc", name, "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[_SESSION] in sessions:
            ticks += sum(map(int, fields[_CPU]))
            pages += int(fields[_PAGES])
    return ticks * _TICK_S, pages * _PAGE_BYTES
