"""The driver with which Rota decides and Slurm carries out.

Jobs that `job_submit.lua` marked are held in Slurm until the engine starts them: the driver sets their nodes and
releases them. A stop requeues a job and holds it again. What Slurm does by itself (ends, failed nodes, cancelled jobs)
is found out by looking. Which GPUs of a node a job gets is Slurm's choice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.core.engine.driver import DriverContract
from rota.core.messages.decisions import Cause, Decision, DecisionKind, Renew, Start, Stop
from rota.core.messages.events import (
    End,
    Event,
    Interrupted,
    JobArrived,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobReleased,
    SpeedChanged,
    Started,
    StartFailed,
    Stopped,
)
from rota.core.model.job import JobId, JobState
from rota.core.model.placement import Placement
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.drivers.slurm import marks
from rota.drivers.slurm.array_limits import ArrayLimits
from rota.drivers.slurm.changes.changed_requests import ChangedRequests
from rota.drivers.slurm.changes.running_jobs import RunningJobs
from rota.drivers.slurm.commands import UNREADABLE, SlurmCommands
from rota.drivers.slurm.observer import end_of
from rota.drivers.slurm.printed.records import RUNNING, SlurmJob
from rota.drivers.slurm.refused_starts import RefusedStarts, is_refused
from rota.drivers.slurm.translate import job_of, nodes_of, runs_as_planned, why_left
from rota.drivers.slurm.view import SlurmView, node_events, occupied, occupied_events

log = logging.getLogger("rota.slurm")
CONTRACT = DriverContract(
    name="Slurm",
    supports=frozenset({DecisionKind.START, DecisionKind.STOP, DecisionKind.RESIZE, DecisionKind.LEASE}),
)
"""A job that Slurm suspends keeps its GPUs, so that suspending it frees nothing. No job of Slurm is elastic: policies
that resize jobs find none, and run them as they are."""
START_WITHIN_S = 30.0
"""How long Slurm may take to start a released job before it is held again."""


@dataclass(slots=True)
class _Order:
    """A start or a stop that is under way."""

    begun_s: float
    is_start: bool
    is_sent: bool = False
    failed: str | None = None
    """Why Slurm did not take it."""


class SlurmDriver:
    """All jobs that Rota schedules in a Slurm cluster."""

    contract = CONTRACT

    def __init__(self, commands: SlurmCommands, view: SlurmView, priorities: Mapping[str, int]) -> None:
        self.view = view
        self._commands = commands
        self._priorities = priorities
        """The priority of each quality of service."""
        self._orders: dict[str, _Order] = {}
        self._refused = RefusedStarts()
        self._held_here: set[str] = set()
        """Jobs that are held here because Slurm has them wait: for a dependency, their user, a date."""
        self._ended: dict[str, None] = {}
        self._left: dict[str, str] = {}
        """Jobs that are left to Slurm, with the reason."""
        self._occupied: dict[str, tuple[int, int, int]] = {}
        self._settled: dict[str, tuple[SlurmJob, JobState]] = {}
        """Jobs of which the last look found nothing, and why the next one need not look: record and state."""
        self._arrays = ArrayLimits({}, ())
        self._work: set[asyncio.Task[None]] = set()
        self._names: list[str] = []
        self._now_s: Callable[[], float] = lambda: 0.0
        self._renewed: list[JobId] = []
        """Jobs whose leases were renewed: they go on, unless the next look says that they have ended."""
        self.outdated = asyncio.Event()
        """Set once a job runs that was not started here, or became another: the state is to be rebuilt from Slurm."""
        self._requests = ChangedRequests(self.outdated, priorities)
        self._running = RunningJobs(self.outdated)

    def attach(self, names: Sequence[str], now_s: Callable[[], float]) -> None:
        """Learn the nodes in the engine's order, and the clock."""
        self._names, self._now_s = list(names), now_s

    def note_held(self, state: State) -> None:
        """Jobs that wait in a rebuilt state are held until a look says that they may start."""
        for name, job in self.view.jobs.items():
            if JobId(name) in state.jobs:
                (self._requests.note if job.is_pending else self._running.note)(job)
        self._held_here |= {str(live.job.id) for live in state.jobs.values() if live.state is JobState.HELD}

    def take_up(self) -> None:
        """Orders that were under way are found by the next look."""

    def carry_out(self, decisions: Sequence[Decision], now_s: float) -> list[Event]:
        """Begin to carry out decisions; a look finds out what came of them."""
        for decision in decisions:
            match decision:
                case Start(job_id, placement):
                    self._begin(str(job_id), self._start(str(job_id), placement), is_start=True)
                case Stop(job_id, cause):
                    self._begin(str(job_id), self._stop(str(job_id), cause), is_start=False)
                case Renew(job_id):
                    self._renewed.append(job_id)
                case _:
                    raise AssertionError(f"{decision} is not of a kind that the contract allows")
        return []

    async def close(self) -> None:
        """Let orders under way end; jobs continue to run."""
        if self._work:
            await asyncio.wait(self._work, timeout=5.0)

    # -- orders ----------------------------------------------------------------------------------

    def _begin(self, name: str, work: Coroutine[Any, Any, None], *, is_start: bool) -> None:
        order = self._orders[name] = _Order(begun_s=self._now_s(), is_start=is_start)

        async def do() -> None:
            try:
                await work
            except UNREADABLE as error:
                order.failed = str(error)
            order.is_sent = True

        self._spawn(do())

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        assert isinstance(task, asyncio.Task)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _start(self, name: str, placement: Placement) -> None:
        values = {"NodeList": ",".join(nodes_of(placement, self._names)), "AdminComment": marks.PLACED}
        job = self.view.jobs.get(name)
        if job is not None and job.restarts:
            values["StartTime"] = "now"  # Slurm lets two minutes pass after a requeue
        await self._commands.update(name, **values)
        await self._commands.release(name)

    async def _stop(self, name: str, cause: Cause) -> None:
        if cause is Cause.CANCELLED:
            await self._commands.cancel(name)
            return
        await self._commands.update(name, AdminComment=marks.PREEMPTED)
        await self._commands.requeue_held(name)

    def cancel(self, name: str) -> None:
        """Cancel a job that waits: the engine ends it without an order. One that is left to Slurm stays there."""
        if name in self._left:
            return
        self._ended[name] = None
        self._spawn(self._quietly(self._commands.cancel(name), name))

    async def _hold(self, job: SlurmJob) -> None:
        """Hold a job; it has Rota's mark first, by which the watchdog finds it."""
        if not marks.is_managed(job):
            await self._quietly(self._commands.update(job.id, AdminComment=marks.HELD), job.id)
        await self._quietly(self._commands.hold(job.id), job.id)

    async def _leave(self, name: str) -> None:
        """Give a job back to Slurm, which decides about it alone; only a released one loses Rota's mark."""
        try:
            await self._commands.release(name)
            await self._commands.update(name, AdminComment=marks.LEFT)
        except UNREADABLE as error:
            self._left.pop(name, None)
            log.warning("a job could not be left to Slurm yet", extra={"job": name, "why": str(error)})

    async def _quietly(self, work: Awaitable[None], name: str) -> None:
        try:
            await work
        except UNREADABLE as error:
            log.warning(
                "an order to Slurm failed; the next look shows what came of it", extra={"job": name, "why": str(error)}
            )

    # -- looking ---------------------------------------------------------------------------------

    def needs_nodes(self, state: State) -> bool:
        """Whether a job waits in Slurm that ran here: its node may be lost, and must not get it again."""
        return any(
            job.is_pending and (live := state.jobs.get(JobId(name))) is not None and live.stopping is None
            for name, (_, standing) in self._settled.items()
            if standing is JobState.RUNNING and (job := self.view.jobs.get(name)) is not None
        )

    def look(self, state: State, now_s: float, wall_s: float) -> list[Event]:
        """Return the events since the last look; `wall_s` is the date, by which Slurm writes its times."""
        events = node_events(self.view.nodes, state, decides=True)
        self._arrays = ArrayLimits(self.view.jobs, self._orders)
        known, self._settled = self._settled, {}
        for name, job in self.view.jobs.items():
            live = state.jobs.get(JobId(name))
            standing = None if live is None else live.state
            before = known.get(name)
            if before is not None and before[0] is job and before[1] is standing and live and live.stopping is None:
                self._settled[name] = before
            elif live is not None and not live.state.is_final:
                found = self._known(job, live, now_s, wall_s)
                if not found and _is_settled(job, live):
                    self._settled[name] = (job, live.state)
                events += found
            elif marks.is_managed(job) and not job.has_ended and name not in self._ended and name not in self._left:
                events += self._new(job, wall_s)
        for job_id in sorted(state.jobs.keys() - self.view.jobs.keys()):
            if not state.jobs[job_id].state.is_final:
                events += self._gone(state.jobs[job_id])
        events += self._renewals(state, events)
        self._requests.keep(self.view.jobs)
        self._running.keep(self.view.jobs)
        others = [job for job in self.view.jobs.values() if job.state in RUNNING and not self._is_ours(job, state)]
        return events + occupied_events(occupied(others, self.view.nodes), self._occupied, state)

    def _renewals(self, state: State, events: Sequence[Event]) -> list[Event]:
        """The answers to renewed leases, of jobs that still run by these events."""
        renewed, self._renewed = self._renewed, []
        left = {event.job_id for event in events if isinstance(event, JobEnded | Stopped | Interrupted)}
        lives = [live for job_id in renewed if job_id not in left and (live := state.jobs.get(job_id)) is not None]
        runs = [live for live in lives if live.state is JobState.RUNNING]
        return [SpeedChanged(live.job.id, live.work, self._running.rate(str(live.job.id))) for live in runs]

    @staticmethod
    def _is_ours(job: SlurmJob, state: State) -> bool:
        live = state.jobs.get(JobId(job.id))
        return live is not None and (live.state in (JobState.STARTING, JobState.RUNNING) or live.is_leaving)

    def _new(self, job: SlurmJob, wall_s: float) -> list[Event]:
        if job.holds_nodes:
            self._note_running(job)
            return []
        why = why_left(job, self.view.mixed_among)
        if why is not None:
            self._leave_alone(job, why)
            return []
        if not marks.is_held(job):
            self._spawn(self._hold(job))
        held = self._must_wait(job, wall_s)
        if held:
            self._held_here.add(job.id)
        self._requests.note(job)
        return [JobArrived(job_of(job, self._priorities), held=held)]

    def _note_running(self, job: SlurmJob) -> None:
        """A job runs that waits here; one that completes is about to leave its nodes, as after a requeue."""
        if job.state != "COMPLETING":
            log.info("runs though it was not started here; the state is read again", extra={"job": job.id})
            self.outdated.set()

    def _must_wait(self, job: SlurmJob, wall_s: float) -> bool:
        """Whether a job may not start for a reason of Slurm's, or of its user."""
        return (
            marks.is_held_by_others(job)
            or marks.waits_for_slurm(job, self.view.jobs, wall_s)
            or self._arrays.is_full(job)
        )

    def _known(self, job: SlurmJob, live: LiveJob, now_s: float, wall_s: float) -> list[Event]:
        if live.state is JobState.STARTING:
            return self._starting(job, live, now_s)
        if live.state is JobState.RUNNING or live.is_leaving:
            return self._on_devices(job, live, now_s)
        if job.has_ended:
            self._ended[job.id] = None
            return [JobCancelled(live.job.id)]
        if job.holds_nodes:
            self._note_running(job)
            return []
        why = why_left(job, self.view.mixed_among)
        if why is not None:
            return self._leave_known(job, live, why)
        changed: list[Event] = [*self._requests.update(job, live)]
        must_wait = self._must_wait(job, wall_s)
        if must_wait and live.state is JobState.WAITING:
            self._held_here.add(job.id)
            return [*changed, JobHeld(live.job.id)]
        if not must_wait and live.state is JobState.HELD and job.id in self._held_here:
            self._held_here.discard(job.id)
            return [*changed, JobReleased(live.job.id)]
        if not marks.is_held(job) and job.id not in self._orders:
            self._spawn(self._hold(job))
        return changed

    def _leave_known(self, job: SlurmJob, live: LiveJob, why: str) -> list[Event]:
        """A user changed a waiting job so that Rota can't place it any more."""
        self._leave_alone(job, why)
        return [JobCancelled(live.job.id)]

    def _leave_alone(self, job: SlurmJob, why: str) -> None:
        self._left[job.id] = why
        log.info("left to Slurm", extra={"job": job.id, "why": why})
        self._spawn(self._leave(job.id))

    def _starting(self, job: SlurmJob, live: LiveJob, now_s: float) -> list[Event]:
        order = self._orders.get(job.id)
        job_id = live.job.id
        if live.stopping is not None:
            return self._stopping_start(job, live)
        if job.has_ended:
            self._finish(job.id)
            return [Started(job_id, 1.0, now_s), JobEnded(job_id, end_of(job), 0.0)]
        if job.holds_nodes and job.state != "CONFIGURING":
            self._orders.pop(job.id, None)
            self._refused.forget(job.id)
            if job.state == "RUNNING" and not runs_as_planned(job, live, self._names):
                log.info("Slurm started it otherwise; the state is read again", extra={"job": job.id})
                self.outdated.set()
            self._running.note(job)
            return [Started(job_id, 1.0, now_s)]
        if job.holds_nodes or (order is not None and not order.is_sent):
            return []
        late = order is None or now_s - order.begun_s > START_WITHIN_S
        if order is not None and order.failed is None and not late and not is_refused(job):
            return []
        self._orders.pop(job.id, None)
        if not marks.is_held(job):
            self._spawn(self._hold(job))
        why = f"Slurm did not start it: {job.reason}" if order is None or order.failed is None else order.failed
        return [StartFailed(job_id, why, now_s + self._refused.pause_s(job.id))]

    def _stopping_start(self, job: SlurmJob, live: LiveJob) -> list[Event]:
        """A job that is stopped before it ran."""
        order = self._orders.get(job.id)
        if order is not None and not order.is_sent:
            return []
        if job.has_ended:
            self._finish(job.id)
            return [Stopped(live.job.id, 0.0)]
        if job.is_pending:
            self._orders.pop(job.id, None)
            if live.stopping is Cause.CANCELLED:
                self.cancel(job.id)
            elif not marks.is_held(job):
                self._spawn(self._hold(job))
            return [Stopped(live.job.id, 0.0)]
        self._begin(job.id, self._stop(job.id, live.stopping or Cause.PREEMPTED), is_start=False)
        return []

    def _on_devices(self, job: SlurmJob, live: LiveJob, now_s: float) -> list[Event]:
        job_id, order = live.job.id, self._orders.get(job.id)
        if job.has_ended:
            self._finish(job.id)
            is_cancelled = live.stopping is Cause.CANCELLED
            return [Stopped(job_id, 0.0) if is_cancelled else JobEnded(job_id, end_of(job), 0.0)]
        if job.is_pending:
            self._orders.pop(job.id, None)
            if not marks.is_held(job):
                self._spawn(self._hold(job))
            return [Stopped(job_id, 0.0) if live.stopping is not None else Interrupted(job_id, 0.0)]
        if live.stopping is None:
            return [*self._running.follow(job, live, now_s)]
        if order is not None and order.failed is not None:
            self._begin(job.id, self._stop(job.id, live.stopping), is_start=False)
        return []

    def _gone(self, live: LiveJob) -> list[Event]:
        """A job that Slurm has forgotten: its end was not seen."""
        name, job_id = str(live.job.id), live.job.id
        order = self._orders.get(name)
        if order is not None and not order.is_sent:
            return []
        self._finish(name)
        if live.state in (JobState.WAITING, JobState.HELD) and not live.is_leaving:
            return [JobCancelled(job_id)]
        if live.state is JobState.STARTING:
            return [Started(job_id, 1.0, self._now_s()), JobEnded(job_id, End.CANCELLED, 0.0)]
        return [JobEnded(job_id, End.CANCELLED, 0.0)]

    def _finish(self, name: str) -> None:
        self._orders.pop(name, None)
        self._refused.forget(name)
        self._ended[name] = None


def _is_settled(job: SlurmJob, live: LiveJob) -> bool:
    """Whether nothing can come of a job before its record in Slurm, or its state here, changes."""
    if live.state is JobState.RUNNING:
        return live.stopping is None
    return live.state is JobState.WAITING and marks.is_held(job) and not job.dependency and not job.array_limit
