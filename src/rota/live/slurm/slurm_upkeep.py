"""What changes rarely in Slurm and is read every minute: reservations, for forecasts, and accounts."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from rota.core.model.cluster import Cluster
from rota.drivers.slurm.commands import UNREADABLE, SlurmReader
from rota.drivers.slurm.translate import tenants_of
from rota.live.loop.control import Control
from rota.live.loop.entry import LoopEntry
from rota.live.loop.record import dump
from rota.live.reservations.stored import KEY, reservations_in
from rota.live.slurm.slurm_reservations import SlurmReservations, kept_reservations
from rota.store.records import Records

log = logging.getLogger("rota.live")
EVERY_S = 60.0


class SlurmUpkeep:
    """Reads them until cancelled; what can't be read stays as it was."""

    def __init__(
        self,
        control: Control,
        records: Records,
        reader: SlurmReader,
        cluster: Cluster,
        outdated: asyncio.Event,
        keeper: SlurmReservations | None = None,
    ) -> None:
        """`cluster` is as it was read; `outdated` is set when its accounts are others; `keeper` plans reservations."""
        self._control = control
        self._records = records
        self._reader = reader
        self._cluster = cluster
        self._outdated = outdated
        self._keeper = keeper
        self._said: set[str] = set()

    async def run(self) -> None:
        """Read again and again."""
        while True:
            for part in (self._read_reservations, self._read_accounts):
                with suppress(*UNREADABLE):
                    await part()
            await asyncio.sleep(EVERY_S)

    async def _read_reservations(self) -> None:
        reading = await self._reader.reservations()
        for each in reading.found:
            if each.is_partial:
                reading.faults.append(f"reservation {each.name}: it keeps some cores of its nodes only")
        for fault in reading.faults:
            if fault not in self._said and len(self._said) < 1000:
                self._said.add(fault)
                log.warning("forecasts do without a reservation of Slurm's", extra={"why": fault})
        known = reservations_in(self._records)
        found = kept_reservations(reading.found, known)
        if found != known:
            log.info("reservations of Slurm's", extra={"names": ", ".join(each.name for each in found)})
        if self._keeper is not None:
            await self._keeper.follow(found)
        elif found != known:
            await self._control.apply(LoopEntry([], settings={KEY: dump([each.encode() for each in found])}))

    async def _read_accounts(self) -> None:
        tenants = tenants_of((await self._reader.associations()).found)
        if tenants is not None and tenants != self._cluster.tenants:
            log.info("Slurm's accounts have changed; the state is read again")
            self._outdated.set()
