"""What of the confinement of tasks this machine allows, found by trying it in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import rota
from rota.core.errors import RotaError
from rota.drivers.local.confinement.accounts import UnixAccount

_ROOT = str(Path(rota.__file__).parents[1])
_TRY = (
    "import sys; sys.path.append({root!r}); from rota.drivers.local.task_runner import confine; "
    "confine.private_mounts({order!r}); confine.give_up_privileges({order!r})"
)
TRY_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """How tasks that run as other users than the manager are confined; by default not at all."""

    mounts: bool = False
    """Whether they get a private /tmp and /dev/shm, and no new privileges."""
    proc: bool = False
    """Whether they see only the processes of their own user."""
    seccomp: bool = False
    """Whether they are refused system calls that reach into other processes or the kernel."""
    why: str | None = None
    """What is missing, and why."""

    def __str__(self) -> str:
        parts = ("private /tmp", self.mounts), ("private /proc", self.proc), ("seccomp", self.seccomp)
        named = [name for name, is_there in (*parts, ("no new privileges", self.mounts)) if is_there]
        return ", ".join(named) or "none"

    def applies_to(self, account: UnixAccount | None) -> bool:
        """Whether the tasks of an account are confined: not those that run as root or as the manager."""
        return self.mounts and account is not None and account.uid not in (0, os.geteuid())


def find_confinement(wanted: str, *, seccomp: bool) -> Confinement:
    """Return what is possible. `wanted` is `auto`, `on` (raises a `RotaError` if something is not) or `off`."""
    if wanted == "off":
        return Confinement(why="isolation is off")
    found = _found(seccomp=seccomp) if os.geteuid() == 0 else Confinement(why="the manager is not root")
    if wanted == "on" and found.why is not None:
        raise RotaError(f"isolation is on, but {found.why}; leave it out to do with what there is")
    return found


def _found(*, seccomp: bool) -> Confinement:
    """Try everything, then without what failed."""
    reasons: list[str] = []
    for proc, calls in ((True, seccomp), (False, seccomp), (False, False)):
        fault = _fault({"proc": proc, "seccomp": calls})
        if fault is None:
            return Confinement(mounts=True, proc=proc, seccomp=calls, why="; ".join(reasons) or None)
        reasons = [fault]
    return Confinement(why=reasons[0])


def _fault(order: dict[str, bool]) -> str | None:
    """Return why a process can't be confined so; None if it can."""
    program = _TRY.format(root=_ROOT, order=order)
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=TRY_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2][:200] or "it failed"
