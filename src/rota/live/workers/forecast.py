"""Forecast of a waiting job's start: a copy of the present state, run forward by the same engine.

Three runs, with every job as short, as usual and as long as is likely, give a range. The durations are those of
jobs of the same name that succeeded; otherwise the job's own estimate or time limit; otherwise a guess.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rota.core.engine.engine import Engine
from rota.core.messages.decisions import Decision, Move, Renew, Resize, Resume, Start, Stop, Suspend
from rota.core.messages.events import (
    End,
    Event,
    JobArrived,
    JobEnded,
    Lapsed,
    Moved,
    Resized,
    Resumed,
    SpeedChanged,
    Started,
    Stopped,
    Suspended,
    TimerFired,
)
from rota.core.model.job import Job, JobId, JobState
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import Phase
from rota.forecast.value import Basis, Forecast, NoForecast, TimeRange

GUESS_S = (600.0, 3600.0, 6 * 3600.0)
"""How long a job takes of which nothing is known: short, usual, long."""
MOST_STEPS = 20_000
HORIZON_S = 30 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """How long a job runs: at best, usually, at worst."""

    short_s: float
    usual_s: float
    long_s: float
    known: bool = True


Durations = Callable[[Job], Span]


def span_of(job: Job, past_s: list[float]) -> Span:
    """What is known of a job's run time."""
    if past_s:
        ordered = sorted(past_s)
        return Span(short_s=ordered[0], usual_s=ordered[len(ordered) // 2], long_s=ordered[-1])
    if job.estimate_s is not None:
        return Span(short_s=0.5 * job.estimate_s, usual_s=job.estimate_s, long_s=1.5 * job.estimate_s)
    if job.time_limit_s is not None:
        limit_s = job.time_limit_s
        return Span(short_s=0.1 * limit_s, usual_s=0.5 * limit_s, long_s=limit_s)
    return Span(short_s=GUESS_S[0], usual_s=GUESS_S[1], long_s=GUESS_S[2], known=False)


def forecast(
    engines: Callable[[], Engine], job_id: JobId, durations: Durations, *, arrives: JobArrived | None = None
) -> Forecast:
    """Run three copies of the present forward; `arrives` is a hypothetical job."""
    starts: list[float | None] = []
    position = 0
    known = True
    for pick in (_short, _usual, _long):
        run = _ForwardRun(engines(), durations, pick)
        starts.append(run.until_start(job_id, arrives))
        known = known and run.known
        if pick is _usual:
            position = run.started
    ordered = sorted(math.inf if start is None else start for start in starts)
    low_s, median_s, high_s = (at_s if at_s < math.inf else None for at_s in ordered)
    never = low_s is None
    return Forecast(
        made_s=engines().state.now_s,
        position=position,
        start=None if never else TimeRange(low_s=low_s, median_s=median_s, high_s=high_s),
        basis=Basis(runs=len(starts), guessed=0 if known else 1),
        reason=NoForecast.NEVER_STARTS if never else None,
    )


def _short(span: Span) -> float:
    return span.short_s


def _usual(span: Span) -> float:
    return span.usual_s


def _long(span: Span) -> float:
    return span.long_s


class _ForwardRun:
    """One way on from the present."""

    def __init__(self, engine: Engine, durations: Durations, pick: Callable[[Span], float]) -> None:
        self._engine = engine
        self._durations = durations
        self._pick = pick
        self._ends: list[tuple[float, int, JobId]] = []
        self._due: dict[JobId, float] = {}
        self.known = True
        self.started = 0
        self._waiting = {live.job.id for live in engine.state.jobs.values() if live.state is JobState.WAITING}

    def until_start(self, job_id: JobId, arrives: JobArrived | None) -> float | None:
        """When the job starts; None if not within the horizon."""
        engine, begun_s = self._engine, self._engine.state.now_s
        first: list[Event] = list(self._settle())
        if arrives is not None:
            first.append(arrives)
            self._waiting.add(arrives.job.id)
        decisions = engine.step(begun_s, first or [TimerFired()])
        for _ in range(MOST_STEPS):
            if self._count(decisions, job_id):
                return engine.state.now_s
            if decisions:
                decisions = engine.step(engine.state.now_s, [self._answer(each) for each in decisions])
                continue
            now_s, events = self._next()
            if now_s - begun_s > HORIZON_S:
                return None
            decisions = engine.step(now_s, events)
        return None

    def _settle(self) -> Iterator[Event]:
        """Complete what is under way: starting jobs run, stopping ones stop, running ones will end."""
        now_s = self._engine.state.now_s
        for live in self._engine.state.jobs.values():
            if live.stopping is not None:
                yield Stopped(live.job.id, live.work)
            elif live.state is JobState.STARTING:
                self._expect(live, now_s)
                yield Started(live.job.id, 1.0, now_s)
            elif live.suspended_on is not None:
                yield from self._settle_resting(live, now_s)
            elif live.state is JobState.RUNNING:
                self._expect(live, now_s)

    def _settle_resting(self, live: LiveJob, now_s: float) -> Iterator[Event]:
        """Complete the outstanding suspension, resume or move of a job."""
        if live.phase is Phase.SUSPENDING:
            yield Suspended(live.job.id, live.work_done(now_s))
        elif live.phase is Phase.RESUMING:
            self._expect(live, now_s)
            yield Resumed(live.job.id, 1.0, now_s)
        elif live.phase is Phase.MOVING:
            self._expect(live, now_s)
            yield Moved(live.job.id, live.work, 1.0, now_s)

    def _expect(self, live: LiveJob, now_s: float) -> None:
        """Schedule the end of a running job or its lease; one past its expected end takes as long again."""
        span = self._durations(live.job)
        self.known = self.known and span.known
        ran_s = live.run_s(now_s)
        left_s = self._pick(span) - (live.work_done(now_s) if live.job.checkpoint else ran_s)
        at_s = now_s + (left_s if left_s > 0 else max(ran_s, 1.0))
        if live.lease is not None:
            at_s = min(at_s, max(live.lease.until_s, now_s))
        self._due[live.job.id] = at_s
        heapq.heappush(self._ends, (at_s, live.seq, live.job.id))

    def _next(self) -> tuple[float, list[Event]]:
        while self._ends and self._due.get(self._ends[0][2]) != self._ends[0][0]:
            heapq.heappop(self._ends)
        end_s = self._ends[0][0] if self._ends else math.inf
        wake_s = max(self._engine.wakeup_s, self._engine.state.now_s)
        if wake_s < end_s:
            return wake_s, [TimerFired()]
        if end_s == math.inf:
            return math.inf, []
        _, _, job_id = heapq.heappop(self._ends)
        del self._due[job_id]
        live = self._engine.state.live(job_id)
        work = live.work_done(end_s)
        if live.lease is not None and live.lease.until_s <= end_s:
            return end_s, [Lapsed(job_id, work)]
        return end_s, [JobEnded(job_id, End.SUCCEEDED, work)]

    def _answer(self, decision: Decision) -> Event:
        now_s = self._engine.state.now_s
        live = self._engine.state.live(decision.job_id)
        match decision:
            case Start(job_id, _):
                self._expect(live, now_s)
                return Started(job_id, 1.0, now_s)
            case Stop(job_id, _):
                self._due.pop(job_id, None)
                return Stopped(job_id, live.work_done(now_s) if live.job.checkpoint else 0.0)
            case Resize(job_id, _):
                return Resized(job_id, live.work_done(now_s), 1.0, now_s)
            case Move(job_id, _):
                return Moved(job_id, live.work_done(now_s), 1.0, now_s)
            case Suspend(job_id):
                self._due.pop(job_id, None)
                return Suspended(job_id, live.work_done(now_s))
            case Resume(job_id, _):
                self._expect(live, now_s)
                return Resumed(job_id, 1.0, now_s)
            case Renew(job_id, _, _):
                self._expect(live, now_s)
                return SpeedChanged(job_id, live.work, 1.0)

    def _count(self, decisions: list[Decision], job_id: JobId) -> bool:
        """Count those that start, up to the job that is asked about; whether it is among them."""
        for each in decisions:
            if isinstance(each, Start) and each.job_id in self._waiting:
                self._waiting.discard(each.job_id)
                self.started += 1
                if each.job_id == job_id:
                    return True
        return False
