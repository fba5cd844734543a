"""A pool of started supervisors that wait for a task, so that a start need not wait for an interpreter.

Each reads the name of its task's folder from its standard input, and ends when the server lets go of that. From there
on it is a supervisor like any other: the one that makes the claim in the folder runs the task.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import rota
from rota.drivers.local.task_runner.supervisor import CONFINED

_ROOT = str(Path(rota.__file__).parents[1])
_PROGRAM = f"import sys; sys.path.append({_ROOT!r}); from rota.drivers.local.task_runner.supervisor import main; main()"
"""What a supervisor's interpreter runs: a module, so that it need not be compiled at every start."""
_COMMAND = [sys.executable, "-I", "-S", "-c", _PROGRAM]
_SILENT = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (1, 2)]
_KEPT = frozenset({"PATH", "LANG", "LC_ALL", "TZ", "TMPDIR"})
_KEPT_FAMILIES = ("LD_", "FAKETIME", "COVERAGE_")
SPARES = 2
REFILL_S = 0.1
"""How long after a start the pool is refilled, so that the start has the machine to itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSupervisor:
    """The process of a supervisor, which may not have a task yet."""

    pid: int
    pidfd: int
    ear: int
    """The end of a pipe through which it receives its folder."""

    def give(self, folder: Path) -> bool:
        """Send it the folder of its task; return False if it has exited."""
        try:
            os.write(self.ear, f"{folder}\n".encode())
        except BrokenPipeError:
            return False
        finally:
            os.close(self.ear)
        return True


def _environment() -> dict[str, str]:
    """The variables of a supervisor: what an interpreter needs, none of the manager's secrets."""
    return {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(_KEPT_FAMILIES)}


def bring_up(*, confined: bool = False) -> IdleSupervisor:
    """A supervisor that waits for its task."""
    command = [*_COMMAND, CONFINED] if confined else _COMMAND
    mouth, ear = os.pipe()
    try:
        actions = [(os.POSIX_SPAWN_DUP2, mouth, 0), *_SILENT]
        pid = os.posix_spawn(command[0], command, _environment(), file_actions=actions, setsid=True)
        return IdleSupervisor(pid=pid, pidfd=os.pidfd_open(pid), ear=ear)
    except OSError:
        os.close(ear)
        raise
    finally:
        os.close(mouth)


class PreforkPool:
    """Spare supervisors, kept once a first task was started."""

    def __init__(
        self, later: Callable[[float, Callable[[], None]], asyncio.TimerHandle], *, confined: bool = False
    ) -> None:
        self._later = later
        self._confined = confined
        """Whether tasks may have to be confined."""
        self._spare: list[IdleSupervisor] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def start(self, folder: Path) -> IdleSupervisor:
        """Return a supervisor for the task of a folder."""
        if self._timer is None and not self._is_closed:
            self._timer = self._later(REFILL_S, self._refill)
        while self._spare:
            found = self._spare.pop(0)
            if found.give(folder):
                return found
            _forget(found)
        made = bring_up(confined=self._confined)
        made.give(folder)
        return made

    def close(self) -> None:
        """End the supervisors that have no task."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for spare in self._spare:
            os.close(spare.ear)
        for spare in self._spare:
            _forget(spare)
        self._spare = []

    def _refill(self) -> None:
        self._timer = None
        with contextlib.suppress(OSError):  # the next start will say that nothing can be started
            while len(self._spare) < SPARES:
                self._spare.append(bring_up(confined=self._confined))


def _forget(spare: IdleSupervisor) -> None:
    """Reap a process that has exited or is about to."""
    os.close(spare.pidfd)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(spare.pid, 0)
