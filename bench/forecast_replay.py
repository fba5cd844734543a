"""Quality of forecasts: workloads replayed in the simulator as if live, with a forecast at each submission.

A job's run time is hidden from the engine and from the forecasts. When a job has to wait, its start and end are
forecast from the state of that moment and from what has ended by then; when it has ended, the forecast is scored.

    python bench/forecast_replay.py generated --policy las --jobs 120
    python bench/forecast_replay.py trace TRACE --policy fifo:backfill=true --jobs 3000 --nodes 16 --every 10

Printed per row: forecasts, the share of starts within the 90% range, and the median and 90th percentile of the error of
the median start, relative to the wait.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rota.core.engine.engine import Engine
from rota.core.messages.decisions import Decision, Start
from rota.core.model.cluster import Cluster
from rota.core.model.job import Checkpoint, Elastic, Job, JobId, JobState, Role
from rota.core.state.state import State
from rota.drivers.simulator.run import MomentClock
from rota.drivers.simulator.study import Setting, oversized, scheduler
from rota.drivers.simulator.world import World
from rota.forecast.arrivals import Arrivals
from rota.forecast.durations import RunTimes
from rota.forecast.past import PastRun
from rota.forecast.predict import Assumptions, Budget, Question, done_s, predict
from rota.forecast.value import Forecast, NoForecast
from rota.perf.speed.model import Costs
from rota.traces.formats import read_trace
from rota.traces.workload import Outcome, Submission

PAST = 40
"""How many jobs have ended before a generated workload begins."""
RECENT = 2000
"""How many of the latest submissions forecasts learn from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A forecast at submission, and what happened."""

    job_id: str
    forecast: Forecast
    submit_s: float
    start_s: float
    end_s: float

    @property
    def wait_s(self) -> float:
        return self.start_s - self.submit_s

    @property
    def error(self) -> float:
        """The error of the median start, relative to the wait."""
        assert self.forecast.start is not None
        middle_s = self.forecast.start.median_s
        return math.inf if middle_s is None else abs(middle_s - self.start_s) / max(self.wait_s, 1e-9)


@dataclass(slots=True)
class Replay:
    """A workload that is replayed under a policy, with forecasts of every n-th job that has to wait."""

    submissions: Sequence[Submission]
    policy: str
    cluster: Cluster
    costs: Costs = field(default_factory=Costs)
    runs: int = 40
    every: int = 1
    warm_up: int = 0
    """Submissions at the beginning without forecasts."""
    before: Sequence[Submission] = ()
    """What was submitted before the workload begins, as if it had started at once; times are relative to the begin."""
    of_all: bool = False
    """Whether jobs that start at once are forecast as well: their ends."""
    knows_durations: bool = False
    knows_arrivals: bool = False
    knows_process: bool = False
    knows_end: bool = True
    """Whether it is part of the known process how many jobs are to come."""
    forecast_s: list[float] = field(default_factory=list)
    """How long each forecast took."""

    def scores(self) -> Iterator[Scored]:
        """Replay, and yield the scored forecasts in order of start."""
        setting = Setting(cluster=self.cluster, costs=self.costs)
        policy, alloc, _ = scheduler(self.policy, setting)
        engine = Engine(State(self.cluster), policy, alloc)
        world = World(self.cluster, setting.speed, setting.costs, overlaps=engine.overlaps)
        clock = MomentClock(engine, world, self.submissions, iter(()))
        by_id = {each.job.id: each for each in self.submissions}
        open_forecasts: dict[JobId, Forecast] = {}
        started: dict[JobId, float] = {}
        arrived = 0
        while (moment := clock.next_moment()) is not None:
            now_s = moment[0]
            decisions: list[Decision] = engine.step(now_s, moment[1])
            while decisions:
                for each in decisions:
                    if isinstance(each, Start):
                        started.setdefault(each.job_id, now_s)
                decisions = engine.step(now_s, world.carry_out(decisions, now_s))
            for job_id in [name for name in open_forecasts if engine.state.jobs[name].state.is_final]:
                ended_s = engine.state.jobs[job_id].ended_s
                if job_id in started and ended_s is not None:
                    yield Scored(
                        job_id=job_id,
                        forecast=open_forecasts[job_id],
                        submit_s=by_id[job_id].submit_s,
                        start_s=started[job_id],
                        end_s=ended_s,
                    )
                del open_forecasts[job_id]
            for submission in self.submissions[arrived : clock.arrived]:
                number, arrived = arrived, arrived + 1
                live = engine.state.jobs[submission.job.id]
                is_asked = live.state is JobState.WAITING or (self.of_all and not live.state.is_final)
                if number >= self.warm_up and number % self.every == 0 and is_asked:
                    open_forecasts[live.job.id] = self._forecast(engine, setting, live.job.id, arrived)

    def _forecast(self, engine: Engine, setting: Setting, job_id: JobId, arrived: int) -> Forecast:
        begun = time.perf_counter()
        assumed = self.assumed(engine, setting, arrived)

        def copy() -> Engine:
            policy, alloc, _ = scheduler(self.policy, setting)
            return engine.fork(policy, allocator=alloc)

        found = predict(engine, copy, Question(job_id=job_id), assumed, budget=Budget(runs=self.runs))
        self.forecast_s.append(time.perf_counter() - begun)
        return found

    def assumed(self, engine: Engine, setting: Setting, arrived: int) -> Assumptions:
        """Return what could be learned by now."""
        past = [*self._earlier(engine.state.now_s), *self._past(engine.state, arrived)]
        return Assumptions(times=RunTimes(past), arrivals=Arrivals(past, engine.state.now_s), costs=setting.costs)

    def _earlier(self, now_s: float) -> Iterator[PastRun]:
        """What was there before: what each ran for, or has run for by now."""
        for each in self.before:
            done_s = min(now_s - each.submit_s, each.target)
            has_ended = done_s >= each.target
            work_s = each.target if has_ended else None
            yield PastRun(job=each.job, submit_s=each.submit_s, work_s=work_s, done_s=done_s)

    def _past(self, state: State, arrived: int) -> Iterator[PastRun]:
        """What the manager would know: submissions, and the true work of those that have ended."""
        for submission in self.submissions[max(arrived - RECENT, 0) : arrived]:
            live = state.jobs[submission.job.id]
            yield PastRun(
                job=submission.job,
                submit_s=submission.submit_s,
                work_s=submission.target if live.state.is_final else None,
                done_s=done_s(live, state.now_s),
            )


def table_row(label: str, scored: Sequence[Scored], *, of_end: bool = False) -> str:
    """Return coverage and errors as one line."""
    told = [each for each in scored if each.forecast.start is not None and each.wait_s > 0]
    sure = [each for each in told if each.forecast.reason is not NoForecast.UNKNOWN]
    held = sum(_holds(each, of_end) for each in sure)
    errors = sorted(each.error for each in sure)
    if not sure:
        return f"{label:<44} no forecasts ({len(scored) - len(told)} without a range)"
    return (
        f"{label:<44} {len(sure):>5} of {len(scored):<5} held {held / len(sure):6.1%}  "
        f"error median {errors[len(errors) // 2]:6.1%}  p90 {errors[int(0.9 * len(errors))]:7.1%}  "
        f"late {sum(_late(each) for each in sure) / len(sure):5.1%}"
    )


def _late(scored: Scored) -> bool:
    start = scored.forecast.start
    return start is not None and start.high_s is not None and scored.start_s > start.high_s


def _holds(scored: Scored, of_end: bool) -> bool:
    span = scored.forecast.end if of_end else scored.forecast.start
    return span is not None and span.holds(scored.end_s if of_end else scored.start_s)


# -- workloads ---------------------------------------------------------------------------------------


def generated(
    jobs: int, seed: int, *, declared: bool, elastic: bool = False, load: float = 1.3, gpus: int = 8
) -> tuple[list[Submission], list[Submission]]:
    """Random lengths, sizes and priorities of four users; the past holds runs of the same names before."""
    chance = random.Random(seed)
    kinds = [
        (f"user{number % 4}", f"kind{number}", math.exp(chance.gauss(math.log(60.0), 0.8)), chance.choice((0.1, 0.3)))
        for number in range(10)
    ]
    bias = {f"user{number}": math.exp(chance.gauss(0.3, 0.3)) for number in range(4)}

    def one(number: int, at_s: float) -> Submission:
        user, name, usual_s, spread = chance.choice(kinds)
        work_s = usual_s * math.exp(chance.gauss(0.0, spread))
        tasks = chance.choice((1, 1, 1, 2, 2, 4))
        job = Job(
            id=JobId(f"j{number}"),
            name=name,
            user=user,
            roles=(Role(count=tasks),),
            priority=chance.choice((0, 0, 0, 1, 2)),
            estimate_s=work_s * bias[user] * math.exp(chance.gauss(0.0, 0.25)) if declared else None,
            elastic=Elastic(min_tasks=1, max_tasks=4) if elastic and chance.random() < 0.5 else None,
            checkpoint=Checkpoint() if chance.random() < 0.5 else Checkpoint(interval_s=math.inf),
        )
        return Submission(job=job, submit_s=at_s, hidden_work=work_s)

    drawn: list[Submission] = []
    at_s = 0.0
    for number in range(jobs + PAST):
        drawn.append(one(number, at_s))
        at_s += chance.expovariate(1.0) * drawn[-1].target * drawn[-1].job.gpus / gpus / load
    begun_s = drawn[PAST].submit_s
    found = [replace(each, submit_s=each.submit_s - begun_s) for each in drawn]
    return found[PAST:], found[:PAST]


def of_trace(path: Path, jobs: int, skip: int) -> list[Submission]:
    """A window of a trace, with the work hidden."""
    window = read_trace(path).submissions[skip : skip + jobs]
    return [
        Submission(
            job=replace(each.job, work=None, depends_on=()),
            submit_s=each.submit_s - window[0].submit_s,
            outcome=Outcome.SUCCEEDED,
            hidden_work=each.target,
        )
        for each in window
    ]


def main() -> None:
    """Replay and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=("generated", "trace"))
    parser.add_argument("path", nargs="?", type=Path)
    parser.add_argument("--policy", action="append")
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--skip", type=int, default=0, help="leave out the first jobs of the trace")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--warm-up", type=int, default=0)
    options = parser.parse_args()
    cluster = Cluster.uniform(("gpu", options.nodes * options.gpus, options.gpus))
    for policy in options.policy or ("fifo:backfill=true", "priority", "las"):
        if options.workload == "trace":
            if options.path is None:
                sys.exit("name the trace")
            submissions = of_trace(options.path, options.jobs, options.skip)
            misfits = {job.id for job, _ in oversized(submissions, Setting(cluster=cluster))}
            kept = [each for each in submissions if each.job.id not in misfits]
            replay = _replay(kept, (), policy, cluster, options)
            print(table_row(f"{options.path.name} {policy}", list(replay.scores())), flush=True)
            continue
        for declared in (True, False):
            scored: list[Scored] = []
            for seed in range(options.seeds):
                jobs, before = generated(options.jobs, seed, declared=declared)
                replay = _replay(jobs, before, policy, cluster, options)
                scored += replay.scores()
            kind = "declared" if declared else "history"
            print(table_row(f"{policy} {kind}", scored), flush=True)
            print(table_row("  of the end", scored, of_end=True), flush=True)


def _replay(
    submissions: Sequence[Submission],
    before: Sequence[Submission],
    policy: str,
    cluster: Cluster,
    options: argparse.Namespace,
) -> Replay:
    return Replay(
        submissions=submissions,
        policy=policy,
        cluster=cluster,
        runs=options.runs,
        every=options.every,
        warm_up=options.warm_up,
        before=before,
    )


if __name__ == "__main__":
    main()
