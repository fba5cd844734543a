"""What keeps a cluster working without Rota: held jobs are released when Rota has not looked for a set time.

It is a process of its own and needs nothing but Slurm's commands and the file that Rota touches at every look.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rota.drivers.slurm import marks
from rota.drivers.slurm.commands import UNREADABLE, SlurmCommands

log = logging.getLogger("rota.slurm")
FILE = "heartbeat"
RELEASE_AFTER_S = 120.0


class Heartbeat:
    """The file whose time says when Rota last looked at Slurm."""

    def __init__(self, home: Path) -> None:
        self.path = home / FILE

    def beat(self) -> None:
        """Rota has looked now."""
        with suppress(OSError):
            self.path.touch()
            os.utime(self.path)

    def age_s(self) -> float:
        """Seconds since the last look; without end if there never was one."""
        try:
            return max(time.time() - self.path.stat().st_mtime, 0.0)
        except OSError:
            return float("inf")


async def release_all(commands: SlurmCommands) -> list[str]:
    """Release every job that Rota holds, for Slurm to decide about; return their ids.

    It loses Rota's mark last: what goes wrong before that is tried again.
    """
    released = []
    for job in (await commands.jobs()).found:
        if not marks.is_managed(job) or not job.is_pending:
            continue
        if marks.is_held_by_others(job):
            continue
        with suppress(*UNREADABLE):
            await commands.update(job.id, NodeList="")
            await commands.release(job.id)
            released.append(job.id)
            await commands.update(job.id, AdminComment=marks.LEFT)
    return released


async def watch(
    home: Path, commands: SlurmCommands, after_s: float, say: Callable[[str], None], *, every_s: float | None = None
) -> None:
    """Look at the heartbeat until cancelled, and release jobs while it is too old."""
    heartbeat = Heartbeat(home)
    pause_s = every_s if every_s is not None else max(after_s / 4, 0.5)
    begun = time.monotonic()
    while True:
        age_s = min(heartbeat.age_s(), 1e9)
        if age_s > after_s and time.monotonic() - begun >= min(after_s, 30.0):
            with suppress(*UNREADABLE):
                released = await release_all(commands)
                if released:
                    say(f"Rota has not looked for {age_s:.0f} s; released {len(released)} jobs")
        await asyncio.sleep(pause_s)


def start_beside(home: Path, config: Path | None, after_s: float) -> None:
    """Start a watchdog in a session of its own, which outlives this process; one that runs already is kept."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    Heartbeat(home).beat()  # Rota has its time from now on
    command = [sys.executable, "-m", "rota.drivers.slurm.watchdog", str(home), f"{after_s:g}", str(config or "")]
    with (home / "watchdog.log").open("ab") as log:
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def main() -> None:
    """The process of a watchdog: at most one for each folder."""
    logging.basicConfig(format="%(asctime)s %(message)s")
    home, after_s, config = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    with (home / "watchdog.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        commands = SlurmCommands(Path(config) if config else None)
        asyncio.run(watch(home, commands, after_s, lambda line: log.warning(line)))


if __name__ == "__main__":
    main()
