"""The supervisor's part in sessions: the streams of an interactive task, and the start of the session host."""

from __future__ import annotations

import contextlib
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.drivers.local.task_runner.files import Json
    from rota.drivers.local.task_runner.interactive.stdio import Stdio

WANTED = "sessions"
"""A file by which the manager asks for a session host where there is none."""


class TaskSessions:
    """The sessions of a supervisor's task."""

    def __init__(self, task: Json) -> None:
        self._task = task
        self._stdio: Stdio | None = None
        self._log = -1
        self._host = -1

    def open_stdio(self, log: int) -> tuple[int, int, int]:
        """Return the standard streams for the task; `log` is where its output is read to be kept.

        The streams of an interactive task are those of its session, whose host writes to `log`.
        """
        interactive = self._task.get("interactive")
        if not interactive or self._task.get("restore"):
            return os.open(os.devnull, os.O_RDONLY), log, log
        from rota.drivers.local.task_runner.interactive.stdio import Stdio

        self._log = log
        self._stdio = Stdio(tty=interactive["tty"])
        return self._stdio.its

    def close_ours(self) -> None:
        """In the recorder: close what is the session host's."""
        if self._stdio is not None:
            self._stdio.close_ours()
            os.close(self._log)

    def begin(self, pid: int, start: int) -> None:
        """Start the session host of an interactive task, to which its streams belong from then on."""
        if self._stdio is not None:
            if start:
                self._fork(pid, start)
            self.close_ours()
            self._stdio, self._log = None, -1

    def obey(self, pid: int, start: int) -> None:
        """Start a session host if the manager asks for one and there is none."""
        if start and os.path.exists(WANTED) and not self._has_host():
            self._fork(pid, start)

    def idle_end(self) -> str:
        """Return why the session host has the task ended, whose terminal is idle; empty if it does not."""
        if not self._task.get("idle_sessions"):
            return ""
        from rota.drivers.local.task_runner.interactive.idle import ordered_end

        return ordered_end()

    def _has_host(self) -> bool:
        if self._host < 0:
            return False
        if select.select([self._host], [], [], 0)[0]:
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, self._host, os.WEXITED)
            os.close(self._host)
            self._host = -1
        return self._host >= 0

    def _fork(self, pid: int, start: int) -> None:
        with contextlib.suppress(OSError):  # no process can be started now; the manager asks again
            child = os.fork()
            if child == 0:
                from rota.drivers.local.task_runner.interactive.host import be_host

                be_host(self._task, pid, start, self._stdio, self._log)
            self._host = os.pidfd_open(child)
