"""A simulated cluster that continues from the state of an engine, whatever is under way there.

A world of its own knows more than the engine: here only what a job's record tells is known, and the work of each job is
an assumption of the caller. Orders that no driver has answered yet are returned, to be carried out first; the time that
starts and stops have taken already counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rota.core.messages.decisions import Cause, Decision, Move, Resize, Resume, Start, Stop, Suspend
from rota.core.model.job import JobId
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import Phase
from rota.core.state.state import State
from rota.drivers.simulator.job_run import JobRun
from rota.drivers.simulator.world import World
from rota.traces.workload import OrderDelays, Outcome

_RUNS = frozenset({Phase.RUNNING, Phase.RESIZING, Phase.SUSPENDING, Phase.SAVING, Phase.STOPPING, Phase.RELOCATING})
_RESTS = frozenset(
    {
        Phase.SUSPENDED,
        Phase.RESUME_RESERVED,
        Phase.RESUMING,
        Phase.MOVING,
        Phase.STOPPING_SUSPENDED,
        Phase.RELOCATING_SUSPENDED,
    }
)

Targets = Callable[[LiveJob], tuple[float, Outcome]]
"""The work after which a job ends, and how."""
Delays = Callable[[JobId, float], OrderDelays | None]
"""How long starts and stops of a job take; the first of them is known to take longer than it has taken already."""


def as_usual(job_id: JobId, over_s: float = 0.0) -> OrderDelays | None:
    """Return None: starts and stops of a job take as long as usual."""
    return None


def adopt(
    world: World,
    state: State,
    targets: Targets,
    interval_s: float,
    *,
    rerate: bool = False,
    stops_s: Mapping[JobId, float] | None = None,
    delays: Delays = as_usual,
) -> list[Decision]:
    """Let a new world continue from a state; return the orders that are outstanding.

    `interval_s` is the time between checkpoints of jobs that do not declare it. With `rerate`, jobs run on at the
    speeds of the world: the drivers of real machines record none. `stops_s` says when stops that are under way were
    ordered, as far as that is known; `delays` how long starts and stops of a job take.
    """
    outstanding: list[Decision] = []
    for live in state.jobs.values():
        if live.state.is_final:
            continue
        target, outcome = targets(live)
        order = _order(live)
        spent_s = _spent_s(order, live, state.now_s, stops_s or {})
        run = _run_of(live, state, JobRun(live.job, target, outcome, interval_s, delays(live.job.id, spent_s)))
        run.spent_s = spent_s
        world.take_over(run, rerate=rerate)
        if order is not None:
            outstanding.append(order)
    return outstanding


def _run_of(live: LiveJob, state: State, run: JobRun) -> JobRun:
    """Bring a new run to where its job is."""
    run.work = run.metered = live.work
    run.saved = 0.0 if run.starts_over else live.work
    run.work_from_s = run.saved_s = live.work_from_s
    run.ever_ran = live.first_start_s is not None
    if live.phase in _RUNS:
        run.placement = _physical(live, state)
        run.rate, run.lease = live.rate, live.lease
        run.lapsed = not live.rate and live.lease is None and live.phase is Phase.RUNNING
        run.saves_result = live.phase is Phase.SAVING
    elif live.phase in _RESTS:
        run.placement, run.rests = live.suspended_on, True
        run.owed_s = max(live.work_from_s - live.since_s, 0.0)
        run.work_from_s = max(live.work_from_s, live.since_s)
    return run


def _spent_s(order: Decision | None, live: LiveJob, now_s: float, stops_s: Mapping[JobId, float]) -> float:
    """Return for how long the start or stop of a job that is not answered has been under way."""
    match order:
        case Start():
            return max(now_s - live.since_s, 0.0)
        case Stop():
            return max(now_s - stops_s.get(live.job.id, now_s), 0.0)
        case _:
            return 0.0


def _physical(live: LiveJob, state: State) -> Placement | None:
    """Return the devices on which the tasks of a job run at present."""
    leaving = state.vacating.get(live.job.id)
    return leaving[1] if leaving is not None else live.placement


def _order(live: LiveJob) -> Decision | None:
    """Return the order about a job that is not answered yet."""
    job_id = live.job.id
    if live.stopping is not None:
        return Stop(job_id, live.stopping)
    placement = live.placement or ()
    match live.phase:
        case Phase.STARTING:
            return Start(job_id, placement, live.lease)
        case Phase.RESIZING:
            return Resize(job_id, placement) if live.job.elastic is not None else Move(job_id, placement)
        case Phase.SUSPENDING:
            return Suspend(job_id)
        case Phase.RESUMING:
            return Resume(job_id, placement)
        case Phase.MOVING:
            return Move(job_id, placement)
        case Phase.STOPPING | Phase.STOPPING_START | Phase.STOPPING_SUSPENDED:
            return Stop(job_id, Cause.PREEMPTED)
        case _:
            return None
