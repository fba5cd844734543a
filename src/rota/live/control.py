"""The live loop. Whatever arrives while a batch is being made durable becomes the next batch.

One batch is one step of the engine and one transaction: new jobs, what changed of old ones, the journal's step.
Only when it is durable are requests answered and decisions carried out, so that a `kill -9` at any moment loses
nothing that was promised and leaves nothing running that is not known.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from sqlalchemy.exc import DBAPIError

from rota.core.decisions import Cause, Decision, Renew, Resize, Start, Stop
from rota.core.engine import Engine
from rota.core.errors import InvariantBroken
from rota.core.events import Event, Interrupted, JobArrived, JobEnded, StartFailed, Stopped, TimerFired
from rota.core.live import LiveJob
from rota.core.model import JobId, JobState
from rota.core.placement import Placement
from rota.core.policy import Allocator, Policy
from rota.core.reasons import Reason
from rota.core.state import State
from rota.drivers.local.order import Order, Word
from rota.files.job import job_file, launch_of
from rota.live.record import Record, changes_of, row_of, shown_state
from rota.live.times import Times
from rota.store.journal import encode_step
from rota.store.records import Batch, Records

log = logging.getLogger("rota.live")
RETRY_S = 0.2
"""Between two tries to write to a database that can't be written to."""


class Driver(Protocol):
    """What the loop asks of a driver."""

    def start(self, order: Order) -> None:
        """Start a job's tasks, each exactly once however often this is asked."""

    def find(self, order: Order) -> None:
        """Take a running job on again."""

    def resize(self, order: Order, before: Placement) -> None:
        """Let a running job go on with another number of tasks than it had."""

    def stop(self, job_id: JobId, cause: Cause) -> None:
        """End a job's tasks."""

    def settle(self) -> None:
        """Every job that should run was handed over: whatever else runs is nobody's."""

    def close(self) -> None:
        """Let go; the tasks run on."""


@dataclass(slots=True)
class Entry:
    """What somebody wants to happen: events, and what is written with them."""

    events: list[Event]
    records: dict[JobId, Record] = field(default_factory=dict)
    answers: list[dict[str, Any]] = field(default_factory=list)
    drained: dict[str, bool] = field(default_factory=dict)
    audit: list[dict[str, Any]] = field(default_factory=list)
    done: asyncio.Future[None] | None = None


@dataclass(frozen=True, slots=True)
class News:
    """A job stands elsewhere than before."""

    job_id: JobId
    tenant: str
    state: str
    step: int


class Tape:
    """The engine's journal for the length of one step: what it says about waiting jobs is written with the rest."""

    def __init__(self) -> None:
        self.waits: list[tuple[JobId, Reason]] = []

    def append(
        self,
        now_s: float,
        events: Sequence[Event],
        decisions: Sequence[Decision],
        waits: Sequence[tuple[JobId, Reason]],
    ) -> None:
        """Remember who waits why from now on."""
        self.waits = list(waits)


class Control:
    """The engine, its records, and the driver: the only place where they meet."""

    def __init__(
        self,
        engine: Engine,
        tape: Tape,
        records: Records,
        kept: dict[JobId, Record],
        first_step: int,
        rebuilt: Callable[[], tuple[Policy, Allocator]],
    ) -> None:
        self.engine = engine
        self.rebuilt = rebuilt
        self.kept = kept
        self.trouble: str | None = None
        """Why nothing can be made durable at present, if so."""
        self.steps = first_step
        self._tape = tape
        self._records = records
        self._names = [str(books.node.id) for books in engine.state.inventory.nodes]
        self._inbox: list[Entry] = []
        self._wake = asyncio.Event()
        self.step_s: deque[float] = deque(maxlen=64)
        """How long the last steps of the engine took."""
        self.step_times = Times()
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="writer")
        self._dependents: dict[JobId, list[JobId]] = {}
        self._listeners: list[Callable[[Sequence[News]], None]] = []
        self._driver: Driver | None = None
        for live in engine.state.jobs.values():
            self._remember_dependencies(live)

    @property
    def state(self) -> State:
        """What the engine knows; for reading only."""
        return self.engine.state

    # -- from outside ----------------------------------------------------------------------------

    async def apply(self, entry: Entry) -> None:
        """Make something happen; returns when it is durable."""
        entry.done = asyncio.get_running_loop().create_future()
        self._put(entry)
        await entry.done

    def answered(self, event: Event, word: Word) -> None:
        """The driver's word on a job."""
        if isinstance(event, JobEnded | Interrupted | StartFailed):
            record = self.kept[event.job_id]
            record.exit_code, record.message, record.failure = word.exit_code, word.message, word.failure
            if isinstance(event, Interrupted) and event.retry_s is not None:
                record.failures += 1
        elif isinstance(event, Stopped) and self.state.jobs[event.job_id].stopping is Cause.TIME_LIMIT:
            record = self.kept[event.job_id]
            record.message, record.failure = "it ran into its time limit", Cause.TIME_LIMIT.value
        self._put(Entry([event]))

    @property
    def pending(self) -> Sequence[Entry]:
        """What the next step will take in."""
        return self._inbox

    def listen(self, listener: Callable[[Sequence[News]], None]) -> Callable[[], None]:
        """Be told of every change once it is durable; returns how to be told no more."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def explain(self, job_id: JobId) -> Reason | None:
        """Why a job does not run; None if it does, has ended or is not known here."""
        return self.engine.explain(job_id) if job_id in self.state.jobs else None

    def _put(self, entry: Entry) -> None:
        self._inbox.append(entry)
        self._wake.set()

    # -- the loop --------------------------------------------------------------------------------

    async def run(self, driver: Driver) -> None:
        """For ever. Jobs that should be running are found again first."""
        self._driver = driver
        self._take_up(driver)
        self._put(Entry([TimerFired()]))
        while True:
            await self._something_to_do()
            entries, self._inbox = self._inbox, []
            await self._step(entries)

    async def _something_to_do(self) -> None:
        while not self._inbox:
            self._wake.clear()
            wait_s = self.engine.wakeup_s - time.time()
            try:
                await asyncio.wait_for(self._wake.wait(), None if math.isinf(wait_s) else max(wait_s, 0.0))
            except TimeoutError:
                self._inbox.append(Entry([TimerFired()]))

    async def _step(self, entries: list[Entry]) -> None:
        now_s = max(time.time(), self.state.now_s)
        events = [event for entry in entries for event in entry.events]
        for entry in entries:
            self.kept.update(entry.records)
        begun = time.perf_counter()
        decisions = self.engine.step(now_s, events)
        self.step_s.append(time.perf_counter() - begun)
        self.step_times.add(self.step_s[-1])
        for decision in decisions:
            if isinstance(decision, Start | Resize):
                self.kept[decision.job_id].attempt += 1
        batch, touched = self._batch(entries, events, decisions, now_s)
        await self._commit(batch)
        for entry in entries:
            if entry.done is not None and not entry.done.done():
                entry.done.set_result(None)
        self._tell(touched)
        self._carry_out(decisions)
        self._forget(touched)

    def _batch(
        self, entries: list[Entry], events: list[Event], decisions: list[Decision], now_s: float
    ) -> tuple[Batch, list[LiveJob]]:
        """All that has to be written, and the jobs that it is about."""
        batch = Batch()
        new: dict[JobId, None] = {}
        for event in events:
            if isinstance(event, JobArrived):
                new[event.job.id] = None
                self._remember_dependencies(self.state.jobs[event.job.id])
        touched = [self.state.jobs[name] for name in self._touched(events, decisions)]
        for live in touched:
            record = self.kept[live.job.id]
            if live.job.id in new:
                batch.new_jobs.append(row_of(live, record, self.state, self._names))
            else:
                batch.changed_jobs.append(changes_of(live, record, self.state, self._names))
        line = encode_step(self.steps, now_s, events, decisions, self._tape.waits, self._names)
        batch.steps.append({"n": self.steps, "body": json.dumps(line, separators=(",", ":"))})
        self.steps += 1
        for entry in entries:
            batch.answers.extend(entry.answers)
            batch.drained.update(entry.drained)
            batch.audit.extend(entry.audit)
        return batch, touched

    def _touched(self, events: Iterable[Event], decisions: Iterable[Decision]) -> list[JobId]:
        """Jobs that a step may have changed: those named, and those that depend on one that ended."""
        found: dict[JobId, None] = {}
        for event in events:
            if isinstance(event, JobArrived):
                found[event.job.id] = None
            elif (job_id := getattr(event, "job_id", None)) is not None:
                found[job_id] = None
        for decision in decisions:
            found[decision.job_id] = None
        due = list(found)
        while due:
            job_id = due.pop()
            if self.state.jobs[job_id].state.is_final:
                for dependent in self._dependents.get(job_id, ()):
                    if dependent not in found and dependent in self.state.jobs:
                        found[dependent] = None
                        due.append(dependent)
        return list(found)

    async def _commit(self, batch: Batch) -> None:
        """Make it durable. While that is impossible nothing else happens: no answer, no decision."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                if self._records.is_near:
                    finish = self._records.write(batch)
                else:
                    finish = await loop.run_in_executor(self._writer, self._records.write, batch)
                await loop.run_in_executor(self._writer, finish)
            except DBAPIError as error:
                if self.trouble is None:
                    log.error("nothing can be stored", extra={"why": str(error.orig)})
                self.trouble = str(error.orig)
                await asyncio.sleep(RETRY_S)
            else:
                if self.trouble is not None:
                    log.warning("storing works again")
                self.trouble = None
                return

    def _tell(self, touched: Sequence[LiveJob]) -> None:
        for live in touched:
            if live.state is not JobState.WAITING or live.preemptions or live.retry_s is not None:
                self._log(live)
        news = [News(live.job.id, live.job.tenant, shown_state(live), self.steps - 1) for live in touched]
        if news:
            for listener in list(self._listeners):
                listener(news)

    def _log(self, live: LiveJob) -> None:
        record = self.kept[live.job.id]
        log.info(
            "job",
            extra={
                "job": live.job.id,
                "attempt": record.attempt or None,
                "state": shown_state(live),
                "stopping": None if live.stopping is None else live.stopping.value,
                "exit_code": record.exit_code,
                "failure": record.failure,
                "why": record.message or None,
            },
        )

    # -- the driver ------------------------------------------------------------------------------

    def _carry_out(self, decisions: Sequence[Decision]) -> None:
        assert self._driver is not None
        for decision in decisions:
            match decision:
                case Start(job_id, _):
                    self._driver.start(self._order(self.state.jobs[job_id]))
                case Stop(job_id, cause):
                    self._driver.stop(job_id, cause)
                case Resize(job_id, _):
                    self._resize(self.state.jobs[job_id], self._driver)
                case Renew(job_id, _, _):
                    raise InvariantBroken(f"job {job_id} was given a lease; no policy that plans in rounds is taken")

    def _resize(self, live: LiveJob, driver: Driver) -> None:
        _, before = self.state.vacating[live.job.id]
        driver.resize(replace(self._order(live), resizes=True), before)

    def _order(self, live: LiveJob) -> Order:
        record = self.kept[live.job.id]
        held = self.state.vacating.get(live.job.id)
        placement = live.placement if live.stopping is None else (held or (live, ()))[1]
        return Order(
            job=live.job,
            launch=launch_of(job_file(json.loads(record.spec)), live.job.id),
            placement=placement or (),
            attempt=record.attempt,
            failures=record.failures,
            work_s=live.work,
        )

    def _take_up(self, driver: Driver) -> None:
        """After a restart: whatever was starting, running or stopping goes on doing that."""
        for live in list(self.state.jobs.values()):
            if live.state is JobState.STARTING and live.stopping is None:
                driver.start(self._order(live))
            elif live.stopping is None and live.job.id in self.state.vacating:
                self._resize(live, driver)
            elif live.state in (JobState.STARTING, JobState.RUNNING):
                driver.find(self._order(live))
            if live.stopping is not None:
                driver.stop(live.job.id, live.stopping)
        driver.settle()

    # -- memory ----------------------------------------------------------------------------------

    def _remember_dependencies(self, live: LiveJob) -> None:
        for needed in live.job.depends_on:
            self._dependents.setdefault(needed, []).append(live.job.id)

    def _forget(self, touched: Sequence[LiveJob]) -> None:
        """Drop what has ended, unless something that has not ended yet depends on it."""
        due = [live.job.id for live in touched if live.state.is_final]
        while due:
            job_id = due.pop()
            live = self.state.jobs.get(job_id)
            if live is None or not live.state.is_final:
                continue
            waiting = [name for name in self._dependents.get(job_id, ()) if self._is_unfinished(name)]
            if waiting:
                continue
            self.state.forget(job_id)
            self.kept.pop(job_id, None)
            self._dependents.pop(job_id, None)
            due.extend(live.job.depends_on)

    def _is_unfinished(self, job_id: JobId) -> bool:
        live = self.state.jobs.get(job_id)
        return live is not None and not live.state.is_final
