"""Which assumption explains the error of forecasts: each is replaced by what really happened, one at a time.

The journal is replayed up to the moment of a forecast, and the forecast is made again: as it was, with the true run
times, with the true arrivals, with the true times of starts and stops, with the true speeds, and with all of them. The
part of the error that goes away with an assumption is what it explains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from rota.core.engine.engine import Engine
from rota.core.model.job import DeviceType, Job, JobId
from rota.core.state.state import State
from rota.forecast.arrivals import Arrivals
from rota.forecast.costs import OrderTimes
from rota.forecast.durations import RunTimes
from rota.forecast.past import PastRun, RanOn
from rota.forecast.predict import Assumptions, Budget, Question, done_s, predict
from rota.forecast.speeds import at_reference, observed_speeds
from rota.live.truth.scores import percentile
from rota.perf.speed.model import Costs, SpeedModel
from rota.traces.workload import OrderDelays, Submission

RUNS = 16
INSTANT_S = 1e-9
"""What starts and stops take where nothing is known of them: where it is 0, a simulation asks for none of a job."""
MOST_ERROR = 3.0
"""Errors count up to this, so that one forecast does not decide alone."""


class Assumption(Enum):
    """What a forecast assumes."""

    NONE = "as forecast"
    DURATIONS = "durations"
    ARRIVALS = "arrivals"
    STARTUP = "start-up"
    SPEEDS = "speeds"
    ALL = "all of them"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueJob:
    """What is known of a job in hindsight."""

    job: Job
    submit_s: float
    start_s: float | None
    end_s: float | None
    work_s: float | None
    """Its run time without what was lost; None if it has not ended."""
    starts: tuple[tuple[float, float], ...] = ()
    stops: tuple[tuple[float, float], ...] = ()
    """When it was ordered to start and to stop, and when that was answered."""
    restarts: int = 0
    ran_on: RanOn | None = None
    """Where it ran from start to end; None if that is not known, or it was in several places."""

    def delays(self, now_s: float) -> OrderDelays:
        """Return how long its starts and stops took that were not answered by a moment."""
        return OrderDelays(
            starts_s=tuple(end_s - begun_s for begun_s, end_s in self.starts if end_s > now_s),
            stops_s=tuple(end_s - begun_s for begun_s, end_s in self.stops if end_s > now_s),
        )

    def by(self, now_s: float, state: State | None = None) -> PastRun:
        """Return what was known of it at a moment."""
        live = None if state is None else state.jobs.get(self.job.id)
        is_over = self.end_s is not None and self.end_s <= now_s
        return PastRun(
            job=self.job,
            submit_s=self.submit_s,
            work_s=self.work_s if is_over else None,
            restarts=self.restarts,
            ran_on=self.ran_on if is_over else None,
            done_s=0.0 if live is None or is_over else done_s(live, now_s),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CostsThen:
    """What starts and stops were known to take at a moment."""

    costs: Costs = field(default_factory=Costs)
    orders: OrderTimes | None = None
    stops_s: Mapping[JobId, float] = field(default_factory=dict)
    """When stops that were under way had been ordered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastQuestion:
    """A forecast that was made: of which job, when, and when it really started."""

    job_id: JobId
    made_s: float
    started_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseRow:
    """The error that is left with an assumption replaced, and what that explains of the error."""

    assumption: str
    forecasts: int
    median_error: float | None
    mean_error: float | None
    explains: float | None


class KnownArrivals(Arrivals):
    """The submissions that really came; how long they run is drawn, or known as well."""

    def __init__(self, later: Sequence[TrueJob], *, exact: bool) -> None:
        super().__init__()
        self._later = later
        self._exact = exact

    def draw(self, run: int, times: RunTimes, most: int) -> Sequence[Submission]:
        """Return the true later submissions."""
        return [
            Submission(
                job=replace(each.job, depends_on=(), deadline_s=None),
                submit_s=each.submit_s,
                hidden_work=each.work_s if self._exact and each.work_s is not None else times.draw(run, each.job, ""),
            )
            for each in self._later[:most]
        ]


class Hindsight:
    """All jobs of a period as they really went, in order of submission."""

    def __init__(
        self,
        jobs: Sequence[TrueJob],
        type_of: Mapping[str, DeviceType] | None = None,
        prices: Callable[[float], CostsThen] | None = None,
    ) -> None:
        """`prices` says what starts and stops were known to take at a moment; it is asked in order of time."""
        self._prices = prices or (lambda now_s: CostsThen())
        self._jobs = sorted(jobs, key=lambda each: each.submit_s)
        self._by_id: Mapping[JobId, TrueJob] = {each.job.id: each for each in jobs}
        self._type_of = type_of or {}
        self._true_speed = observed_speeds([each.by(math.inf) for each in jobs], self._type_of)
        """The speeds that the whole period shows."""

    def assumed_at(self, now_s: float, state: State) -> Assumptions:
        """Return what could be learned by a moment, given the state at it."""
        past = [each.by(now_s, state) for each in self._jobs if each.submit_s <= now_s]
        speed = observed_speeds(past, self._type_of)
        prices = self._prices(now_s)
        return Assumptions(
            times=self._times(past, speed),
            arrivals=Arrivals(past, now_s),
            speed=speed,
            rerate=True,
            costs=prices.costs,
            startup_s=prices.costs.load_s,
            orders=prices.orders,
            stops_s=prices.stops_s,
        )

    def _times(self, past: Sequence[PastRun], speed: SpeedModel) -> RunTimes:
        return RunTimes([at_reference(run, speed, self._type_of) for run in past])

    def with_truth(self, assumed: Assumptions, what: Assumption, asked: PastQuestion) -> Assumptions:
        """Replace an assumption by what really happened after a forecast."""
        later = [each for each in self._jobs if each.submit_s > asked.made_s]
        if what in (Assumption.ARRIVALS, Assumption.ALL):
            assumed = replace(assumed, arrivals=KnownArrivals(later, exact=what is Assumption.ALL))
        if what in (Assumption.SPEEDS, Assumption.ALL):
            past = [each.by(asked.made_s) for each in self._jobs if each.submit_s <= asked.made_s]
            assumed = replace(assumed, speed=self._true_speed, times=self._times(past, self._true_speed))
        if what in (Assumption.DURATIONS, Assumption.ALL):
            assumed = replace(assumed, true_work=self._work_of(assumed.speed))
        if what in (Assumption.STARTUP, Assumption.ALL):
            known = {each.job.id: each.delays(asked.made_s) for each in self._jobs}
            costs = assumed.costs
            taken = replace(costs, load_s=costs.load_s or INSTANT_S, checkpoint_s=costs.checkpoint_s or INSTANT_S)
            assumed = replace(assumed, costs=taken, orders=replace(assumed.orders or OrderTimes(), known=known))
        return assumed

    def _work_of(self, speed: SpeedModel) -> Callable[[Job], float | None]:
        """Return the true work of jobs, as it counts at these speeds."""

        def work(job: Job) -> float | None:
            found = self._by_id.get(job.id)
            if found is None or found.work_s is None:
                return None
            return at_reference(found.by(math.inf), speed, self._type_of).work_s or found.work_s

        return work


Moment = tuple[PastQuestion, Engine, Callable[[], Engine]]
"""A past forecast, the engine in the state of that moment, and how to copy it."""


def explain(
    moments: Iterator[Moment], hindsight: Hindsight, *, runs: int = RUNS, seconds: float = 5.0
) -> list[CauseRow]:
    """Make past forecasts again with one assumption at a time replaced, and return what each explains."""
    errors: dict[Assumption, list[float]] = {what: [] for what in Assumption}
    for asked, engine, copy in moments:
        assumed = hindsight.assumed_at(asked.made_s, engine.state)
        found: dict[Assumption, float] = {}
        for what in Assumption:
            again = predict(
                engine,
                copy,
                Question(job_id=asked.job_id),
                hindsight.with_truth(assumed, what, asked),
                budget=Budget(runs=1 if what is Assumption.ALL else runs, seconds=seconds),
            )
            if again.start is None or again.start.median_s is None:
                break
            wait_s = max(asked.started_s - asked.made_s, 1e-3)
            found[what] = min(abs(again.start.median_s - asked.started_s) / wait_s, MOST_ERROR)
        if len(found) == len(Assumption):
            for what, error in found.items():
                errors[what].append(error)
    return [_row(what, errors[what], errors[Assumption.NONE]) for what in Assumption]


def _row(what: Assumption, errors: Sequence[float], before: Sequence[float]) -> CauseRow:
    mean = math.fsum(errors) / len(errors) if errors else None
    base = math.fsum(before) / len(before) if before else None
    explains = None if mean is None or not base or what is Assumption.NONE else 1.0 - mean / base
    return CauseRow(
        assumption=what.value,
        forecasts=len(errors),
        median_error=percentile(errors, 0.5),
        mean_error=mean,
        explains=explains,
    )
