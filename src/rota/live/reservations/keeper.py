"""Keeps the reservations, and the engine in agreement with them.

The nodes of a reservation carry a taint: one before its time, another in it. Jobs get tolerations of these taints, as
they arrive and whenever they wait again: those of the group of both, others of the first if they may be stopped or are
sure to end before. What falls due with time (a beginning, an end, the last moment for a job with a time limit to start)
is looked for by itself. Everything reaches the engine as events, so that a journal replays without reservations.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rota.core.errors import RotaError, did_you_mean
from rota.core.messages.events import JobRequeued, JobUpdated
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import DeviceType, Job, JobId, NodeId
from rota.core.model.labels import is_tolerated
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.live.intake.audit_entry import Asker, audit_entry
from rota.live.intake.requests import Conflict, NotFound
from rota.live.loop.control import Control
from rota.live.loop.entry import LoopEntry, News
from rota.live.loop.record import dump
from rota.live.reservations.enforcement import WAITS, Enforcement
from rota.live.reservations.reservation import MOST_RESERVATIONS, NodeReservation, whole_nodes
from rota.live.reservations.stored import KEY, PAST_KEY, reservations_in, with_past
from rota.store import clock
from rota.store.records import Records

log = logging.getLogger("rota.live")
LEAST_S = 0.25
"""Between two looks, at least."""
RESERVATIONS = Asker(name="reservations")
_OTHER_CAUSES = frozenset(
    {ReasonCode.HELD, ReasonCode.DEPENDENCY, ReasonCode.ARRAY_LIMIT, ReasonCode.RETRY, ReasonCode.POLICY_FAILED}
)
"""Reasons to wait that have nothing to do with devices."""


class ReservationKeeper(Enforcement):
    """The reservations of a manager."""

    def __init__(self, control: Control, records: Records) -> None:
        super().__init__(reservations_in(records))
        self._records = records
        self._control = control
        self._asked: dict[JobId, Job] = {}
        """Requests of jobs that an update gives, as long as the engine may not have taken them in."""
        self._wake = asyncio.Event()
        self._changing = asyncio.Lock()
        control.gates.append(self._gate)
        control.listen(self._noticed)
        control.noted = self._noted

    def take_up(self) -> None:
        """Bring the engine into agreement before the loop runs, so that nothing starts that a reservation keeps off."""
        self._look()

    # -- requests --------------------------------------------------------------------------------

    def all(self) -> list[NodeReservation]:
        """Return those that are not over, the next one first."""
        now_s = _now_s()
        return sorted((each for each in self._kept if each.until_s > now_s), key=lambda each: (each.from_s, each.name))

    async def add(
        self, wanted: NodeReservation, asker: Asker, *, gpus: int | None = None, kind: DeviceType | None = None
    ) -> NodeReservation:
        """Make a reservation, of its nodes or of whole nodes with so many devices; it counts when this returns."""
        async with self._changing:
            await self._control.at_rest()
            made = replace(wanted, id=f"{wanted.name}.{secrets.token_hex(4)}", by=asker.name, made_s=_now_s())
            self._refuse_unfit(made)
            if gpus is not None:
                made = replace(made, nodes=self._choice(made, gpus, kind))
            taken = next((each for each in self.all() if each.overlaps(made)), None)
            if taken is not None:
                both = [name for name in made.nodes if name in taken.nodes]
                raise Conflict(f"{taken.words(_now_s(), both)}; name other nodes or another time, or cancel it")
            group = f"tenant {made.tenant}" if made.tenant is not None else f"users {', '.join(made.users)}"
            words = f"{', '.join(made.nodes)} for {group}, {made.until_s - made.from_s:g} s from {made.from_s:.0f}"
            await self._change((*self._kept, made), audit_entry(asker, "reserve", made.name, words[:500]))
        log.info("reserve", extra={"reservation": made.name, "who": asker.name})
        return made

    async def cancel(self, name: str, asker: Asker) -> None:
        """End a reservation now, or before it begins."""
        async with self._changing:
            await self._control.at_rest()
            if name not in (known := [each.name for each in self.all()]):
                raise NotFound(f"there is no reservation {name[:64]!r}; {did_you_mean(name[:64], known)}")
            now_s, after = _now_s(), tuple(each for each in self._kept if each.name != name)
            gone = [replace(each, until_s=now_s) for each in self._kept if each.name == name]
            await self._change(after, audit_entry(asker, "cancel-reservation", name), [*gone])
        log.info("cancel-reservation", extra={"reservation": name, "who": asker.name})

    def _refuse_unfit(self, wanted: NodeReservation) -> None:
        """Raise a `RotaError` for a reservation that can't be made."""
        if wanted.until_s <= _now_s():
            raise RotaError("from, for: this time is over; a reservation must end after now")
        if wanted.name in (known := [each.name for each in self.all()]):
            raise Conflict(f"there is a reservation {wanted.name!r} already; cancel it, or choose another name")
        if len(known) >= MOST_RESERVATIONS:
            raise RotaError(f"there are {MOST_RESERVATIONS} reservations already; cancel some")
        names = [str(account.node.id) for account in self._control.state.inventory.nodes if not account.removed]
        for name in wanted.nodes:
            if name not in names:
                raise RotaError(f"nodes: there is no node {name[:64]!r}; {did_you_mean(name[:64], names)}")

    def _choice(self, wanted: NodeReservation, gpus: int, kind: DeviceType | None) -> tuple[str, ...]:
        """Return nodes for so many devices: no reservation has them then, and those in least use come first."""
        accounts = [each for each in self._control.state.inventory.nodes if each.up and not each.removed]
        names = {account.node.device_type for account in accounts if account.node.devices}
        if kind is not None and kind not in names:
            raise RotaError(f"type: no node has devices of type {kind[:64]!r}; {did_you_mean(kind[:64], names)}")
        free = [
            account
            for account in accounts
            if not account.drained
            and not any(each.overlaps(replace(wanted, nodes=(str(account.node.id),))) for each in self.all())
        ]
        return whole_nodes([each.node for each in sorted(free, key=lambda each: each.users)], gpus, kind)

    async def _change(
        self, after: tuple[NodeReservation, ...], audit: dict[str, Any], over: Sequence[NodeReservation] = ()
    ) -> None:
        """Store other reservations together with what follows from them."""
        before, self._kept = self._kept, after
        entry = self._entry()
        entry.settings[KEY] = _encoded(self._kept)
        if over:
            entry.settings[PAST_KEY] = with_past(self._records, over, _now_s())
        entry.audit.append(audit)
        try:
            await self._control.apply(entry)
        except BaseException:
            self._kept, self._due_s = before, -math.inf
            self._wake.set()
            raise
        self._wake.set()

    # -- jobs that come and come back --------------------------------------------------------------

    def _gate(self, entry: LoopEntry) -> None:
        """Give new jobs, and those that will wait again, the tolerations that they have now."""
        for event in entry.events:
            if isinstance(event, JobUpdated) and event.job_id in self._control.state.jobs:
                self._asked[event.job_id] = event.job
        if self._kept:
            entry.events[:] = self._gated(entry.events, {name: kept.owner for name, kept in entry.records.items()})

    @property
    def _state(self) -> State:
        return self._control.state

    def _wall_s(self) -> float:
        return _now_s()

    def _owner(self, job_id: JobId) -> str:
        record = self._control.kept.get(job_id)
        return "" if record is None else record.owner

    def _fit(self, job: Job, owner: str, ran_s: float) -> Job:
        due_s = self._due_s
        found = super()._fit(job, owner, ran_s)
        if self._due_s < due_s:
            self._wake.set()
        return found

    def _request(self, live: LiveJob) -> Job:
        return self._asked.get(live.job.id, live.job)

    def _update(self, live: LiveJob) -> list[JobUpdated]:
        found = super()._update(live)
        self._asked.update({each.job_id: each.job for each in found})
        return found

    def _noticed(self, news: Sequence[News]) -> None:
        """Forget updates that the engine has taken in, or did not take."""
        for each in news if self._asked else ():
            live = self._control.state.jobs.get(each.job_id)
            if live is None or live.state not in WAITS or live.job is self._asked.get(each.job_id):
                self._asked.pop(each.job_id, None)

    # -- looks -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look whenever something is due, until cancelled."""
        while True:
            wait_s = max(self._due_s - _now_s(), LEAST_S) if self._kept else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):  # `wait_for` of Python 3.11 can lose a cancellation
                    await self._wake.wait()
            self._wake.clear()
            async with self._changing:
                await self._control.at_rest()
                if _now_s() >= self._due_s:
                    self._look()

    def _look(self) -> None:
        now_s = _now_s()
        over = [each for each in self._kept if each.until_s <= now_s]
        self._kept = tuple(each for each in self._kept if each.until_s > now_s)
        entry = self._entry()
        if over:
            entry.settings[KEY] = _encoded(self._kept)
            entry.settings[PAST_KEY] = with_past(self._records, over, now_s)
            entry.audit += [audit_entry(RESERVATIONS, "end-reservation", each.name) for each in over]
        if entry.events or entry.settings:
            self._control.happened(entry)

    def _entry(self) -> LoopEntry:
        """Return what has to happen for nodes and jobs to be as the reservations want them."""
        entry = LoopEntry(self._wanted())
        gone = [each.job_id for each in entry.events if isinstance(each, JobRequeued)]
        entry.audit += [audit_entry(RESERVATIONS, "requeue", name, "its node is reserved") for name in gone]
        return entry

    # -- why a job waits ---------------------------------------------------------------------------

    def _noted(self, live: LiveJob, reason: Reason | None) -> Reason | None:
        """Add to the reason of a job that waits for devices which reservations keep nodes from it."""
        if reason is None or not self._kept or reason.code in _OTHER_CAUSES:
            return reason
        now_s = _now_s()
        notes = []
        for each in self._kept:
            kept_off = [name for name in each.nodes if self._keeps_off(live.job, name, each.id)]
            if kept_off and each.until_s > now_s:
                notes.append(each.words(now_s, kept_off))
        return replace(reason, note="; ".join(notes[:3])) if notes else reason

    def _keeps_off(self, job: Job, name: str, reservation_id: str) -> bool:
        """Return whether a reservation keeps a job off a node whose devices it could use."""
        inventory = self._control.state.inventory
        index = inventory.by_name.get(NodeId(name))
        if index is None or inventory.nodes[index].removed:
            return False
        account = inventory.nodes[index]
        own = tuple(taint for taint in account.reserved if taint.value == reservation_id)
        return any(
            (not role.device_types or account.node.device_type in role.device_types)
            and not is_tolerated(own, role.tolerates)
            for role in job.roles
        )


def _now_s() -> float:
    """The present moment of the wall clock, in which reservations are written."""
    return clock.shown_s(clock.now_s())


def _encoded(reservations: Sequence[NodeReservation]) -> str:
    return dump([each.encode() for each in reservations])
