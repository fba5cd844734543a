"""Run a workload through the engine on a virtual clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rota.core.engine.engine import Engine
from rota.core.errors import BuiltInFault, RotaError
from rota.core.garbage import collection_paused
from rota.core.messages.decisions import Decision
from rota.core.messages.events import Event, Moved, NodeAdded, NodeLost, Resized, Stopped, TimerFired
from rota.core.model.job import JobState
from rota.drivers.simulator.failing_world import FailingWorld
from rota.drivers.simulator.world import World
from rota.health.failure_process import Breakdown
from rota.health.lost_time import FailureReport
from rota.traces.workload import Submission

Faults = Iterator[tuple[float, Event | Breakdown]]
"""What happens to nodes, with its time; a breakdown is not yet noticed, and no event of the engine."""
REPORT_EVERY = 2048
"""Events between two reports of progress."""
ENDLESS = 1000
"""Wake-ups or replans in a row, without any time passing, that mean that the policy is stuck."""
CREEPING = 10_000
"""Wake-ups in a row, without any event, within `CREEP_S` that mean the same; a large cluster has more of its own."""
CREEP_S = 1e-3
MOST_UNDONE = 500
"""How often the work of one job may be undone by preemptions before it is expected never to end."""
LOOKED_AT = 8
"""Replans in a row from which an error takes the jobs that it names."""
JOBS_NAMED = 5
"""Jobs that an error names."""
HOPELESS = 20_000
"""Faults, repairs and wake-ups in a row that let no waiting job start, after which none is expected to."""


class OutsideChanges(Protocol):
    """What changes nodes and jobs at set times, beside the cluster itself: reservations."""

    @property
    def due_s(self) -> float:
        """The next moment at which something changes by itself; infinite after the last."""

    def gated(self, now_s: float, events: Sequence[Event]) -> Sequence[Event]:
        """Return events of a moment, with what follows from them."""

    def look(self, now_s: float) -> Sequence[Event]:
        """Return what changes at a moment."""


class PolicyStuck(RotaError):
    """A policy that never lets time pass, made from what it keeps doing; a caller that knows its name adds it."""

    def __str__(self) -> str:
        return f"the policy {self.args[0]}; time can't pass"

    def named(self, policy: str, *, is_built_in: bool) -> Exception:
        """The same error with the policy's name; of a built-in policy it is a fault of Rota, not of its user."""
        what = f"policy {policy} {self.args[0]}; time can't pass"
        if is_built_in:
            return BuiltInFault(f"{what}. This is a fault of Rota: please report it with the trace and the options")
        return RotaError(what)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """The cost of a run; its results are in the engine's state."""

    events: int
    wall_s: float
    cpu_s: float
    failures: FailureReport | None = None
    """What failures cost, where machines fail."""


def run(
    engine: Engine,
    world: World,
    submissions: Sequence[Submission],
    *,
    faults: Faults | None = None,
    progress: Callable[[int], None] | None = None,
    changes: OutsideChanges | None = None,
) -> RunOutcome:
    """Run until every job has ended. At one moment, ends come first, then faults, arrivals, and one plan."""
    with collection_paused():
        return _run(engine, world, submissions, iter(()) if faults is None else faults, progress, changes)


def _run(
    engine: Engine,
    world: World,
    submissions: Sequence[Submission],
    faults: Faults,
    progress: Callable[[int], None] | None,
    changes: OutsideChanges | None,
) -> RunOutcome:
    wall, cpu = time.perf_counter(), time.process_time()
    clock = MomentClock(engine, world, submissions, faults, changes)
    events = 0
    report_at = REPORT_EVERY
    while (moment := clock.next_moment()) is not None:
        now_s, happened = moment
        events += len(happened)
        decisions = engine.step(now_s, clock.gated(now_s, happened))
        rounds = 0
        swapped: list[Decision] = []
        while decisions:
            answers = world.carry_out(decisions, now_s)
            events += len(answers)
            decisions = engine.step(now_s, clock.gated(now_s, answers))
            _refuse_endless_losses(engine, answers)
            rounds += 1
            if rounds > ENDLESS - LOOKED_AT:
                swapped += decisions
            if rounds > ENDLESS:
                raise PolicyStuck(f"keeps changing its decisions at {now_s:g} s about {_jobs_of(swapped)}")
        _refuse_endless_losses(engine, happened)
        if progress is not None and events >= report_at:
            progress(clock.arrived)
            report_at = events + REPORT_EVERY
    _refuse_leftovers(engine)
    return RunOutcome(events=events, wall_s=time.perf_counter() - wall, cpu_s=time.process_time() - cpu)


def _refuse_endless_losses(engine: Engine, happened: Sequence[Event]) -> None:
    """Give up if a policy that asks no guard, such as one that plans in rounds, undoes a job's work again and again."""
    for event in happened:
        if isinstance(event, Stopped | Resized | Moved) and engine.state.jobs[event.job_id].undone > MOST_UNDONE:
            raise RotaError(
                f"job {event.job_id} starts over whenever it is stopped or moved, which happened {MOST_UNDONE} times: "
                "under this policy it would never end; give it a checkpoint interval, or choose one that plans without "
                "rounds"
            )


def _jobs_of(decisions: Sequence[Decision]) -> str:
    """The jobs that decisions are about, a few by name."""
    ids = list(dict.fromkeys(str(decision.job_id) for decision in decisions))
    more = f" and {len(ids) - JOBS_NAMED} more" if len(ids) > JOBS_NAMED else ""
    return f"job{'s' if len(ids) > 1 else ''} {', '.join(ids[:JOBS_NAMED])}{more}"


class MomentClock:
    """Merges arrivals, ends, faults and timers into moments."""

    def __init__(
        self,
        engine: Engine,
        world: World,
        submissions: Sequence[Submission],
        faults: Faults,
        changes: OutsideChanges | None = None,
    ) -> None:
        self._changes = changes
        self._engine = engine
        self._world = world
        self._submissions = submissions
        self._faults = faults
        self._fault: tuple[float, Event | Breakdown] | None = next(faults, None)
        self.arrived = 0
        self._in_vain = 0
        """Moments in a row with no arrival or end to come."""
        self._stalled = 0
        self._last_s = -math.inf
        self._crept = 0
        self._crept_from_s = -math.inf

    def gated(self, now_s: float, events: Sequence[Event]) -> Sequence[Event]:
        """Return events of a moment, with what outside changes make of them."""
        return events if self._changes is None else self._changes.gated(now_s, events)

    def next_moment(self) -> tuple[float, list[Event]] | None:
        """Return the next moment and its events; None when no more will happen."""
        submissions = self._submissions
        at = self.arrived
        more = at < len(submissions)
        arrival_s = submissions[at].submit_s if more else math.inf
        end_s = self._world.due_s
        wake_s = self._engine.wakeup_s
        change_s = math.inf if self._changes is None else self._changes.due_s
        now_s = min(arrival_s, end_s, wake_s, max(change_s, self._engine.state.now_s))
        fault = self._fault
        self._in_vain = 0 if more or end_s < math.inf else self._in_vain + 1
        if self._in_vain > HOPELESS:
            return None
        if fault is not None and (now_s < math.inf or self._any_unfinished()) and fault[0] <= now_s:
            now_s = fault[0]
        elif now_s == math.inf:
            return None
        happened: list[Event] = self._world.pop_due(now_s) if end_s <= now_s else []
        while self._fault is not None and self._fault[0] <= now_s:
            happened.extend(self._suffer(self._fault[1], now_s))
            self._fault = next(self._faults, None)
        if arrival_s <= now_s:
            while at < len(submissions) and submissions[at].submit_s <= now_s:
                self._world.expect(submissions[at])
                happened.append(self._world.arrival(submissions[at].job))
                at += 1
            self.arrived = at
        if self._changes is not None and change_s <= now_s:
            happened.extend(self._changes.look(now_s))
        if self._world.sees_neighbours:
            happened.extend(self._world.adjust(now_s))
        if not happened:
            self._watch(now_s)
            happened.append(TimerFired())
        else:
            self._crept = 0
        return now_s, happened

    def _suffer(self, fault: Event | Breakdown, now_s: float) -> list[Event]:
        if isinstance(fault, Breakdown):
            assert isinstance(self._world, FailingWorld)
            return self._world.strike(fault, now_s)
        if isinstance(fault, NodeLost):
            return [fault, *self._world.lose(fault, now_s)]
        if isinstance(fault, NodeAdded):
            self._world.add_node(fault)
        return [fault]

    def _any_unfinished(self) -> bool:
        return any(not live.state.is_final for live in self._engine.state.jobs.values())

    def _watch(self, now_s: float) -> None:
        """Refuse a policy that keeps asking to be woken at the same moment, or so soon that time hardly passes."""
        self._stalled = self._stalled + 1 if now_s == self._last_s else 0
        self._last_s = now_s
        if self._stalled > ENDLESS:
            raise PolicyStuck(f"keeps asking to be woken at {now_s:g} s")
        if not self._crept or now_s - self._crept_from_s >= CREEP_S:
            self._crept, self._crept_from_s = 0, now_s
        self._crept += 1
        if self._crept > CREEPING and self._crept > CREEPING + len(self._engine.state.jobs):
            raise PolicyStuck(f"keeps asking to be woken within {CREEP_S:g} s of {self._crept_from_s:g} s")


def _refuse_leftovers(engine: Engine) -> None:
    """Raise a `RotaError` if a job has not ended: an error of the input or of the policy, not a result."""
    left = [live for live in engine.state.jobs.values() if not live.state.is_final]
    if not left:
        return
    live = left[0]
    if live.state is JobState.WAITING:
        reason = engine.explain(live.job.id)
        why = reason.sentence() if reason is not None else "nothing more happens"
    else:
        why = "its speed is 0 where it was placed"
    others = f" and {len(left) - 1} more never end" if len(left) > 1 else " never ends"
    raise RotaError(f"job {live.job.id}{others}: {why}")
