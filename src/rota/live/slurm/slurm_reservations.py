"""Slurm's reservations where Rota decides: jobs stay off their nodes, unless their limit ends before.

Slurm would refuse to start them there, and they would wait with their devices kept for nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from rota.core.messages.events import JobUpdated
from rota.core.model.job import Job
from rota.drivers.slurm.commands import UNREADABLE, SlurmReader
from rota.drivers.slurm.printed.reservations import SlurmReservation
from rota.live.intake.audit_entry import Asker, audit_entry
from rota.live.loop.entry import LoopEntry
from rota.live.loop.record import dump
from rota.live.reservations.keeper import ReservationKeeper
from rota.live.reservations.reservation import NodeReservation, limited_by
from rota.live.reservations.stored import KEY, reservations_in
from rota.store import clock
from rota.store.records import Records, WriteBatch

log = logging.getLogger("rota.live")
SLURM = Asker(name="Slurm")


class SlurmReservations(ReservationKeeper):
    """Slurm's reservations, as a manager's that only jobs may use that name them; those are left to Slurm."""

    async def follow(self, found: Sequence[NodeReservation]) -> None:
        """Plan around these reservations, and no others, from now on."""
        async with self._changing:
            await self._control.at_rest()
            if tuple(found) == tuple(self._kept):
                return
            now_s, names = clock.shown_s(clock.now_s()), {each.name for each in found}
            over = [replace(each, until_s=min(each.until_s, now_s)) for each in self._kept if each.name not in names]
            entry = audit_entry(SLURM, "reservations", ", ".join(sorted(names))[:500])
            await self._change(tuple(found), entry, over)

    def _gate(self, entry: LoopEntry) -> None:
        """Give jobs that users change in Slurm the tolerations that they have now, too."""
        entry.events[:] = [
            replace(each, job=self._fit(each.job, "", 0.0)) if isinstance(each, JobUpdated) else each
            for each in entry.events
        ]
        super()._gate(entry)

    def _fit(self, job: Job, owner: str, ran_s: float) -> Job:
        """Its estimate is its limit in Slurm, which begins again with each start."""
        fit = super()._fit
        return limited_by(job, job.estimate_s, lambda limited: fit(limited, owner, 0.0))


async def read_reservations(reader: SlurmReader, records: Records) -> None:
    """Record the reservations that Slurm has now, before a state is built; where it can't be read, they stay."""
    try:
        reading = await reader.reservations()
    except UNREADABLE as error:
        log.warning("Slurm's reservations can't be read yet", extra={"why": str(error)})
        return
    found = kept_reservations(reading.found, reservations_in(records))
    records.write(WriteBatch(settings={KEY: dump([each.encode() for each in found])}))()


def kept_reservations(
    found: Sequence[SlurmReservation], before: Sequence[NodeReservation] = ()
) -> list[NodeReservation]:
    """Return Slurm's reservations of whole nodes in the form that forecasts take, the next one first."""
    made_s = {each.name: each.made_s for each in before}
    made = [
        NodeReservation(
            name=each.name,
            id=each.name,
            nodes=each.nodes,
            from_s=each.start_s,
            until_s=each.end_s,
            tenant=", ".join(each.accounts) or None,
            users=each.users,
            by="Slurm",
            made_s=made_s.get(each.name, 0.0),
            is_by_name=True,
        )
        for each in found
        if each.nodes and not each.is_partial
    ]
    return sorted(made, key=lambda each: (each.from_s, each.name))
