"""One forward run: the present state, continued by the same engine and the simulated cluster until a job has ended."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rota.core.engine.engine import Engine
from rota.core.messages.decisions import Decision, Resume, Start
from rota.core.messages.events import Event, TimerFired
from rota.core.model.cluster import Cluster
from rota.core.model.job import JobId, JobState
from rota.drivers.simulator.adopt import Delays, Targets, adopt, as_usual
from rota.drivers.simulator.run import ENDLESS, MomentClock, OutsideChanges
from rota.drivers.simulator.world import World
from rota.network.load import NetworkLoad
from rota.network.model import NetworkModel
from rota.perf.speed.model import Costs, SpeedModel
from rota.traces.workload import Submission

HORIZON_S = 30 * 86400.0
"""How far a forecast looks."""
MOST_MOMENTS = 50_000
"""Moments after which a run is given up, as if the job did not start within the horizon."""
CHECK_EVERY = 32
"""Moments between two looks at the clock on the wall."""


class OutOfTime(Exception):
    """A forward run that took longer than it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What became of the job in one forward run; infinite where it did not happen within the horizon."""

    start_s: float
    """When it is started, or has started, if how long that takes is known for each job."""
    end_s: float
    ahead: tuple[JobId, ...]
    """Waiting jobs that were started before it, in order."""
    starts_before: int = 0
    """Starts of any jobs before it, those of later arrivals and after preemptions included."""
    stopped_s: float = 0.0
    """How long it did not run between its start and its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedFuture:
    """The assumptions of one forward run: how much work each job has, what arrives later, costs and speeds."""

    targets: Targets
    arrivals: Sequence[Submission] = ()
    """Later submissions, in order of time."""
    costs: Costs = field(default_factory=Costs)
    speed: SpeedModel = field(default_factory=SpeedModel)
    horizon_s: float = HORIZON_S
    rerate: bool = False
    """Whether running jobs go on at the assumed speeds, and not at those recorded."""
    network: NetworkModel | None = None
    """The links that jobs wait for; None: none."""
    changes: Callable[[Engine], OutsideChanges] | None = None
    """Makes what changes nodes and jobs at set times; None: nothing does."""
    stops_s: Mapping[JobId, float] = field(default_factory=dict)
    """When stops that are under way were ordered."""
    delays: Delays = as_usual
    """How long starts and stops of a job take."""


def run_forward(
    engine: Engine,
    future: AssumedFuture,
    job_id: JobId,
    *,
    asked: Submission | None = None,
    give_up_at_s: float = math.inf,
) -> RunResult:
    """Run a copy of the present forward until a job has ended; `asked` submits a hypothetical one first.

    Raise `OutOfTime` at `give_up_at_s` of the monotonic clock.
    """
    return _ForwardRun(engine, future, job_id).run(asked, give_up_at_s)


class _ForwardRun:
    def __init__(self, engine: Engine, future: AssumedFuture, job_id: JobId) -> None:
        state = engine.state
        cluster = Cluster(nodes=tuple(account.node for account in state.inventory.nodes))
        self._engine = engine
        links = None
        if future.network is not None:
            links = NetworkLoad(future.network, cluster.nodes, by_request=future.speed.scales_by_links)
        self._world = World(cluster, future.speed, future.costs, overlaps=engine.overlaps, network=links)
        self._outstanding = adopt(
            self._world,
            state,
            future.targets,
            future.costs.checkpoint_interval_s,
            rerate=future.rerate,
            stops_s=future.stops_s,
            delays=future.delays,
        )
        changes = None if future.changes is None else future.changes(engine)
        self._clock = MomentClock(engine, self._world, future.arrivals, iter(()), changes)
        own = future.delays(job_id, 0.0)
        self._startup_s = 0.0 if own is None else own.start_s(0, future.costs.load_s)
        self._job_id = job_id
        self._until_s = state.now_s + future.horizon_s
        self._waiting = {live.job.id for live in state.jobs.values() if live.state is JobState.WAITING}
        self._ahead: list[JobId] = []
        self._starts_before = 0
        self._start_s = math.inf

    def run(self, asked: Submission | None, give_up_at_s: float) -> RunResult:
        engine, world = self._engine, self._world
        now_s = engine.state.now_s
        before = engine.state.jobs.get(self._job_id)
        ran_s = 0.0 if before is None else before.run_s(now_s)
        happened: list[Event] = []
        if asked is not None:
            world.expect(asked)
            happened.append(world.arrival(asked.job))
            self._waiting.add(asked.job.id)
        if self._outstanding:
            happened[:0] = world.carry_out(self._outstanding, now_s)
        moments = 0
        self._settle(now_s, happened or [TimerFired()])
        while not self._is_over():
            moment = self._clock.next_moment()
            if moment is None or moment[0] > self._until_s or moments > MOST_MOMENTS:
                break
            self._settle(max(moment[0], engine.state.now_s), moment[1])
            moments += 1
            if moments % CHECK_EVERY == 0 and time.monotonic() > give_up_at_s:
                raise OutOfTime
        live = engine.state.jobs[self._job_id]
        end_s = math.inf if live.ended_s is None else live.ended_s
        from_s = self._start_s if math.isfinite(self._start_s) else now_s
        return RunResult(
            start_s=self._start_s + self._startup_s,
            end_s=end_s,
            ahead=tuple(self._ahead),
            starts_before=self._starts_before,
            stopped_s=max(end_s - from_s - (live.ran_s - ran_s), 0.0),
        )

    def _is_over(self) -> bool:
        return self._engine.state.jobs[self._job_id].state.is_final

    def _settle(self, now_s: float, happened: Sequence[Event]) -> None:
        """Take one moment: events, and decisions until there are no more."""
        engine, clock = self._engine, self._clock
        decisions = engine.step(now_s, clock.gated(now_s, happened))
        for _ in range(ENDLESS):
            if not decisions:
                return
            self._note(decisions, now_s)
            decisions = engine.step(now_s, clock.gated(now_s, self._world.carry_out(decisions, now_s)))

    def _note(self, decisions: Sequence[Decision], now_s: float) -> None:
        """Count the waiting jobs that start, up to the job that is asked about."""
        if self._start_s < math.inf:
            return
        for each in decisions:
            if isinstance(each, Start | Resume) and each.job_id == self._job_id:
                self._start_s = now_s
                return
            self._starts_before += isinstance(each, Start | Resume)
            if isinstance(each, Start) and each.job_id in self._waiting:
                self._waiting.discard(each.job_id)
                self._ahead.append(each.job_id)
