"""Makes the loop's batches durable, and bridges the time in which that is impossible, as with a full disk.

While nothing can be stored, nothing new is accepted and nothing is started. Time limits and cancellations still stop
jobs; what they change is kept here and stored in order when that is possible again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection

from rota.core.errors import RotaError
from rota.core.messages.decisions import Cause, Decision, Start, Stop
from rota.core.messages.events import Event, Interrupted, JobEnded, StartFailed, Stopped
from rota.core.model.job import JobId
from rota.store.damage import RESTORE, is_damage
from rota.store.disk_reserve import DiskReserve
from rota.store.records import Records, WriteBatch

log = logging.getLogger("rota.live")
RETRY_S = 0.2
"""Between two tries to write to a database that can't be written to."""
LOOK_S = 1.0
"""Between two looks at whether the database answers and the disk has space."""
UPKEEP_S = 30.0
"""How long upkeep waits before it tries the database again."""
FOR_GOOD = frozenset({Cause.CANCELLED, Cause.TIME_LIMIT})
_OVER = (Interrupted, JobEnded, StartFailed, Stopped)


class CantStore(RotaError):
    """The database can't be written; nothing was accepted."""


async def through_outages(begin: Callable[[], Coroutine[None, None, None]]) -> None:
    """Do upkeep to its end; begin again after a while whenever the database or a file can't be used."""
    while True:
        try:
            await begin()
        except DBAPIError as error:
            log.warning("upkeep waits for the database", extra={"why": " ".join(str(error.orig).split())})
            await asyncio.sleep(UPKEEP_S)
        except OSError as error:  # as without descriptors
            log.warning("upkeep waits", extra={"why": str(error)})
            await asyncio.sleep(UPKEEP_S)
        else:
            return


def in_background(upkeep: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start upkeep; the manager goes on without a part that ends by a fault, and says so in its log."""
    task = asyncio.create_task(upkeep)
    task.add_done_callback(_tell_failure)
    return task


def _tell_failure(upkeep: asyncio.Task[None]) -> None:
    if not upkeep.cancelled() and (fault := upkeep.exception()) is not None:
        name = getattr(upkeep.get_coro(), "__qualname__", "")
        log.error("upkeep-failed", extra={"part": name, "why": str(fault)}, exc_info=fault)


class Storage:
    """The way to the database; `trouble` says why it is blocked."""

    def __init__(self, records: Records, reserve: DiskReserve | None = None) -> None:
        self._records = records
        self._reserve = reserve
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="writer")
        self._unstored: list[WriteBatch] = []
        self._tried_s = 0.0
        self._failure: str | None = None
        self._damage: str | None = None
        self._is_gone = False

    @property
    def trouble(self) -> str | None:
        """Why nothing new can be accepted at present; None if it can."""
        shortage = None if self._reserve is None else self._reserve.shortage()
        return self._damage or self._failure or shortage

    @property
    def is_behind(self) -> bool:
        """Whether batches wait to be stored."""
        return bool(self._unstored)

    def refuse_if_troubled(self) -> None:
        """Raise `CantStore` with the reason if nothing new can be accepted."""
        self._is_lost()
        trouble = self.trouble
        if trouble is not None:
            raise CantStore(f"nothing can be stored now: {trouble}; try again later")

    async def store(self, batch: WriteBatch) -> bool:
        """Make a batch durable after those that wait; return False if that is impossible now."""
        is_again = self.is_behind
        if not is_again and batch.is_empty:
            return True
        if not batch.is_empty:
            self._unstored.append(batch)
        if self._is_lost() or self._damage is not None or (is_again and time.monotonic() < self._tried_s + RETRY_S):
            return False
        while True:
            try:
                await self._write(self._unstored, is_again)
            except DBAPIError as error:
                is_again = True
                if self._reserve is not None and self._records.is_near and self._reserve.release():
                    log.error("the disk is full; its reserve is in use")
                    continue
                self.fails(error)
                self._tried_s = time.monotonic()
                return False
            self._unstored = []
            self._works()
            return True

    async def _write(self, batches: Sequence[WriteBatch], is_again: bool) -> None:
        """Write batches. A write that was begun ends before a cancellation does, or it would hold its lock for ever."""
        loop = asyncio.get_running_loop()
        if self._records.is_near and all(batch.is_small for batch in batches) and len(batches) == 1:
            finish = self._records.write(*batches, again=is_again)
            work = loop.run_in_executor(self._writer, finish)
        else:
            work = loop.run_in_executor(self._writer, lambda: self._records.write(*batches, again=is_again)())
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise

    def fails(self, error: DBAPIError) -> None:
        """Note that the database could not be used; a damaged one is not used again."""
        why = " ".join(str(error.orig).split())
        if self._is_lost():
            return
        if is_damage(error) and self._damage is None:
            self._damage = f"the database is damaged: {why}; {RESTORE}"
            log.error("the database is damaged", extra={"why": why})
        elif self._failure is None and self._damage is None:
            log.error("nothing can be stored", extra={"why": why})
        self._failure = why

    def _is_lost(self) -> bool:
        """Whether the file is gone, which is asked first: one that took its place looks damaged."""
        if self._is_gone or (loss := self._records.loss) is None:
            return self._is_gone
        log.error("the database is gone", extra={"why": loss})
        self._is_gone, self._damage = True, f"{loss}; {RESTORE}"
        return True

    def _works(self) -> None:
        if self._failure is not None:
            log.warning("storing works again")
        self._failure = None

    async def watch(self) -> None:
        """Look at intervals whether the database answers and the reserve of disk space is there, until cancelled."""
        while True:
            if not self._is_lost():
                await self._look()
            if self._reserve is not None:
                await asyncio.to_thread(self._reserve.make)
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        """Ask the database for an answer, and note whether it gives one."""
        try:
            await asyncio.to_thread(self._records.ping)
        except DBAPIError as error:
            self.fails(error)
        except NoConnection as error:
            self._failure = str(error)
        else:
            if not self.is_behind:
                self._works()


class HeldBack:
    """Decisions that must not be carried out before they are stored, and jobs that were refused after all."""

    def __init__(self, cause_of: Callable[[JobId], Cause | None]) -> None:
        self._cause_of = cause_of
        self._decisions: list[Decision] = []
        self.withdrawn: set[JobId] = set()
        """Jobs that the engine knows but that could not be stored: they are cancelled and leave no row."""

    def let_through(self, events: Sequence[Event], decisions: Sequence[Decision]) -> list[Decision]:
        """Return which of the decisions to carry out at once: stops that end a job. The others wait."""
        over = {event.job_id for event in events if isinstance(event, _OVER)}
        waiting = [each for each in self._decisions if each.job_id not in over]
        waiting += [each for each in decisions if each.job_id not in self.withdrawn]
        unstarted = {each.job_id for each in waiting if isinstance(each, Start)}
        now = [each for each in waiting if self._ends(each) and each.job_id not in unstarted]
        stopped = {each.job_id for each in now}
        self._decisions = [each for each in waiting if each.job_id not in stopped]
        return now

    def _ends(self, decision: Decision) -> bool:
        return isinstance(decision, Stop) and (self._cause_of(decision.job_id) or decision.cause) in FOR_GOOD

    def release(self, events: Sequence[Event], decisions: Sequence[Decision]) -> list[Decision]:
        """Return all decisions that wait, and the new ones."""
        over = {event.job_id for event in events if isinstance(event, _OVER)}
        waiting, self._decisions = self._decisions, []
        kept = [each for each in waiting if each.job_id not in over]
        return kept + [each for each in decisions if each.job_id not in self.withdrawn]
