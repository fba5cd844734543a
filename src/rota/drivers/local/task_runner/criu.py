"""Writes the processes of a suspended task to disk by CRIU, and restores them; what a supervisor and a recorder do.

The folder `image` of a task holds its processes. They count as written once `disk.json` is there, which is also what
the supervisor knew of them: while they are only stopped, that file decides where they are.
"""

from __future__ import annotations

import contextlib
import os

from rota.drivers.local.task_runner.clock import now_s
from rota.drivers.local.task_runner.files import read, write, write_when_possible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.drivers.local.task_runner.files import Json

IMAGE, RECORD = "image", "disk.json"
_PID, _DUMPED, _RESTORED = "restored.pid", "dump.log", "restore.log"
_OUTPUT = 10
"""The descriptor by which CRIU gets the pipe for the output of what it restores."""
_REASON = 300


def dump(program: str, pid: int) -> str:
    """Write a stopped task to disk and leave it stopped; return `ok`, or what went wrong."""
    drop_image()
    os.mkdir(IMAGE, 0o700)
    code = _run([program, "dump", "--tree", str(pid), "--leave-stopped", "--file-locks", *_common(_DUMPED)])
    return "ok" if code == 0 else _why(_DUMPED, code)


def keep_image(state: Json) -> bool:
    """Let the task be on disk, if that is still the order; else remove what was written."""
    with contextlib.suppress(OSError, ValueError):
        order = read("rest.json")
        if order.get("disk") and order["rests"]:
            write(RECORD, state)
            return True
    drop_image()
    return False


def drop_image() -> None:
    """Remove what was written, the record first."""
    with contextlib.suppress(OSError):
        os.unlink(RECORD)
    with contextlib.suppress(OSError):
        for name in os.listdir(IMAGE):
            os.unlink(f"{IMAGE}/{name}")
        os.rmdir(IMAGE)


def restore(task: Json, output: int) -> int:
    """Restore a task as a child of this process, still stopped; return its id, or 0 and write down why it can't be."""
    known = task["restore"]
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{IMAGE}/{_PID}")
    inherit = f"fd[{_OUTPUT}]:{known['state']['output']}"
    command = [known["criu"], "restore", "--restore-detached", "--restore-sibling", "--pidfile", _PID]
    code = _run([*command, "--inherit-fd", inherit, *_common(_RESTORED)], task, output)
    pid = 0
    with contextlib.suppress(OSError, ValueError), open(f"{IMAGE}/{_PID}", encoding="ascii") as file:
        pid = 0 if code else int(file.read())
    if not pid:
        failed = f"restoring it from disk failed: {_why(_RESTORED, code)}"
        ended: Json = {"exit_code": None, "signal": 9, "ended_s": now_s(), "left": [], "swap_failed": failed}
        write_when_possible("exit.json", ended)
    with contextlib.suppress(OSError):
        os.unlink(RECORD)  # from here on the processes are what counts
    return pid


def _common(log: str) -> list[str]:
    return ["--images-dir", IMAGE, "--manage-cgroups=ignore", "-v1", "--log-file", log]


def _run(command: list[str], task: Json | None = None, output: int = -1) -> int:
    """Run CRIU, where the processes of a task shall be if it restores them; return its exit code."""
    child = os.fork()
    if child == 0:
        try:
            nothing = os.open(os.devnull, os.O_RDWR)
            for target in range(3):
                os.dup2(nothing, target)
            if task is not None:
                os.dup2(output, _OUTPUT)
                _enter(task)
            os.execvp(command[0], command)
        finally:
            os._exit(127)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _enter(task: Json) -> None:
    for path in (task.get("cgroup") or {}).get("enter", ()):
        with open(path, "w", encoding="ascii") as members:
            members.write("0")
    if task.get("cpus"):
        os.sched_setaffinity(0, task["cpus"])


def _why(log: str, code: int) -> str:
    """CRIU's own words: the first error of its log."""
    with contextlib.suppress(OSError), open(f"{IMAGE}/{log}", encoding="utf-8", errors="replace") as file:
        for line in file:
            if "Error" in line:
                return " ".join(line.partition("Error")[2].partition(": ")[2].split())[:_REASON]
    return f"criu ended with {code}"
