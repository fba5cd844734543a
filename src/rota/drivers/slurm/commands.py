"""Slurm's commands: the one way in which Rota reads from Slurm and orders it to do something.

Reading needs no right beyond a user's. Each call is counted, so that the load on slurmctld can be stated.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from rota.core.errors import RotaError
from rota.drivers.slurm.accounts import COLUMNS, QOS_COLUMNS, Association, read_associations, read_qos
from rota.drivers.slurm.records import QueueReader, SlurmJob, SlurmNode, SlurmReading, SlurmUnreadable, read_nodes

WITHIN_S = 30.0
ACCOUNTING_WITHIN_S = 60.0
_AWAY = (
    "Unable to contact slurm controller",
    "Connection refused",
    "Socket timed out",
    "Connection timed out",
    "Zero Bytes were transmitted",
    "Slurm backup controller in standby mode",
    "Unable to establish",
    "Communication connection failure",
)


class SlurmAway(RotaError):
    """slurmctld does not answer."""


class SlurmRefused(RotaError):
    """Slurm refused an order."""


class SlurmReader(Protocol):
    """What is read from Slurm, by its commands or by slurmrestd."""

    queries: int

    async def jobs(self) -> SlurmReading[SlurmJob]:
        """All jobs that slurmctld knows; those that ended stay for MinJobAge."""

    async def nodes(self) -> SlurmReading[SlurmNode]:
        """All nodes."""

    async def associations(self) -> SlurmReading[Association]:
        """All accounts and their users; empty without accounting."""


class SlurmCommands:
    """Reads with `squeue`, `sinfo` and `sacctmgr`, orders with `scontrol` and `scancel`."""

    def __init__(self, config: Path | None = None, *, within_s: float = WITHIN_S) -> None:
        self._within_s = within_s
        self._env = {**os.environ, "LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "standard"}
        if config is not None:
            self._env["SLURM_CONF"] = str(config)
        self._queue = QueueReader()
        self.queries = 0
        self.orders = 0

    async def jobs(self) -> SlurmReading[SlurmJob]:
        """All jobs that slurmctld knows."""
        output = await self._ask("squeue", "--json", "--all")
        return await asyncio.to_thread(self._queue.read, output)

    async def nodes(self) -> SlurmReading[SlurmNode]:
        """All nodes."""
        return read_nodes(await self._ask("sinfo", "--json", "--all"))

    async def associations(self) -> SlurmReading[Association]:
        """All accounts and their users; none where Slurm keeps no accounts."""
        try:
            output = await self._ask("sacctmgr", "-nP", "show", "assoc", f"format={','.join(COLUMNS)}")
        except (SlurmRefused, SlurmAway):
            return SlurmReading()
        return read_associations(output.decode("utf-8", "replace"))

    async def qos(self) -> dict[str, int]:
        """The priority of each quality of service; none where Slurm keeps no accounts."""
        try:
            output = await self._ask("sacctmgr", "-nP", "show", "qos", f"format={','.join(QOS_COLUMNS)}")
        except (SlurmRefused, SlurmAway):
            return {}
        return read_qos(output.decode("utf-8", "replace"))

    async def config(self) -> str:
        """The running configuration, as `scontrol show config` prints it."""
        return (await self._ask("scontrol", "show", "config")).decode("utf-8", "replace")

    async def accounting(self, begin: str, columns: Sequence[str], *, epoch: bool = False) -> bytes:
        """Accounting records since a time, as `sacct --parsable2` prints them; with times as dates, or in seconds."""
        self.queries += 1
        command = ("sacct", "--allusers", "--allocations", "--parsable2", "-S", begin, f"--format={','.join(columns)}")
        more = {"SLURM_TIME_FORMAT": "%s"} if epoch else {}
        return await self._run(command, within_s=max(self._within_s, ACCOUNTING_WITHIN_S), more=more)

    async def update(self, job: str, **values: str) -> None:
        """Change a job: `NodeList="n1,n2"`."""
        await self._order("scontrol", "update", f"JobId={job}", *(f"{name}={value}" for name, value in values.items()))

    async def release(self, job: str) -> None:
        """Let a held job start."""
        await self._order("scontrol", "release", job)

    async def hold(self, job: str) -> None:
        """Keep a waiting job from starting."""
        await self._order("scontrol", "hold", job)

    async def requeue_held(self, job: str) -> None:
        """Stop a running job; it waits again, held."""
        await self._order("scontrol", "requeuehold", job)

    async def cancel(self, job: str) -> None:
        """End a job in any state."""
        await self._order("scancel", job)

    async def _order(self, *command: str) -> None:
        self.orders += 1
        await self._run(command)

    async def _ask(self, *command: str) -> bytes:
        self.queries += 1
        return await self._run(command)

    async def _run(
        self, command: Sequence[str], *, within_s: float | None = None, more: Mapping[str, str] | None = None
    ) -> bytes:
        within_s = self._within_s if within_s is None else within_s
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**self._env, **(more or {})},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise SlurmAway(f"{command[0]} can't be run: {error.strerror}; install Slurm's client commands") from error
        try:
            output, said = await asyncio.wait_for(process.communicate(), within_s)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise SlurmAway(f"{command[0]} did not answer within {within_s:g} s") from None
        message = " ".join(said.decode("utf-8", "replace").split())
        if process.returncode or (not output and any(word in message for word in _AWAY)):
            if any(word in message for word in _AWAY):
                raise SlurmAway(f"slurmctld does not answer: {message[:200]}")
            raise SlurmRefused(f"{' '.join(command[:3])}: {message[:300] or f'status {process.returncode}'}")
        return output


UNREADABLE = (SlurmAway, SlurmRefused, SlurmUnreadable)
"""What can go wrong with a look at Slurm; the next look may succeed."""
