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
from rota.drivers.slurm.printed.accounts import COLUMNS, QOS_COLUMNS, Association, read_associations, read_qos
from rota.drivers.slurm.printed.records import (
    QueueReader,
    SlurmJob,
    SlurmNode,
    SlurmReading,
    SlurmUnreadable,
    is_summed_up,
    read_nodes,
)
from rota.drivers.slurm.printed.reservations import SlurmReservation, read_reservations
from rota.drivers.slurm.scheduler_config import read_config
from rota.drivers.slurm.slurm_settings import SlurmSettings, settings_of

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
        """All accounts of this cluster and their users; empty without accounting."""

    async def reservations(self) -> SlurmReading[SlurmReservation]:
        """All reservations, those to come included."""

    def use(self, settings: SlurmSettings) -> None:
        """Read jobs and accounts as a cluster with these settings counts them."""


class SlurmCommands:
    """Reads with `squeue`, `sinfo` and `sacctmgr`, orders with `scontrol` and `scancel`."""

    def __init__(self, config: Path | None = None, *, within_s: float = WITHIN_S) -> None:
        self._within_s = within_s
        self._env = {**os.environ, "LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "standard", "SLURM_BITSTR_LEN": "0"}
        if config is not None:
            self._env["SLURM_CONF"] = str(config)
        self._queue = QueueReader()
        self._settings = SlurmSettings()
        self._sinfo_sums_up = False
        """Whether `sinfo` has shown that it does not list each node."""
        self.queries = 0
        self.orders = 0

    async def jobs(self) -> SlurmReading[SlurmJob]:
        """All jobs that slurmctld knows."""
        output = await self._ask("squeue", "--json", "--all")
        return await asyncio.to_thread(self._queue.read, output)

    async def nodes(self) -> SlurmReading[SlurmNode]:
        """All nodes; from release 23.02 on, `sinfo` sums them up, and `scontrol` lists them."""
        if not self._sinfo_sums_up:
            output = await self._ask("sinfo", "--json", "--all")
            try:
                return read_nodes(output)
            except SlurmUnreadable:
                self._sinfo_sums_up = is_summed_up(output)
                if not self._sinfo_sums_up:
                    raise
        return read_nodes(await self._ask("scontrol", "--json", "--all", "show", "nodes"))

    async def associations(self) -> SlurmReading[Association]:
        """All accounts of this cluster and their users; none where Slurm keeps no accounts."""
        try:
            output = await self._ask("sacctmgr", "-nP", "show", "assoc", f"format={','.join(COLUMNS)}")
        except SlurmRefused:
            return SlurmReading()
        return read_associations(output.decode("utf-8", "replace"), self._settings.name or None)

    async def reservations(self) -> SlurmReading[SlurmReservation]:
        """All reservations, those to come included."""
        output = await self._ask("scontrol", "show", "reservation", "--oneliner", more={"SLURM_TIME_FORMAT": "%s"})
        return read_reservations(output.decode("utf-8", "replace"))

    async def settings(self) -> SlurmSettings:
        """How this cluster counts what jobs hold."""
        text = await self.config()
        try:
            config = read_config(text, "Slurm's configuration")
        except RotaError as error:
            raise SlurmUnreadable(str(error)) from error
        partitions = await self._ask("scontrol", "--all", "show", "partition", "--oneliner")
        return settings_of(config, partitions.decode("utf-8", "replace"))

    def use(self, settings: SlurmSettings) -> None:
        """Read jobs and accounts as a cluster with these settings counts them."""
        if settings != self._settings:
            self._settings, self._queue = settings, QueueReader()
            self._queue.adjust = settings.adjust

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
        columns_of = f"--format={','.join(columns)}"
        command = ("sacct", "--allusers", "--allocations", "--parsable2", "--delimiter=\x1f", "-S", begin, columns_of)
        more = {"SLURM_TIME_FORMAT": "%s"} if epoch else {}
        output = await self._run(command, within_s=max(self._within_s, ACCOUNTING_WITHIN_S), more=more)
        return output.replace(b"|", b"_").replace(b"\x1f", b"|")  # a job may be called `a|b`

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

    async def _ask(self, *command: str, more: Mapping[str, str] | None = None) -> bytes:
        self.queries += 1
        return await self._run(command, more=more)

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
            async with asyncio.timeout(within_s):  # `wait_for` of Python 3.11 can lose a cancellation
                output, said = await process.communicate()
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
