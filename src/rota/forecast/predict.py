"""A forecast: many forward runs from the present, each with other run times and arrivals, and the ranges over them.

Run number k draws the same numbers for the same job in every forecast. The number of runs is bounded by a budget of
time; with several processes each is a fork that has the state already.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low
from typing import overload

from rota.core.engine.engine import Engine
from rota.core.messages.decisions import Cause
from rota.core.model.job import Job, JobId, JobState
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.drivers.simulator.adopt import Delays
from rota.drivers.simulator.run import OutsideChanges
from rota.forecast.arrivals import Arrivals
from rota.forecast.costs import OrderTimes
from rota.forecast.durations import KnownFrom, RunTimes
from rota.forecast.forward import HORIZON_S, AssumedFuture, OutOfTime, RunResult, run_forward
from rota.forecast.queue_sample import QueueSample
from rota.forecast.value import Basis, Forecast, NoForecast, time_range
from rota.network.model import NetworkModel
from rota.perf.speed.model import Costs, SpeedModel
from rota.traces.workload import OrderDelays, Outcome, Submission

MOST_LATER = 200
"""How many later arrivals a run has at least room for; more where more jobs wait."""


def no_command(job: Job) -> str:
    """Return an empty command: nothing is known of commands."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What forecasts assume. Each part can be replaced by what really happened, to see which of them was wrong."""

    times: RunTimes = field(default_factory=RunTimes)
    arrivals: Arrivals = field(default_factory=Arrivals)
    costs: Costs = field(default_factory=Costs)
    speed: SpeedModel = field(default_factory=SpeedModel)
    rerate: bool = False
    """Whether running jobs go on at these speeds: the drivers of real machines record none."""
    startup_s: float = 0.0
    """Time from the order to start a job until it is reported as started."""
    orders: OrderTimes | None = None
    """How long starts and stops took, to draw from; None: each takes as long as the costs say."""
    stops_s: Mapping[JobId, float] = field(default_factory=dict)
    """When stops that are under way were ordered."""
    network: NetworkModel | None = None
    """The links that jobs wait for; None: none."""
    command_of: Callable[[Job], str] = no_command
    sample: QueueSample = field(default_factory=QueueSample)
    """Which of many waiting jobs stand for all."""
    changes: Callable[[Engine], OutsideChanges] | None = None
    """Makes what changes nodes and jobs at set times in a run; None: nothing does."""
    true_work: Callable[[Job], float | None] | None = None
    """The true work of jobs, where known; None where not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many forward runs, in how much time; runs that are not complete by then do not count.

    The first few have more time, so that a busy machine answers late rather than not at all.
    """

    runs: int = 64
    seconds: float = math.inf
    fewest: int = 4
    patience: float = 10.0
    """How many times as long the first few may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which job is asked about; `arrives` is a hypothetical one that would be submitted now."""

    job_id: JobId
    arrives: Job | None = None


Sampler = Callable[[Callable[[int], RunResult | None], Iterable[int]], list[RunResult]]
"""Carries out runs by number, in this process or in others, and returns those that came to an end."""


def in_this_process(one: Callable[[int], RunResult | None], numbers: Iterable[int]) -> list[RunResult]:
    """Carry out runs one after the other."""
    found: list[RunResult] = []
    for number in numbers:
        result = one(number)
        if result is None:
            break
        found.append(result)
    return found


def predict(
    present: Engine,
    copy: Callable[[], Engine],
    question: Question,
    assumed: Assumptions,
    *,
    budget: Budget | None = None,
    sampler: Sampler = in_this_process,
) -> Forecast:
    """Return when a job starts and ends; `copy` returns a copy of the present for one run."""
    budget = budget or Budget()
    state = present.state
    reason = _obstacle(state, question)
    if reason is not None and reason is not NoForecast.NOT_WAITING:
        return Forecast(made_s=state.now_s, reason=reason)
    begun_s = time.monotonic()
    most = MOST_LATER + len(state.jobs)

    def one(number: int) -> RunResult | None:
        limit_s = budget.seconds * (budget.patience if number < budget.fewest else 1.0)
        if time.monotonic() > begun_s + limit_s:
            return None
        future = _future(number, state, assumed, most)
        asked = _asked(number, question, assumed)
        try:
            found = run_forward(copy(), future, question.job_id, asked=asked, give_up_at_s=begun_s + limit_s)
        except OutOfTime:
            return None
        return assumed.sample.whole(found, state.now_s)

    results = sampler(one, range(budget.runs))
    return _summary(state, question, assumed, results, reason)


def _obstacle(state: State, question: Question) -> NoForecast | None:
    """Return why the start of a job can't be forecast."""
    if question.arrives is not None:
        return None
    live = state.jobs.get(question.job_id)
    if live is None or live.state.is_final:
        return NoForecast.ENDED
    if live.stopping in (Cause.CANCELLED, Cause.TIME_LIMIT):
        return NoForecast.CANCELLED
    if live.state is JobState.HELD:
        return NoForecast.HELD
    return None if _waits(live) else NoForecast.NOT_WAITING


def _waits(live: LiveJob) -> bool:
    return live.state in (JobState.WAITING, JobState.SUSPENDED) or live.stopping is not None


def _future(number: int, state: State, assumed: Assumptions, most: int) -> AssumedFuture:
    def targets(live: LiveJob) -> tuple[float, Outcome]:
        return _work(number, live.job, assumed, done_s(live, state.now_s)), Outcome.SUCCEEDED

    def delays(job_id: JobId, over_s: float = 0.0) -> OrderDelays | None:
        return None if assumed.orders is None else assumed.orders.draw(number, job_id, over_s)

    arrivals = assumed.arrivals.draw(number, assumed.times, most)
    return AssumedFuture(
        targets=targets,
        arrivals=arrivals if assumed.orders is None else _Delayed(arrivals, delays),
        costs=assumed.costs,
        speed=assumed.speed,
        horizon_s=HORIZON_S,
        rerate=assumed.rerate,
        network=assumed.network,
        changes=assumed.changes,
        stops_s=assumed.stops_s,
        delays=delays,
    )


class _Delayed(Sequence[Submission]):
    """Later submissions whose starts and stops take as long as others did."""

    def __init__(self, arrivals: Sequence[Submission], delays: Delays) -> None:
        self._arrivals = arrivals
        self._delays = delays

    def __len__(self) -> int:
        return len(self._arrivals)

    @overload
    def __getitem__(self, at: int) -> Submission: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Submission]: ...

    def __getitem__(self, at: int | slice) -> Submission | Sequence[Submission]:
        if isinstance(at, slice):
            return _Delayed(self._arrivals[at], self._delays)
        found = self._arrivals[at]
        return replace(found, delays=self._delays(found.job.id, 0.0))


def done_s(live: LiveJob, now_s: float) -> float:
    """Return the work that a job is known to exceed: what it has done, or did in an earlier run that was lost."""
    done = live.work_done(now_s)
    if live.lost_work and live.preemptions + live.restarts:
        return max(done, live.lost_work / (live.preemptions + live.restarts))
    return done


def _work(number: int, job: Job, assumed: Assumptions, done: float = 0.0) -> float:
    if assumed.true_work is not None:
        known = assumed.true_work(job)
        if known is not None:
            return known
    return assumed.times.draw(number, job, assumed.command_of(job), done_s=done)


def _asked(number: int, question: Question, assumed: Assumptions) -> Submission | None:
    job = question.arrives
    if job is None:
        return None
    delays = None if assumed.orders is None else assumed.orders.draw(number, job.id)
    return Submission(job=job, submit_s=0.0, hidden_work=_work(number, job, assumed), delays=delays)


def _summary(
    state: State, question: Question, assumed: Assumptions, results: Sequence[RunResult], reason: NoForecast | None
) -> Forecast:
    if not results:
        return Forecast(made_s=state.now_s, reason=NoForecast.NO_TIME)
    startup_s = assumed.startup_s if assumed.orders is None else 0.0  # which the runs have drawn
    starts = tuple(each.start_s + startup_s for each in results)
    ends = tuple(each.end_s for each in results)
    waits = reason is None
    basis = _basis(state, question, assumed, results)
    if waits and all(math.isinf(start) for start in starts):
        return Forecast(made_s=state.now_s, basis=basis, reason=_never(state, question))
    start = time_range(starts, state.now_s) if waits else None
    end = None if all(math.isinf(end) for end in ends) else time_range(ends, state.now_s)
    if start is not None and start.median_s is None:
        reason = NoForecast.NEVER_STARTS
    elif end is None or end.median_s is None:
        reason = NoForecast.NEVER_ENDS
    elif reason is None and not basis.known:
        reason = NoForecast.UNKNOWN
    return Forecast(
        made_s=state.now_s,
        position=_position(assumed.sample, results) if waits else 0,
        start=start,
        end=end,
        basis=basis,
        reason=reason,
        starts_s=starts if waits else (),
        ends_s=ends,
    )


def _position(sample: QueueSample, results: Sequence[RunResult]) -> int:
    """Return the place in the queue: jobs that start before it in the median run, and one."""
    return round(median_low(map(sample.ahead, results))) + 1


def _never(state: State, question: Question) -> NoForecast:
    live = state.jobs.get(question.job_id)
    return NoForecast.BLOCKED if live is not None and live.unmet else NoForecast.NEVER_STARTS


def _basis(state: State, question: Question, assumed: Assumptions, results: Sequence[RunResult]) -> Basis:
    """Count the jobs that the start depends on: those that hold devices, and those that start before it."""
    ahead = {name for each in results[:1] for name in each.ahead}
    jobs = [
        live.job
        for live in state.jobs.values()
        if live.job.id != question.job_id and (live.holds or live.job.id in ahead)
    ]
    known = [assumed.times.known(job, assumed.command_of(job)) for job in jobs]
    return Basis(
        runs=len(results),
        declared=known.count(KnownFrom.DECLARED),
        history=known.count(KnownFrom.HISTORY),
        guessed=known.count(KnownFrom.GUESS),
        past_runs=assumed.times.past_runs,
        arrivals_per_hour=assumed.arrivals.jobs_per_hour,
        sampled=len(assumed.sample.jobs),
        waiting=assumed.sample.waiting,
    )
