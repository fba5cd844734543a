"""The recorder: the task's parent, which waits for it and writes down how it ended."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal

from rota.drivers.local.task_runner.clock import now_s
from rota.drivers.local.task_runner.criu import restore
from rota.drivers.local.task_runner.files import write_when_possible
from rota.drivers.local.task_runner.processes import in_session, is_sealed, processes_of, started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

    from rota.drivers.local.task_runner.files import Json

NOT_FOUND = 127
FIRST_TO_KILL = 500
"""The kernel's score of tasks that asked for no memory: they go first when the machine has none left."""
_CONFINES = 3
"""The descriptor by which a new process says that it is confined."""
_MOST_FILES = 4096
"""More descriptors than a supervisor or a session host has open."""


def record(task: Json, stdio: tuple[int, int, int], tell: int, life: int) -> None:
    """The recorder: start the task, wait for it, write down how it ended. Ends it if the supervisor is gone.

    `stdio` are the standard streams of the task.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    pid = restore(task, stdio[1]) if task.get("restore") else _start(task, stdio, (tell, life))
    for end in set(stdio):
        os.close(end)
    with contextlib.suppress(BrokenPipeError):
        os.write(tell, f"{pid} {started(pid)}".encode())
    os.close(tell)
    if not pid:
        return
    finished = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(finished, select.POLLIN)
    poller.register(life, select.POLLIN)
    if finished not in {fd for fd, _ in poller.poll()}:
        processes_of(task, pid, started(pid)).end()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    left = [] if is_sealed(task) else in_session(pid)  # before it is reaped: its id can't be another's yet
    _, status, used = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    ended = {
        "exit_code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "ended_s": now_s(),
        "cpu_s": used.ru_utime + used.ru_stime,
        "memory_bytes": used.ru_maxrss * 1024,
        "left": left,
    }
    if task.get("container"):
        from rota.drivers.local.task_runner.containers.container_processes import usage

        ended |= usage(task)
    write_when_possible("exit.json", ended)


def _start(task: Json, stdio: tuple[int, int, int], not_its: tuple[int, int]) -> int:
    """Fork the task; return its id."""
    confined, confines = os.pipe()
    pid = os.fork()
    if pid == 0:
        for end in (*not_its, confined):
            os.close(end)
        become(task, stdio, confines)
    os.close(confines)
    os.read(confined, 1)  # until then it ignores SIGTERM as we do, and has the mounts of the machine
    os.close(confined)
    return pid


def become(
    task: Json,
    stdio: tuple[int, int, int],
    confines: int,
    beside: tuple[int, int] | None = None,
    work: Callable[[], int] | None = None,
) -> None:
    """In the new process: turn into the task; `confines` is closed once it is confined. Does not return.

    `beside`: not as the task itself, but where the task is whose first process has this id and start time.
    `work`: what to do there instead of starting a program; it returns the exit status.
    """
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        for target, source in enumerate(stdio):
            os.dup2(source, target)
        os.dup2(confines, _CONFINES)
        os.closerange(_CONFINES + 1, _MOST_FILES)
        if os.isatty(0):
            from rota.drivers.local.task_runner.interactive.stdio import make_controlling

            make_controlling(0)
        code = _open_code(task) if beside is None else None
        os.get_exec_path()  # imports what execvpe needs, while we may still read the interpreter's own files
        _confine(task, beside, work is None)
        os.close(_CONFINES)
        if task.get("container") and work is None:
            _become_runtime(task, code, beside is not None)
        if code is not None:
            _unpack(code, task["workdir"])
        os.chdir("/" if task.get("container") else task["workdir"])  # that may be one of the image
        if task.get("confine"):
            _give_up_privileges(task["confine"])
        if work is not None:
            os._exit(work())
        os.execvpe(task["argv"][0], task["argv"], task["env"])
    except OSError as error:
        hidden = task.get("confine") and task["workdir"].startswith("/tmp") and not os.path.exists(task["workdir"])
        why = "tasks have a /tmp of their own; use another folder" if hidden else error.strerror
        if isinstance(error, FileNotFoundError) and os.path.isdir(task["workdir"]):
            why = "the command was not found"
        os.write(2, f"rota: can't run {task['argv'][0]!r} in {task['workdir']}: {why}\n".encode())
    except BaseException as error:
        os.write(2, f"rota: can't run the task: {error!r}\n".encode())
    finally:
        os._exit(NOT_FOUND)


def _open_code(task: Json) -> IO[bytes] | None:
    """The archive of the job's code, and what unpacks it, while we may still read both."""
    if not task.get("code"):
        return None
    from rota.drivers.local.task_runner.code import open_archive

    return open_archive(task["code"])


def _unpack(code: IO[bytes], folder: str) -> None:
    from rota.drivers.local.task_runner.code import unpack

    unpack(code, folder)


def _become_runtime(task: Json, code: IO[bytes] | None, beside: bool) -> None:
    """Turn into what runs the task's container, or starts a command in it."""
    from rota.drivers.local.task_runner.containers.become import as_user, become_runtime, keeps_rights

    if code is not None:
        as_user(task, lambda: _unpack(code, task["workdir"]))
    if task.get("confine") and not keeps_rights(task):
        _give_up_privileges({**task["confine"], "seccomp": False})  # it makes the container by calls that are refused
    become_runtime(task, beside=beside)


def _give_up_privileges(order: Json) -> None:
    from rota.drivers.local.task_runner.confine import give_up_privileges

    give_up_privileges(order)


def _set_oom_score(least: int) -> None:
    """Let the kernel take this process before others; the manager may be protected, its tasks are not."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "r+", encoding="ascii") as score:
        if int(score.read()) < least:
            score.write(str(least))


def _confine(task: Json, beside: tuple[int, int] | None, runs_command: bool) -> None:
    """The cgroup, the CPUs and the mounts, then the user: what root may set comes first."""
    has_own_mounts = keeps_rights = False
    if task.get("container"):
        from rota.drivers.local.task_runner.containers import become as become_container

        has_own_mounts = become_container.is_private(task)
        keeps_rights = runs_command and become_container.keeps_rights(task)
    for path in (task.get("cgroup") or {}).get("enter", ()):
        with open(path, "w", encoding="ascii") as members:
            members.write("0")
    if task.get("cpus"):
        os.sched_setaffinity(0, task["cpus"])
    if task.get("numa") is not None:
        from rota.drivers.local.task_runner.numa import prefer_memory_of

        prefer_memory_of(int(task["numa"]))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    _set_oom_score(FIRST_TO_KILL if task.get("first_to_kill") else 0)
    if task.get("confine") or has_own_mounts:
        from rota.drivers.local.task_runner.confine import join_task, leave_the_machine

        if beside is None:
            leave_the_machine(task.get("confine") or {})
        else:
            join_task(*beside)
    if task.get("uid") is not None and not keeps_rights:
        os.setgroups(task["groups"])
        os.setgid(task["gid"])
        os.setuid(task["uid"])
    if task.get("umask") is not None and not keeps_rights:
        os.umask(task["umask"])
