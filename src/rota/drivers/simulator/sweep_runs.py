"""Sweeps in the simulator: trials with known learning curves, judged by their rule while a policy schedules them.

A policy is judged on how soon a sweep finds a good trial. The search is the one of a live manager: what trials have
reported and which ended goes in, and pauses, ends, promotions and new trials come out as events of the engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rota.core.engine.engine import Engine
from rota.core.errors import RotaError
from rota.core.messages.events import (
    Event,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobReleased,
    JobRequeued,
    Stopped,
    TimerFired,
)
from rota.core.model.job import WHOLE, Checkpoint, Job, JobId, JobState, Role
from rota.core.state.state import State
from rota.drivers.simulator.study import Setting, scheduler
from rota.drivers.simulator.world import World
from rota.sweeps.file import SweepFile
from rota.sweeps.rules import rule_of
from rota.sweeps.samplers import sample
from rota.sweeps.search import Search
from rota.sweeps.trial import Params, Point, SweepTrial, TrialState
from rota.traces.workload import Submission

ROUNDING = 1e-6
"""Part of a step by which a trial may seem to be before its end."""
MOST_MOMENTS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSweep:
    """A sweep with what a scheduler does not know: how fast its trials are, and the loss after each step."""

    name: str
    file: SweepFile
    curve: Callable[[int, Params], Sequence[float]]
    """The losses of a trial, by its number and parameters: one for each step of a whole trial."""
    step_s: float
    submit_s: float = 0.0
    gpus: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOutcome:
    """What a simulated sweep came to."""

    name: str
    best: float
    best_trial: int
    found: tuple[tuple[float, float], ...]
    """Each improvement: seconds since the submission of the sweep, and the loss."""
    took_s: float
    """From its submission to the end of its last trial."""
    device_s: float
    steps: int
    states: dict[TrialState, int]

    def time_to(self, loss: float) -> float | None:
        """Return when a loss was reached, in seconds since the submission; None if it never was."""
        return next((at_s for at_s, value in self.found if value <= loss), None)


@dataclass(slots=True)
class _SweepRun:
    """A sweep while it runs."""

    sweep: SimulatedSweep
    search: Search
    curves: dict[int, Sequence[float]] = field(default_factory=dict)
    points: dict[int, list[Point]] = field(default_factory=dict)
    found: list[tuple[float, float]] = field(default_factory=list)
    is_over: bool = False
    has_begun: bool = False
    end_s: float = 0.0

    def job_id(self, number: int) -> JobId:
        """The job of a trial."""
        return JobId(f"{self.sweep.name}-{number}")


class SweepWorld:
    """Runs sweeps, and other jobs beside them, through an engine on a virtual clock."""

    def __init__(self, engine: Engine, world: World, sweeps: Sequence[SimulatedSweep], others: Sequence[Submission]):
        self._engine = engine
        self._world = world
        self._sweeps = [_SweepRun(each, Search(each.file, rule_of(each.file))) for each in sweeps]
        self._others = sorted(others, key=lambda each: each.submit_s)
        self._next = 0
        self._holds: set[JobId] = set()
        """Jobs that are held as soon as they have stopped."""

    def run(self) -> list[SweepOutcome]:
        """Run until everything has ended."""
        now_s = 0.0
        for _ in range(MOST_MOMENTS):
            moment_s = self._next_moment_s(now_s)
            if moment_s == math.inf:
                break
            now_s = moment_s
            self._happen(now_s)
        left = [each.sweep.name for each in self._sweeps if not each.is_over]
        if left:
            raise RotaError(f"sweep {left[0]} never ends under this policy")
        return [self._outcome(each) for each in self._sweeps]

    def _next_moment_s(self, now_s: float) -> float:
        moments = [self._world.due_s, self._engine.wakeup_s]
        if self._next < len(self._others):
            moments.append(self._others[self._next].submit_s)
        for running in self._sweeps:
            if not running.has_begun:
                moments.append(running.sweep.submit_s)
            elif not running.is_over:
                moments += [self._mark_s(running, trial, now_s) for trial in running.search.trials]
        return max(now_s, min(moments))

    def _mark_s(self, running: _SweepRun, trial: SweepTrial, now_s: float) -> float:
        """When a trial reaches its next mark as it goes now."""
        mark = running.search.rule.next_mark(trial) if trial.state is TrialState.ACTIVE else None
        live = self._engine.state.jobs.get(running.job_id(trial.number))
        if mark is None or live is None or not live.progress_rate or mark > len(running.curves[trial.number]):
            return math.inf
        left = mark * running.sweep.step_s - live.work_done(now_s)
        return max(now_s, live.work_from_s) + max(left, 0.0) / live.progress_rate

    def _happen(self, now_s: float) -> None:
        """Let what is due happen, the searches decide, and the policy plan."""
        events: list[Event] = self._world.pop_due(now_s) if self._world.due_s <= now_s else []
        while self._next < len(self._others) and self._others[self._next].submit_s <= now_s:
            self._world.expect(self._others[self._next])
            events.append(self._world.arrival(self._others[self._next].job))
            self._next += 1
        ended = {event.job_id for event in events if isinstance(event, JobEnded)}
        self._hold_stopped(events)
        for running in self._sweeps:
            if not running.is_over and running.sweep.submit_s <= now_s:
                events += self._advance(running, ended, now_s)
        decisions = self._engine.step(now_s, events or [TimerFired()])
        while decisions:
            answers = self._world.carry_out(decisions, now_s)
            self._hold_stopped(answers)
            decisions = self._engine.step(now_s, answers)

    def _hold_stopped(self, events: list[Event]) -> None:
        """Hold paused trials as soon as they have stopped, before the policy could start them again."""
        for event in list(events):
            if isinstance(event, Stopped) and event.job_id in self._holds:
                self._holds.discard(event.job_id)
                events.append(JobHeld(event.job_id))

    def _advance(self, running: _SweepRun, ended: set[JobId], now_s: float) -> list[Event]:
        """Take in what the trials of a sweep have done, and return what follows."""
        running.has_begun = True
        reports: dict[int, Sequence[Point]] = {}
        ends: dict[int, TrialState] = {}
        for trial in running.search.trials:
            if trial.state.is_over:
                continue
            if self._report(running, trial, now_s) or trial.state is TrialState.ACTIVE:
                reports[trial.number] = running.points[trial.number]
            if running.job_id(trial.number) in ended:
                ends[trial.number] = TrialState.COMPLETED
        steps = running.search.decide(reports, ends)
        events: list[Event] = []
        for trial in steps.changed.values():
            before = running.search.trials[trial.number].state
            running.search.put(trial)
            if trial.state is not before:
                events += self._orders(running.job_id(trial.number), trial.state)
        for _ in range(steps.new):
            events.append(self._begin(running, now_s))
        if steps.is_over:
            running.is_over, running.end_s = True, now_s
        return events

    def _report(self, running: _SweepRun, trial: SweepTrial, now_s: float) -> bool:
        """Write down the steps that a trial has done since it was last looked at; whether there were any."""
        live = self._engine.state.jobs[running.job_id(trial.number)]
        step_s, points, curve = running.sweep.step_s, running.points[trial.number], running.curves[trial.number]
        done = live.work_done(now_s)
        steps = min(int(done / step_s + ROUNDING), len(curve))
        before = len(points)
        for step in range(before + 1, steps + 1):
            since_s = (done - step * step_s) / live.progress_rate if live.progress_rate else 0.0
            points.append((step, curve[step - 1]))
            at_s = now_s - max(since_s, 0.0) - running.sweep.submit_s
            if curve[step - 1] < min(curve[: step - 1], default=math.inf):
                running.found.append((at_s, curve[step - 1]))
        return len(points) > before

    def _begin(self, running: _SweepRun, now_s: float) -> Event:
        """Submit the next trial."""
        sweep, trials = running.sweep, running.search.trials
        number = len(trials)
        params = sample(sweep.file, number, trials)
        curve = sweep.curve(number, params)
        job = Job(
            id=running.job_id(number),
            name=f"{sweep.name}-{number}",
            roles=(Role(device_milli=sweep.gpus * WHOLE),),
            work=len(curve) * sweep.step_s,
            checkpoint=Checkpoint() if sweep.file.pauses else None,
        )
        running.curves[number], running.points[number] = curve, []
        running.search.put(SweepTrial(number=number, params=params, job_id=str(job.id)))
        self._world.expect(Submission(job=job, submit_s=now_s))
        return self._world.arrival(job)

    def _orders(self, job_id: JobId, state: TrialState) -> list[Event]:
        """Return what brings the job of a trial to where the trial is."""
        live = self._engine.state.jobs[job_id]
        if live.state.is_final or state is TrialState.COMPLETED:
            return []
        if state is TrialState.ACTIVE:
            self._holds.discard(job_id)
            return [JobReleased(job_id)] if live.state is JobState.HELD else []
        if state is not TrialState.PAUSED:
            return [JobCancelled(job_id)]
        if live.state is JobState.WAITING and not live.is_leaving:
            return [JobHeld(job_id)]
        self._holds.add(job_id)
        return [] if live.is_leaving else [JobRequeued(job_id)]

    def _outcome(self, running: _SweepRun) -> SweepOutcome:
        trials, best = running.search.trials, running.search.best
        jobs = self._engine.state.jobs
        states = [trial.state for trial in trials]
        return SweepOutcome(
            name=running.sweep.name,
            best=math.inf if best is None else best.loss,
            best_trial=-1 if best is None else best.number,
            found=_improvements(running.found),
            took_s=running.end_s - running.sweep.submit_s,
            device_s=sum(jobs[running.job_id(trial.number)].attained_gpu_s(running.end_s) for trial in trials),
            steps=sum(len(points) for points in running.points.values()),
            states={state: states.count(state) for state in TrialState if state in states},
        )


def _improvements(found: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """What was found in order of time, the improvements only: trials are looked at together, not in that order."""
    kept: list[tuple[float, float]] = []
    for at_s, loss in sorted(found):
        if not kept or loss < kept[-1][1]:
            kept.append((at_s, loss))
    return tuple(kept)


def simulate_sweeps(
    sweeps: Sequence[SimulatedSweep], policy: str, setting: Setting, *, others: Sequence[Submission] = ()
) -> list[SweepOutcome]:
    """Run sweeps, and other jobs beside them, to their end under a policy; return an outcome for each sweep."""
    built, alloc, _ = scheduler(policy, setting)
    engine = Engine(State(setting.cluster), built, alloc)
    world = World(setting.cluster, setting.speed, setting.costs, setting.speed, overlaps=engine.overlaps)
    return SweepWorld(engine, world, sweeps, others).run()
