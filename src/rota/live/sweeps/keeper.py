"""Runs the sweeps of a manager: reads what trials report, decides, and lets the loop carry it out.

A decision and what it does to jobs are one entry of the loop, and so one transaction: a trial is never lost, and never
begun twice, whenever the manager is killed. After a restart the sweeps continue from the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy.exc import DBAPIError

from rota.core.errors import RotaError, Unavailable
from rota.core.messages.events import (
    Event,
    Interrupted,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobRequeued,
    StartFailed,
    Stopped,
)
from rota.core.model.job import JobId, JobState
from rota.live.intake.audit_entry import Asker, audit_entry
from rota.live.intake.quotas import TooMany
from rota.live.intake.requests import Conflict, NotFound, Requests
from rota.live.loop.control import Control
from rota.live.loop.entry import LoopEntry, News
from rota.live.loop.storage import CantStore
from rota.live.sweeps import rungs
from rota.live.sweeps.rows import FAILED, FINISHED, STOPPED, LiveSweep, sweep_of, trial_row
from rota.live.sweeps.trial_output import TrialOutput
from rota.live.workers.fair_turns import FairTurns
from rota.store import clock
from rota.store.records import Records
from rota.store.sweeps import RUNNING
from rota.sweeps.file import sweep_file
from rota.sweeps.rules import refuse_many_marks, rule_of
from rota.sweeps.samplers import refuse_unavailable
from rota.sweeps.search import Search
from rota.sweeps.trial import Point, SweepTrial, TrialState

log = logging.getLogger("rota.live")
Json = dict[str, Any]
LOOK_S = 0.25
"""How often the reports of running trials are looked at."""
RETRY_S = 2.0
"""When what was refused for now is tried again."""
MOST_NEW, MOST_NEW_TPE = 100, 8
"""Trials that begin at once; those of a sampler that learns take longer to draw."""
_LEADS_ON = (JobReleased, Stopped, Interrupted, StartFailed)
"""Events after which a job could start."""
_ENDS = {
    JobState.SUCCEEDED.value: TrialState.COMPLETED,
    JobState.FAILED.value: TrialState.FAILED,
    JobState.CANCELLED.value: TrialState.CANCELLED,
}


class SweepKeeper:
    """The sweeps that have not ended."""

    def __init__(self, control: Control, records: Records, requests: Requests, home: Path) -> None:
        self._control = control
        self._records = records
        self._requests = requests
        self._home = home
        self._live: dict[str, LiveSweep] = {}
        self._outputs: dict[str, TrialOutput] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._by_job: dict[str, tuple[str, int]] = {}
        """The sweep and the number of each trial, by its job."""
        self._wake = asyncio.Event()
        self._advancing: dict[str, asyncio.Task[None]] = {}
        self._sampling = FairTurns()
        """Drawing takes a processor's time: one sweep at a time draws, with owners in rotation."""
        self._next = records.sweeps.next_seq()
        control.gates.append(self._gate)
        control.listen(self._noticed)

    def take_up(self) -> None:
        """Continue the sweeps of the database; to be called before the loop runs, as paused trials must not start."""
        for row in self._records.sweeps.live():
            sweep = sweep_of(row, self._records.opened(row.job, row.id), self._records.sweeps.trials(row.id))
            self._keep(sweep)
            for trial in sweep.search.trials:
                if trial.state is not TrialState.ACTIVE and (events := self._orders(trial)):
                    self._control.happened(LoopEntry(events))

    @property
    def live(self) -> Sequence[LiveSweep]:
        """The sweeps that have not ended."""
        return list(self._live.values())

    def of(self, sweep_id: str) -> LiveSweep | None:
        """A sweep that has not ended, or None."""
        return self._live.get(sweep_id)

    def _keep(self, sweep: LiveSweep) -> None:
        self._live[sweep.id] = sweep
        self._outputs[sweep.id] = TrialOutput(self._home, sweep.file)
        self._locks[sweep.id] = asyncio.Lock()
        for trial in sweep.search.trials:
            self._by_job[trial.job_id] = sweep.id, trial.number
        self._wake.set()

    def _forget(self, sweep: LiveSweep) -> None:
        for kept in (self._live, self._outputs, self._locks):
            kept.pop(sweep.id, None)
        for trial in sweep.search.trials:
            self._by_job.pop(trial.job_id, None)

    def _noticed(self, news: Sequence[News]) -> None:
        if any(str(each.job_id) in self._by_job for each in news):
            self._wake.set()

    def _trial_of(self, job_id: JobId) -> tuple[LiveSweep, SweepTrial] | None:
        """Return the trial of a job with its sweep, if that has not ended."""
        sweep_id, number = self._by_job.get(job_id, ("", 0))
        sweep = self._live.get(sweep_id)
        return None if sweep is None else (sweep, sweep.search.trials[number])

    def _gate(self, entry: LoopEntry) -> None:
        """Hold paused trials as soon as their tasks have ended, and keep them from being released by anything else.

        They would run on unjudged. One that left its devices at a rung while no manager ran is held until it is judged.
        """
        events: list[Event] = []
        for event in entry.events:
            found = self._trial_of(event.job_id) if isinstance(event, _LEADS_ON) else None
            if found is None or not isinstance(event, _LEADS_ON):
                events.append(event)
                continue
            sweep, trial = found
            is_paused = trial.state is TrialState.PAUSED
            if isinstance(event, JobReleased):
                if is_paused and entry.done is not None:
                    raise Conflict(f"job {event.job_id} is a paused trial of sweep {sweep.id}, which releases it")
                events.append(JobHeld(event.job_id) if is_paused else event)
            else:
                is_left = trial.state is TrialState.ACTIVE and self._has_left(event)
                if is_left:
                    rungs.note_hold(self._control.kept[event.job_id], sweep.id)
                events += [event, JobHeld(event.job_id)] if is_paused or is_left else [event]
            if is_paused:
                self._say(sweep, trial)
        entry.events[:] = events

    def _has_left(self, event: Stopped | Interrupted | StartFailed) -> bool:
        record = self._control.kept.get(event.job_id)
        return (
            isinstance(event, Stopped)
            and record is not None
            and rungs.has_left(self._home, event.job_id, record.attempt)
        )

    def _say(self, sweep: LiveSweep, trial: SweepTrial) -> None:
        """Let the job of a trial say what its sweep does with it."""
        record = self._control.kept.get(JobId(trial.job_id))
        if record is None:
            return
        begins = f"sweep {sweep.id} "
        if trial.state is TrialState.PAUSED:
            record.message = f"{begins}has paused it ({trial.why}), and releases it if it is promoted"
        elif trial.state is TrialState.STOPPED:
            record.message = f"{begins}has stopped it: {trial.why}"
        elif record.message.startswith(begins):
            record.message = ""

    # -- requests --------------------------------------------------------------------------------

    async def start(self, values: Json, asker: Asker) -> LiveSweep:
        """Accept a sweep with its first trials, all or nothing; return it once it is durable."""
        file = sweep_file(values)
        refuse_unavailable(file)
        refuse_many_marks(file)
        seq, self._next = self._next, self._next + 1
        sweep = LiveSweep(
            id=f"s{seq}",
            seq=seq,
            name=file.name or f"s{seq}",
            asker=asker,
            values=values,
            search=Search(file, rule_of(file)),
            created_s=clock.now_s(),
        )

        def along(entry: LoopEntry) -> None:
            entry.sweeps.append(sweep.row())
            entry.audit.append(audit_entry(asker, "sweep", sweep.id, sweep.name))

        steps = sweep.search.decide({}, {})
        await self._begin(sweep, steps.new, along)
        self._keep(sweep)
        log.info("sweep", extra={"sweep": sweep.id, "who": asker.name})
        return sweep

    async def stop(self, sweep_id: str, asker: Asker) -> None:
        """End a sweep: its trials are cancelled, and no more begin."""
        sweep = self._live.get(sweep_id)
        if sweep is None:
            if await asyncio.to_thread(self._records.sweeps.one, sweep_id) is None:
                raise NotFound(f"there is no sweep {sweep_id[:64]!r}")
            raise Conflict(f"sweep {sweep_id} has ended already")
        async with self._locks[sweep_id]:
            if sweep.state != RUNNING:
                raise Conflict(f"sweep {sweep_id} has ended already")
            entry = self._ending(sweep, STOPPED, f"stopped by {asker.name}")
            entry.audit.append(audit_entry(asker, "stop-sweep", sweep.id, sweep.name))
            await self._control.apply(entry)
        log.info("stop-sweep", extra={"sweep": sweep.id, "who": asker.name})

    def _ending(self, sweep: LiveSweep, state: str, why: str) -> LoopEntry:
        """End a sweep; return the entry that makes it so."""
        entry = LoopEntry([])
        for trial in list(sweep.search.trials):
            if not trial.state.is_over:
                self._change(sweep, replace(trial, state=TrialState.CANCELLED, why="the sweep has ended"), entry)
        self._end(sweep, state, why, entry)
        return entry

    def _end(self, sweep: LiveSweep, state: str, why: str, entry: LoopEntry) -> None:
        sweep.state, sweep.why, sweep.ended_s = state, why, clock.now_s()
        entry.sweeps.append(sweep.row())
        self._forget(sweep)

    # -- the search ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look at all sweeps again and again, until cancelled; each goes on at its own pace."""
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), LOOK_S if self._live else None)
                self._wake.clear()
                for sweep_id, task in list(self._advancing.items()):
                    if task.done():
                        self._advancing.pop(sweep_id).result()
                for sweep in self._live.values():
                    if sweep.id not in self._advancing:
                        self._advancing[sweep.id] = asyncio.create_task(self._turn(sweep))
        finally:
            for task in self._advancing.values():
                task.cancel()

    async def _turn(self, sweep: LiveSweep) -> None:
        lock = self._locks.get(sweep.id)
        if lock is not None:
            async with lock:
                if sweep.state == RUNNING:
                    await self._advance(sweep)

    async def _advance(self, sweep: LiveSweep) -> None:
        """Take in what is new of a sweep, and do what follows."""
        reports, ended, held = await self._news(sweep)
        if not (reports or ended or held or (sweep.is_due and clock.now_s() >= sweep.retry_s)):
            return
        steps = sweep.search.decide(reports, ended)
        await asyncio.to_thread(self._tell_decisions, sweep, list(steps.changed.values()))
        entry = LoopEntry([])
        for trial in steps.changed.values():
            self._change(sweep, trial, entry)
        for number in held:
            if (trial := sweep.search.trials[number]).state is TrialState.ACTIVE:
                self._say(sweep, trial)
                entry.events.append(JobReleased(JobId(trial.job_id)))
        if steps.is_over:
            self._end(sweep, FAILED if steps.has_failed else FINISHED, steps.why, entry)
        if entry.events or entry.trials or entry.sweeps:
            self._control.happened(entry)  # stored before it is carried out, in the order of all entries
        sweep.is_due = False
        if steps.new:
            await self._begin_more(sweep, steps.new)
            sweep.is_due = True

    def _tell_decisions(self, sweep: LiveSweep, changed: Sequence[SweepTrial]) -> None:
        """Let trials know that were judged; before that counts, so that one that is released knows it."""
        for trial in changed:
            before = sweep.search.trials[trial.number]
            is_judged = trial.values != before.values or trial.state is not before.state
            if is_judged and trial.values and sweep.search.rule.rungs(trial.number):
                rungs.tell_decision(self._home, trial)

    async def _news(self, sweep: LiveSweep) -> tuple[dict[int, Sequence[Point]], dict[int, TrialState], list[int]]:
        """Return the reports of trials that have reported something, how those ended whose jobs have, and the trials
        that are held at a rung."""
        jobs, kept, output = self._control.state.jobs, self._control.kept, self._outputs[sweep.id]
        going, gone, held = [], [], []
        for trial in sweep.search.trials:
            if trial.state.is_over:
                continue
            live, record = jobs.get(JobId(trial.job_id)), kept.get(JobId(trial.job_id))
            if live is None or record is None or live.state.is_final:
                gone.append(trial)
            elif trial.state is TrialState.ACTIVE and record.attempt:
                going.append((trial, record.attempt))
                if live.state is JobState.HELD and rungs.is_held(record, sweep.id):
                    held.append(trial.number)
                    sweep.stamps.pop(trial.number, None)
            elif trial.state is TrialState.PAUSED and (events := self._orders(trial)):
                self._control.happened(LoopEntry(events))
        return (*await asyncio.to_thread(self._read, sweep, output, going, gone), held)

    def _read(
        self, sweep: LiveSweep, output: TrialOutput, going: list[tuple[SweepTrial, int]], gone: list[SweepTrial]
    ) -> tuple[dict[int, Sequence[Point]], dict[int, TrialState]]:
        reports: dict[int, Sequence[Point]] = {}
        ended: dict[int, TrialState] = {}
        for trial, attempts in going:
            stamp = output.stamp(JobId(trial.job_id), attempts)
            if stamp != sweep.stamps.get(trial.number):
                sweep.stamps[trial.number] = stamp
                reports[trial.number] = output.read(JobId(trial.job_id), attempts)
        for trial in gone:
            row = self._records.job(trial.job_id)
            if row is None or row.state in _ENDS:
                ended[trial.number] = TrialState.CANCELLED if row is None else _ENDS[row.state]
                sweep.messages[trial.number] = "" if row is None else row.message or ""
                reports[trial.number] = output.read(JobId(trial.job_id), 0 if row is None else row.attempt)
        return reports, ended

    def _change(self, sweep: LiveSweep, trial: SweepTrial, entry: LoopEntry) -> None:
        """Put a changed trial, with its row and its orders, into an entry."""
        before = sweep.search.trials[trial.number]
        if trial.state is TrialState.FAILED:
            trial = replace(trial, why=sweep.messages.pop(trial.number, trial.why))
        sweep.search.put(trial)
        entry.trials.append(trial_row(sweep.id, trial))
        if trial.state is not before.state:
            self._say(sweep, trial)
            entry.events += self._orders(trial)
            sweep.stamps.pop(trial.number, None)  # a resumed trial is judged by all that it reported
            log.info("trial", extra={"sweep": sweep.id, "trial": trial.number, "state": trial.state.value})

    def _orders(self, trial: SweepTrial) -> list[Event]:
        """Return what brings the job of a trial to where the trial is; nothing if it is there."""
        job_id = JobId(trial.job_id)
        live = self._control.state.jobs.get(job_id)
        if live is None or live.state.is_final:
            return []
        if trial.state is TrialState.ACTIVE:  # while it leaves, its hold may be on its way
            return [JobReleased(job_id)] if live.state is JobState.HELD or live.is_leaving else []
        if trial.state is not TrialState.PAUSED:
            return [JobCancelled(job_id)]
        if live.state is JobState.HELD or live.is_leaving:
            return []
        return [JobHeld(job_id) if live.state is JobState.WAITING else JobRequeued(job_id)]

    # -- new trials ------------------------------------------------------------------------------

    async def _begin_more(self, sweep: LiveSweep, count: int) -> None:
        """Begin new trials; wait where their owner may not submit more now, and end the sweep if they are refused."""
        if clock.now_s() < sweep.retry_s:
            return
        try:
            await self._begin(sweep, count)
        except (TooMany, CantStore, Unavailable, DBAPIError) as error:
            sweep.retry_s = clock.now_s() + RETRY_S
            log.info("sweep-waits", extra={"sweep": sweep.id, "why": str(error)})
        except RotaError as error:
            self._control.happened(self._ending(sweep, FAILED, str(error)))

    async def _begin(self, sweep: LiveSweep, count: int, along: Any = None) -> None:
        """Submit the jobs of new trials, with the trials in the same transaction."""
        most = MOST_NEW_TPE if sweep.file.sampler == "tpe" else MOST_NEW
        async with self._sampling.turn(sweep.asker.name):
            new = await asyncio.to_thread(sweep.sampled, min(count, most))
        rule = sweep.search.rule
        files = [
            sweep.file.trial_job(
                sweep.id, sweep.name, each.number, each.params, rule.marks(each.number), rule.rungs(each.number)
            )
            for each in new
        ]
        made: list[SweepTrial] = []

        def add(entry: LoopEntry) -> None:
            for trial, job_id in zip(new, entry.records, strict=True):
                made.append(replace(trial, job_id=str(job_id)))
                entry.trials.append(trial_row(sweep.id, made[-1]))
            if along is not None:
                along(entry)

        await self._requests.submit(files, sweep.asker, along=add)
        for trial in made:
            sweep.search.put(trial)
            self._by_job[trial.job_id] = sweep.id, trial.number
