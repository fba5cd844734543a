"""The last day over time, from the journal: devices in use by tenant, jobs waiting, how long starters had waited.

Read on request: the first time the day's steps (found by bisection, no pass over older ones), later only
what has been added since. What stood before the day began is known from the jobs' records.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from rota.core.codec.values import decode_decision, decode_event, decode_job
from rota.core.messages import events as ev
from rota.core.messages.decisions import Cause, Decision, Move, Resize, Resume, Start, Stop
from rota.core.messages.events import Event
from rota.core.model.job import WHOLE, JobId, TenantId
from rota.core.model.placement import held_milli
from rota.live.loop.control import Control
from rota.report.series import Floats, from_intervals, means
from rota.store import clock
from rota.store.records import Records

DAY_S = 86400.0
SHORTEST_S = 600.0
"""A young manager's day is drawn from its beginning, and no shorter than this."""
STRETCHES = 288
FRESH_S = 3.0
"""How old an answer may be before the journal is read on."""
_BACK_IN_LINE = frozenset({Cause.PREEMPTED, Cause.MOVED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """A period in equal intervals; each list has a number for each interval."""

    edges_s: list[float]
    waiting: list[float]
    """Jobs that waited, on average."""
    wait_s: list[float | None]
    """How long those that started then had waited, on average; None where none did."""
    used: dict[TenantId, list[float]]
    """Devices that each tenant held, on average."""

    @property
    def in_use(self) -> list[float]:
        """Devices that all tenants held together."""
        return [sum(parts) for parts in zip(*self.used.values(), strict=True)] or [0.0] * len(self.waiting)


@dataclass(slots=True)
class _Known:
    """A job as far as the series are concerned."""

    tenant: TenantId
    milli: int
    submitted_s: float
    started: bool = False
    held_since_s: float | None = None
    held_milli: int = 0
    waits_since_s: float | None = None
    stopping: Cause | None = None
    seen: bool = False
    """Whether a step of the day has named it yet; before that it is not known whether it ran or waited."""


@dataclass(slots=True)
class _Spans:
    """Stretches that are over, in parallel columns."""

    start_s: list[float] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)
    amount: list[float] = field(default_factory=list)

    def add(self, start_s: float, end_s: float, amount: float = 1.0) -> None:
        """One more."""
        self.start_s.append(start_s)
        self.end_s.append(end_s)
        self.amount.append(amount)

    def means(self, edges_s: Floats) -> list[float]:
        """The mean sum of amounts between each two edges."""
        if not self.start_s:
            return [0.0] * (len(edges_s) - 1)
        series = from_intervals(np.array(self.start_s), np.array(self.end_s), np.array(self.amount))
        return [round(float(value), 4) for value in means(series, edges_s)]

    def copy_since(self, at_s: float) -> _Spans:
        """Those that reach into the time after a moment."""
        kept = _Spans()
        for start_s, end_s, amount in zip(self.start_s, self.end_s, self.amount, strict=True):
            if end_s > at_s:
                kept.add(start_s, end_s, amount)
        return kept


class Recent:
    """The last day of a manager, for any number of readers."""

    def __init__(self, records: Records, control: Control) -> None:
        self._records = records
        self._control = control
        self._reading = threading.Lock()
        self._next: int | None = None
        self._begun_s = 0.0
        self._first_s = math.inf
        """When the first thing happened that is known of."""
        self._jobs: dict[JobId, _Known] = {}
        self._held: dict[TenantId, _Spans] = {}
        self._waited = _Spans()
        self._starts: list[tuple[float, float]] = []
        self._nodes: defaultdict[str, int] = defaultdict(int)
        """Which node is meant does not matter here; those of old steps may be gone."""
        self._last: tuple[float, Day] | None = None

    async def day(self) -> Day:
        """The last 24 hours up to now, or all of a manager's time if that is less."""
        if self._last is not None and clock.now_s() - self._last[0] < FRESH_S:
            return self._last[1]
        now_s = clock.now_s()
        present = {name: live.placement is not None for name, live in self._control.state.jobs.items()}
        return await asyncio.to_thread(self._day, present, now_s)

    def _day(self, present: dict[JobId, bool], now_s: float) -> Day:
        with self._reading:
            if self._next is None:
                self._begin(now_s - DAY_S)
            self._read_on()
            self._drop_gone(present, now_s)
            day = self._cut(now_s, present)
            self._last = (now_s, day)
            return day

    # -- reading ---------------------------------------------------------------------------------

    def _begin(self, at_s: float) -> None:
        """What stood when the day began."""
        self._begun_s = at_s
        for row in self._records.alive_at(at_s):
            job = decode_job(json.loads(row.job))
            was_started = row.started_s is not None and row.started_s <= at_s
            self._jobs[job.id] = _Known(job.tenant, job.gpu_milli, row.submitted_s, started=was_started)
            self._first_s = at_s
        self._next = self._records.first_step_since(at_s)

    def _read_on(self) -> None:
        assert self._next is not None
        for body in self._records.steps(self._next):
            value = json.loads(body)
            now_s = float(value["t"])
            self._first_s = min(self._first_s, now_s)
            for each in value["in"]:
                self._take(decode_event(each), now_s)
            for each in value.get("out", ()):
                self._obey(decode_decision(each, self._nodes), now_s)
            self._next = int(value["n"]) + 1

    def _take(self, event: Event, now_s: float) -> None:
        match event:
            case ev.JobArrived(job, held):
                known = _Known(job.tenant, job.gpu_milli, now_s, seen=True)
                known.waits_since_s = None if held else now_s
                self._jobs[job.id] = known
            case ev.JobEnded(job_id) | ev.JobCancelled(job_id):
                self._end(job_id, now_s, left=isinstance(event, ev.JobEnded))
            case ev.Stopped(job_id) | ev.Interrupted(job_id) | ev.StartFailed(job_id):
                if job_id in self._jobs:
                    self._leave(self._jobs[job_id], now_s)
                    self._wait_or_go(job_id, now_s, stopped=isinstance(event, ev.Stopped))
            case ev.Suspended(job_id) | ev.WorkDone(job_id):
                if job_id in self._jobs:
                    self._leave(self._jobs[job_id], now_s)
            case ev.JobHeld(job_id):
                if job_id in self._jobs:
                    self._stop_waiting(self._jobs[job_id], now_s)
            case ev.JobReleased(job_id):
                if job_id in self._jobs:
                    self._jobs[job_id].seen = True
                    self._jobs[job_id].waits_since_s = now_s
            case _:
                pass

    def _obey(self, decision: Decision, now_s: float) -> None:
        known = self._jobs.get(decision.job_id)
        if known is None:
            return
        match decision:
            case Start(_, placement):
                self._stop_waiting(known, now_s)
                if not known.started:
                    known.started = True
                    self._starts.append((now_s, now_s - known.submitted_s))
                known.held_since_s, known.held_milli = now_s, held_milli(placement)
            case Resize(_, placement) | Move(_, placement) | Resume(_, placement):
                self._leave(known, now_s)
                known.held_since_s, known.held_milli = now_s, held_milli(placement)
            case Stop(_, cause):
                known.stopping = cause
            case _:
                pass

    def _end(self, job_id: JobId, now_s: float, *, left: bool) -> None:
        known = self._jobs.get(job_id)
        if known is None:
            return
        if left:
            self._leave(known, now_s)
            del self._jobs[job_id]
        elif known.waits_since_s is not None:
            self._stop_waiting(known, now_s)
            del self._jobs[job_id]

    def _wait_or_go(self, job_id: JobId, now_s: float, *, stopped: bool) -> None:
        known = self._jobs[job_id]
        if not stopped or known.stopping in _BACK_IN_LINE:
            known.stopping, known.waits_since_s = None, now_s
        else:
            del self._jobs[job_id]

    def _leave(self, known: _Known, now_s: float) -> None:
        """It gives its devices back. One that no step has named before held them since before the day."""
        since_s, milli = known.held_since_s, known.held_milli
        if since_s is None and not known.seen:
            since_s, milli = self._begun_s, known.milli
        known.seen = True
        if since_s is not None:
            self._held.setdefault(known.tenant, _Spans()).add(since_s, now_s, milli / WHOLE)
        known.held_since_s = None

    def _stop_waiting(self, known: _Known, now_s: float) -> None:
        since_s = known.waits_since_s
        if since_s is None and not known.seen:
            since_s = self._begun_s
        known.seen = True
        if since_s is not None:
            self._waited.add(since_s, now_s)
        known.waits_since_s = None

    def _drop_gone(self, present: dict[JobId, bool], now_s: float) -> None:
        """Jobs that ended without an event of their own, because one that they depend on failed."""
        gone = [name for name, known in self._jobs.items() if name not in present and known.submitted_s < now_s]
        for job_id in gone:
            self._stop_waiting(self._jobs[job_id], now_s)
            del self._jobs[job_id]

    # -- answering -------------------------------------------------------------------------------

    def _cut(self, now_s: float, present: dict[JobId, bool]) -> Day:
        begin_s = max(now_s - DAY_S, min(self._first_s, now_s - SHORTEST_S))
        self._waited = self._waited.copy_since(begin_s)
        self._held = {tenant: spans.copy_since(begin_s) for tenant, spans in self._held.items()}
        self._starts = [(at_s, waited_s) for at_s, waited_s in self._starts if at_s > begin_s]
        waited = self._waited.copy_since(begin_s)
        held = {tenant: spans.copy_since(begin_s) for tenant, spans in self._held.items()}
        for job_id, known in self._jobs.items():
            holds_s, waits_s, milli = known.held_since_s, known.waits_since_s, known.held_milli
            if not known.seen:
                if present.get(job_id):
                    holds_s, milli = self._begun_s, known.milli
                else:
                    waits_s = self._begun_s
            if holds_s is not None:
                held.setdefault(known.tenant, _Spans()).add(holds_s, now_s, milli / WHOLE)
            if waits_s is not None:
                waited.add(waits_s, now_s)
        edges_s = np.linspace(begin_s, now_s, STRETCHES + 1)
        return Day(
            edges_s=[float(at_s) for at_s in edges_s],
            waiting=waited.means(edges_s),
            wait_s=_mean_by_stretch(self._starts, edges_s),
            used={tenant: spans.means(edges_s) for tenant, spans in sorted(held.items())},
        )


def _mean_by_stretch(points: Iterable[tuple[float, float]], edges_s: Floats) -> list[float | None]:
    sums, counts = np.zeros(len(edges_s) - 1), np.zeros(len(edges_s) - 1)
    for at_s, value in points:
        index = int(np.searchsorted(edges_s, at_s, side="right")) - 1
        if 0 <= index < len(sums):
            sums[index] += value
            counts[index] += 1
    return [float(total / count) if count else None for total, count in zip(sums, counts, strict=True)]
