"""The live loop. Entries that arrive while a batch is being made durable form the next batch.

One batch is one transaction: new jobs, what changed of old ones, the journal's steps. It is one step of the engine,
or several where much arrived at once, so that other requests are served in between. Only when it is durable are
requests answered and decisions carried out, so that a `kill -9` at any moment loses nothing that was confirmed and
leaves no unknown task running.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

from rota.core.codec.values import encode_job
from rota.core.engine.driver import ExitDetail, LiveDriver
from rota.core.engine.engine import Engine
from rota.core.errors import Unavailable
from rota.core.messages.decisions import Cause, Move, Resize, Start, Stop
from rota.core.messages.events import (
    CheckpointChanged,
    End,
    Event,
    Interrupted,
    JobArrived,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobUpdated,
    Lapsed,
    SpeedChanged,
    StartFailed,
    Stopped,
    TimerFired,
    WorkDone,
)
from rota.core.messages.failures import pause_s
from rota.core.messages.reasons import Reason
from rota.core.model.job import JobId, JobState
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.live.accounts.ledger import UsageLedger
from rota.live.estimates.oom_retry import NoMore, Raise, more_memory
from rota.live.intake.submission_limits import portions
from rota.live.loop.cluster_config import KEY as CLUSTER_KEY
from rota.live.loop.cluster_config import ClusterConfig
from rota.live.loop.dependents import Dependents
from rota.live.loop.entry import LoopEntry, News, StepRecorder
from rota.live.loop.histogram import Histogram
from rota.live.loop.job_log import log_change
from rota.live.loop.leases import LOOK_S, Leases
from rota.live.loop.loop_watch import LoopWatch
from rota.live.loop.record import Record, dump, row_of, shown_state
from rota.live.loop.storage import RETRY_S, CantStore, HeldBack, Storage
from rota.live.loop.transaction import Transaction
from rota.store import clock
from rota.store.disk_reserve import DiskReserve
from rota.store.records import Records, WriteBatch

PAST_KEY = "past"  # the setting that holds the past usage of accounts
MEMORY_EVERY_S = 1.0
_MAY_BE_LATE = (
    *(CheckpointChanged, JobCancelled, JobHeld, JobReleased, JobRequeued, JobUpdated),
    *(Lapsed, SpeedChanged, WorkDone),
)


class Control:
    """Connects the engine, its records and the driver."""

    def __init__(
        self,
        engine: Engine,
        recorder: StepRecorder,
        records: Records,
        kept: dict[JobId, Record],
        first_step: int,
        *,
        plans_slowly: bool = False,
        present: ClusterConfig | None = None,
        reserve: DiskReserve | None = None,
    ) -> None:
        self.engine = engine
        self.present = present
        self.kept = kept
        self.storage = Storage(records, reserve)
        self._held_back = HeldBack(self._stopping)
        self.steps = first_step
        self._recorder = recorder
        self._names = [str(books.node.id) for books in engine.state.inventory.nodes]
        self._inbox: list[LoopEntry] = []
        self._under_way: list[LoopEntry] = []
        self._ended: str | None = None
        self._wake = asyncio.Event()
        self.step_s: deque[float] = deque(maxlen=64)  # durations of the last steps of the engine
        self.step_times = Histogram()
        self.watch = LoopWatch()
        self._planner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="planner") if plans_slowly else None
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._remembered_s = -math.inf
        self._dependents = Dependents(engine.state)
        self.ledger = UsageLedger(engine.state)
        self.gates: list[Callable[[LoopEntry], None]] = []  # may change entries, or refuse those of users
        self.noted: Callable[[LiveJob, Reason | None], Reason | None] = lambda live, reason: reason
        self._leases = Leases(engine.state, lambda event: self.happened(LoopEntry([event])))
        self._listeners: dict[Callable[[Sequence[News]], None], None] = {}
        self._driver: LiveDriver | None = None
        self._hold_when_stopped: set[JobId] = set()

    @property
    def state(self) -> State:
        """The engine's state; for reading only."""
        return self.engine.state

    @property
    def trouble(self) -> str | None:
        """Why nothing can be stored at present, if so."""
        return self.storage.trouble

    def _stopping(self, job_id: JobId) -> Cause | None:
        live = self.state.jobs.get(job_id)
        return None if live is None else live.stopping

    # -- from outside ----------------------------------------------------------------------------

    async def apply(self, entry: LoopEntry) -> None:
        """Add an entry; return when it is durable. Refuse it if that is impossible now and it does not only cancel."""
        if self._ended is not None:
            raise Unavailable(self._ended)
        if not entry.cancels:
            self.storage.refuse_if_troubled()
        entry.done = asyncio.get_running_loop().create_future()
        self.happened(entry)
        await entry.done

    def tell(self, event: Event) -> None:
        """Take an event that needs no answer and carries no details."""
        self.happened(LoopEntry([event]))

    def answered(self, event: Event, detail: ExitDetail) -> None:
        """Take an event of the driver, with details of a job's end."""
        if isinstance(event, JobEnded) and event.end is End.FAILED:
            event, detail = self._retry_with_more_memory(event, detail)
        if isinstance(event, JobEnded | Interrupted | StartFailed):
            record = self.kept[event.job_id]
            record.exit_code, record.message, record.failure = detail.exit_code, detail.message, detail.failure
            if isinstance(event, Interrupted) and event.retry_s is not None:
                record.failures += 1
        elif isinstance(event, Stopped) and self.state.jobs[event.job_id].stopping is Cause.TIME_LIMIT:
            record = self.kept[event.job_id]
            record.message, record.failure = "it reached its time limit", Cause.TIME_LIMIT.value
        elif isinstance(event, CheckpointChanged):
            self.kept[event.job_id].not_suspended = detail.message
        events: list[Event] = [event]
        if isinstance(event, Stopped) and event.job_id in self._hold_when_stopped:
            self._hold_when_stopped.discard(event.job_id)
            events.append(JobHeld(event.job_id))
        self.happened(LoopEntry(events))

    def hold_when_stopped(self, job_id: JobId, *, hold: bool = True) -> None:
        """Hold a job that is being stopped as soon as it has, before it can start again; or no longer do so."""
        (self._hold_when_stopped.add if hold else self._hold_when_stopped.discard)(job_id)

    def warn(self, job_id: JobId, text: str) -> None:
        """Tell all listeners of a warning about a job."""
        if (live := self.state.jobs.get(job_id)) is not None:
            self._notify([News(job_id, live.job.tenant, shown_state(live, self.kept[job_id]), self.steps - 1, text)])

    def _retry_with_more_memory(self, event: JobEnded, detail: ExitDetail) -> tuple[Event, ExitDetail]:
        """Retry a job that ran out of estimated memory with more of it, while there is more."""
        live, record = self.state.jobs[event.job_id], self.kept[event.job_id]
        found: Raise | NoMore | None = None
        if live.stopping is None:
            found = more_memory(record.spec, live, self.state.inventory.nodes, detail.failure)
        if isinstance(found, Raise) and (why := self.engine.refuse(found.job)) is not None:
            found = NoMore(message=f"{detail.message}; it can't have more: {why}")
        match found:
            case None:
                return event, detail
            case NoMore(message=message):
                return event, replace(detail, message=message)
            case Raise(spec=spec, job=job, message=message):
                record.spec = dump(spec)
                retry_s = clock.now_s() + pause_s(record.failures + 1)
                return Interrupted(event.job_id, event.work, retry_s, job), replace(detail, message=message)

    @property
    def pending(self) -> Sequence[LoopEntry]:
        """Entries of the next step."""
        return self._inbox

    def listen(self, listener: Callable[[Sequence[News]], None]) -> Callable[[], None]:
        """Call a listener with every change once it is durable; return how to remove it, also more than once."""
        self._listeners[listener] = None
        return lambda: self._listeners.pop(listener, None)

    def remembered(self, job_id: JobId) -> SimpleNamespace | None:
        """Return an unfinished job as its row would be stored now, for when the database can't be read."""
        live, record = self.state.jobs.get(job_id), self.kept.get(job_id)
        if live is None or record is None:
            return None
        return SimpleNamespace(**row_of(live, record, self.state, self._names, encode_job(live.job)))

    def explain(self, job_id: JobId) -> Reason | None:
        """Return why a job does not run; None if it does, has ended or is not known here.

        While a long plan is being made, it is the last known reason.
        """
        live = self.state.jobs.get(job_id)
        if live is None:
            return None
        if self._at_rest.is_set():
            return self.noted(live, self.engine.explain(job_id))
        return Reason(code=live.wait_code) if live.state is JobState.WAITING and live.wait_code is not None else None

    async def at_rest(self) -> None:
        """Wait until no plan is being made, so that the state is consistent."""
        await self._at_rest.wait()

    def happened(self, entry: LoopEntry) -> None:
        """Add an entry without waiting until it is durable."""
        for gate in self.gates:
            gate(entry)
        self._inbox.append(entry)
        self._wake.set()

    # -- the loop --------------------------------------------------------------------------------

    def give_to(self, driver: LiveDriver) -> None:
        """Let this driver carry decisions out from now on."""
        self._driver = driver

    async def run(self, driver: LiveDriver) -> None:
        """Run until cancelled. Tasks that should be running are found again first."""
        self.give_to(driver)
        driver.take_up()
        for live in self.state.jobs.values():
            self._leases.take_up(live)
        self.happened(LoopEntry([TimerFired()]))
        while True:
            await self._something_to_do()
            self._under_way, self._inbox = self._inbox, []
            await self._step(self._under_way)
            self._under_way = []

    def end(self, why: str) -> None:
        """Answer all that wait for a loop that was cancelled, in a step or before it, and refuse what comes later."""
        self._ended = why
        for entry in (*self._under_way, *self._inbox):
            entry.answer(Unavailable(why))

    async def _something_to_do(self) -> None:
        while not self._inbox:
            self._wake.clear()
            wait_s = min(max(self.engine.wakeup_s - clock.now_s(), 0.0), LOOK_S)
            try:
                await asyncio.wait_for(self._wake.wait(), min(wait_s, RETRY_S) if self.storage.is_behind else wait_s)
            except TimeoutError:
                if self.storage.is_behind:
                    return
                if clock.now_s() >= self.engine.wakeup_s:
                    self._inbox.append(LoopEntry([TimerFired()]))

    async def _step(self, entries: list[LoopEntry]) -> None:
        if self.storage.is_behind:
            entries = [entry for entry in entries if not self._is_refused(entry)]
            if clock.now_s() >= self.engine.wakeup_s:
                entries.append(LoopEntry([TimerFired()]))
        for entry in entries:
            self.kept.update(entry.records)
        made = Transaction(self.state, self.kept, self._dependents, self._names, self.ledger)
        for entry in entries:
            made.specs.update(entry.specs)
            if entry.segment is not None:
                entry.segment.change()
                made.batch.segment = (self.steps, entry.segment.header())
        events = [event for entry in entries for event in entry.events if not self._is_late(event)]
        for number, part in enumerate(portions(events)):
            if number:
                await asyncio.sleep(0)
            await self._take_in(made, part)
        for entry in entries:
            entry.add_to(made.batch)
            if entry.cluster is not None and self.present is not None:
                self.present.became(entry.cluster, self.state)
                made.batch.settings[CLUSTER_KEY] = dump(self.present.encode(self.state))
        self._remember(made.batch)
        made.drop_rows(self._held_back.withdrawn)
        if await self.storage.store(made.batch):
            orders = self._held_back.release(events, made.decisions)
            for entry in entries:
                entry.answer()
        else:
            self._withdraw(entries, made)
            orders = self._held_back.let_through(events, made.decisions)
            for entry in entries:
                self._answer_unstored(entry)
        if any(entry.done is not None for entry in entries):
            await asyncio.sleep(0)  # the answers leave before what they caused is carried out
        withdrawn = self._held_back.withdrawn
        self._tell([live for job_id, live in made.touched.items() if job_id not in withdrawn])
        assert self._driver is not None
        for event in self._driver.carry_out(orders, clock.now_s()):
            self.happened(LoopEntry([event]))
        for decision in made.decisions:
            if isinstance(decision, Stop) and decision.job_id in withdrawn:
                self.happened(LoopEntry([Stopped(decision.job_id, 0.0)]))  # its start was never carried out
        for live in made.touched.values():
            self._leases.watch(live)
        for job_id in self._dependents.forget(made.touched):
            self.kept.pop(job_id, None)
            withdrawn.discard(job_id)

    def _is_refused(self, entry: LoopEntry) -> bool:
        """Refuse a request that came while nothing can be stored, unless it only cancels."""
        if entry.done is None or entry.cancels:
            return False
        entry.answer(CantStore(f"nothing can be stored now: {self.trouble}; try again later"))
        return True

    def _withdraw(self, entries: list[LoopEntry], made: Transaction) -> None:
        """Take back submissions that could not be stored: they are refused, cancelled, and leave no row."""
        for entry in entries:
            jobs = [event.job.id for event in entry.events if isinstance(event, JobArrived)]
            if entry.done is None or not jobs:
                continue
            self._held_back.withdrawn.update(jobs)
            made.batch.answers = [row for row in made.batch.answers if row not in entry.answers]
            made.batch.audit = [row for row in made.batch.audit if row not in entry.audit]
            made.batch.trials = [row for row in made.batch.trials if row not in entry.trials]
            self.happened(LoopEntry([JobCancelled(job_id) for job_id in jobs]))
            entry.answer(CantStore(f"nothing can be stored now: {self.trouble}; try again later"))
        made.drop_rows(self._held_back.withdrawn)

    def _answer_unstored(self, entry: LoopEntry) -> None:
        """Answer a request whose changes wait to be stored: a running job's cancellation counts, for it is stopped."""
        jobs = [self.state.jobs.get(event.job_id) for event in entry.events if isinstance(event, JobCancelled)]
        if entry.cancels and all(live is not None and live.stopping is Cause.CANCELLED for live in jobs):
            entry.answer()
        else:
            why = f"it is in effect, but can't be stored now: {self.trouble}"
            entry.answer(CantStore(f"{why}; it is lost if the manager ends before it can"))

    def _is_late(self, event: Event) -> bool:
        """Return whether an event is for a job that ended in an earlier step."""
        return isinstance(event, _MAY_BE_LATE) and event.job_id not in self.state.jobs

    async def _take_in(self, made: Transaction, events: list[Event]) -> None:
        """Run one step of the engine. A slow planner runs in its own thread, while requests are taken."""
        now_s = max(clock.now_s(), self.state.now_s)
        begun = time.perf_counter()
        if self._planner is None:
            decisions = self.engine.step(now_s, events)
        else:
            self._at_rest.clear()
            loop = asyncio.get_running_loop()
            decisions = await loop.run_in_executor(self._planner, self.engine.step, now_s, events)
            self._at_rest.set()
        self.step_s.append(time.perf_counter() - begun)
        self.step_times.add(self.step_s[-1])
        for decision in decisions:
            if isinstance(decision, Start | Move) or (
                isinstance(decision, Resize) and decision.job_id in self.state.vacating
            ):
                self.kept[decision.job_id].attempt += 1
        made.add(self.steps, now_s, events, decisions, self._recorder.waits)
        self.steps += 1

    def _remember(self, batch: WriteBatch) -> None:
        """Write the policy's memory at intervals; with every step for policies that plan in rounds."""
        if self.storage.is_behind:
            return
        now_s = time.monotonic()
        if self._planner is None and now_s < self._remembered_s + MEMORY_EVERY_S:
            return
        self._remembered_s = now_s
        memory = self.engine.memory
        if memory is not None:
            batch.memory = dump(memory)
        if self.state.past:
            batch.settings[PAST_KEY] = dump(self.state.past)

    def _tell(self, touched: Sequence[LiveJob]) -> None:
        for live in touched:
            if live.state is not JobState.WAITING or live.preemptions or live.retry_s is not None:
                log_change(live, self.kept[live.job.id])
        shown = [(live.job, shown_state(live, self.kept[live.job.id])) for live in touched]
        self._notify([News(job.id, job.tenant, state, self.steps - 1) for job, state in shown])

    def _notify(self, news: Sequence[News]) -> None:
        for listener in list(self._listeners) if news else ():
            listener(news)
