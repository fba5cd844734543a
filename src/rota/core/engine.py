"""The engine: events in, decisions out. The same object in the simulator, on one machine, on Kubernetes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rota.core.decisions import Cause, Decision, Renew, Resize, Start, Stop
from rota.core.errors import InvariantBroken
from rota.core.events import (
    End,
    Event,
    Interrupted,
    JobArrived,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobReleased,
    Lapsed,
    NodeAdded,
    NodeBack,
    NodeDrained,
    NodeLost,
    NodeUndrained,
    Resized,
    SpeedChanged,
    Started,
    StartFailed,
    Stopped,
    TimerFired,
)
from rota.core.live import LiveJob
from rota.core.model import JobId, JobState
from rota.core.placement import Placement, same_devices
from rota.core.policy import Allocator, Changes, Draft, Policy
from rota.core.reasons import Reason, ReasonCode
from rota.core.state import State

_FINAL_BY_END = {
    End.SUCCEEDED: JobState.SUCCEEDED,
    End.FAILED: JobState.FAILED,
    End.CANCELLED: JobState.CANCELLED,
}


CLOCK_SLACK_S = 1e-6
"""How far a time limit may be off by the rounding of a clock that counts from 1970."""


class Journal(Protocol):
    """Where steps are written, in order: what came in, what went out, and who waits why from now on."""

    def append(
        self,
        now_s: float,
        events: Sequence[Event],
        decisions: Sequence[Decision],
        waits: Sequence[tuple[JobId, Reason]],
    ) -> None:
        """One step of the engine."""


class Engine:
    """State, a policy and an allocator. `step` is the only way anything changes."""

    def __init__(
        self,
        state: State,
        policy: Policy,
        allocator: Allocator,
        *,
        journal: Journal | None = None,
    ) -> None:
        self._state = state
        self._policy = policy
        self._allocator = allocator
        self._journal = journal
        self._changes = Changes()
        self._decisions: list[Decision] = []
        self._waits: list[tuple[JobId, Reason]] = []
        self._vacated = False
        self._limits: list[tuple[float, int, LiveJob]] = []
        self._retries: list[tuple[float, int, LiveJob]] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            JobArrived: self._job_arrived,
            JobCancelled: self._job_cancelled,
            JobHeld: self._job_held,
            JobReleased: self._job_released,
            Started: self._started,
            StartFailed: self._start_failed,
            Stopped: self._stopped,
            Resized: self._resized,
            SpeedChanged: self._speed_changed,
            Lapsed: self._lapsed,
            JobEnded: self._job_ended,
            Interrupted: self._interrupted,
            NodeLost: self._node_lost,
            NodeBack: self._node_back,
            NodeDrained: self._node_drained,
            NodeUndrained: self._node_undrained,
            NodeAdded: self._node_added,
            TimerFired: lambda event: None,
        }
        state.ledger = allocator.ledger
        if state.ledger is not None:
            state.ledger.adopt(state)
        self._adopt_timers()
        policy.adopt(state)

    @property
    def state(self) -> State:
        """What the engine knows; for reading only."""
        return self._state

    @property
    def wakeup_s(self) -> float:
        """When the engine wants a `TimerFired` even if nothing else happens."""
        wake = self._policy.wakeup_s
        if self._retries and self._retries[0][0] < wake:
            wake = self._retries[0][0]
        limits = self._limits
        while limits:
            at_s, _, live = limits[0]
            if live.run_since_s is not None and live.stopping is None:
                return at_s if at_s < wake else wake
            heapq.heappop(limits)
        return wake

    def step(self, now_s: float, events: Sequence[Event]) -> list[Decision]:
        """Take events that happen at one moment, together; return what to do about them."""
        if now_s != self._state.now_s:
            self._state.advance(now_s)
        decisions: list[Decision] = []
        self._decisions = decisions
        waits: list[tuple[JobId, Reason]] = []
        self._waits = waits
        for event in events:
            self._handlers[type(event)](event)
        if self._limits:
            self._enforce_limits()
        if self._retries:
            self._end_retries()
        if self._vacated:
            self._start_reserved()
        changes = self._changes
        policy = self._policy
        if changes.arrived or changes.left or changes.started or changes.freed or changes.shrunk or changes.lapsed:
            self._changes = Changes()
            policy.note(changes, now_s)
            if changes.freed or changes.arrived or changes.left or changes.lapsed or policy.wakeup_s <= now_s:
                self._replan()
        elif policy.wakeup_s <= now_s:
            self._replan()
        if self._journal is not None:
            self._journal.append(now_s, events, decisions, waits)
        return decisions

    def explain(self, job_id: JobId) -> Reason | None:
        """Why a job does not run, or None if it does or has ended."""
        live = self._state.live(job_id)
        if live.state is JobState.HELD:
            return Reason(code=ReasonCode.HELD)
        if live.state is not JobState.WAITING:
            return None
        if live.retry_s is not None:
            return Reason(code=ReasonCode.RETRY, until_s=live.retry_s)
        if live.unmet:
            unmet = next(d for d in live.job.depends_on if self._state.jobs[d].state is not JobState.SUCCEEDED)
            return Reason(code=ReasonCode.DEPENDENCY, job=unmet)
        if live.reserved:
            return Reason(code=ReasonCode.VACATING, need_milli=live.gpu_milli)
        return self._policy.explain(live, self._draft())

    def fork(self, policy: Policy, *, allocator: Allocator | None = None, journal: Journal | None = None) -> Engine:
        """An engine of its own from here on, under a policy that adopts a copy of the state.

        An allocator that keeps books of its own can't be shared; the fork needs another one like it.
        """
        allocator = allocator or self._allocator
        if allocator.ledger is not None and allocator.ledger is self._state.ledger:
            raise InvariantBroken("a fork can't share the books of its allocator; give it an allocator of its own")
        return Engine(self._state.fork(), policy, allocator, journal=journal)

    # -- planning --------------------------------------------------------------------------------

    def _draft(self) -> Draft:
        return Draft(self._state.inventory, self._allocator, self._state.now_s)

    def _replan(self) -> None:
        draft = self._draft()
        try:
            self._policy.plan(draft)
        except BaseException:
            draft.undo(0)
            raise
        for live, lease in draft.leases.items():
            live.lease = lease
        if draft.touched:
            self._order(draft.touched)
        for live, lease in draft.leases.items():
            if live.state is JobState.RUNNING and live.stopping is None:
                self._decisions.append(Renew(live.job.id, live.placement or (), lease))
        for live, reason in draft.waits:
            if live.wait_code is not reason.code:
                live.wait_code = reason.code
                self._waits.append((live.job.id, reason))

    def _order(self, touched: dict[LiveJob, Placement | None]) -> None:
        """Turn what a plan changed into orders: those who leave first, then those who come."""
        state = self._state
        comers: list[LiveJob] = []
        resized: list[tuple[LiveJob, Placement]] = []
        for live, before in touched.items():
            after = live.placement
            if after is before or after == before:
                continue
            if before is None or live.reserved:
                comers.append(live)
            elif after is not None and same_devices(before, after):
                live.settle(state.now_s)
                live.run_milli = live.gpu_milli
            elif after is not None and self._is_resizable(live):
                resized.append((live, before))
            else:
                self._order_stop(live, before, Cause.PREEMPTED if after is None else Cause.MOVED)
        if resized:
            self._order_resizes(resized)
        dropped: list[LiveJob] = []
        for live in comers:
            if live.placement is None:
                live.reserved = False
                del state.reserved[live.job.id]
                if live.stopping is None:
                    dropped.append(live)
            elif state.is_clear(live):
                self._order_start(live)
            elif not live.reserved:
                state.reserve(live)
        if dropped:
            self._policy.note(Changes(arrived=dropped), state.now_s)

    def _is_resizable(self, live: LiveJob) -> bool:
        return (
            live.job.elastic is not None and live.state is JobState.RUNNING and live.job.id not in self._state.vacating
        )

    def _order_resizes(self, resized: list[tuple[LiveJob, Placement]]) -> None:
        """Change the size of running jobs; one whose new devices are not vacated yet has to stop first."""
        state = self._state
        for live, before in resized:
            state.vacating[live.job.id] = (live, before)
        for live, before in resized:
            if state.is_clear(live):
                self._decisions.append(Resize(live.job.id, live.placement or ()))
            else:
                del state.vacating[live.job.id]
                self._order_stop(live, before, Cause.MOVED)

    def _order_start(self, live: LiveJob) -> None:
        self._state.begin(live)
        live.wait_code = None
        self._decisions.append(Start(live.job.id, live.placement or (), live.lease))

    def _order_stop(self, live: LiveJob, held: Placement, cause: Cause) -> None:
        self._state.order_stop(live, held, cause)
        self._decisions.append(Stop(live.job.id, cause))
        if live.placement is not None:
            self._state.reserve(live)

    def _start_reserved(self) -> None:
        self._vacated = False
        for live in list(self._state.reserved.values()):
            if live.stopping is None and self._state.is_clear(live):
                self._order_start(live)

    def _enforce_limits(self) -> None:
        now_s = self._state.now_s
        while self._limits and self._limits[0][0] <= now_s:
            _, _, live = heapq.heappop(self._limits)
            limit_s = live.job.time_limit_s
            if limit_s is None or live.run_since_s is None or live.stopping is not None:
                continue
            if live.run_s(now_s) >= limit_s - CLOCK_SLACK_S:
                self._evict(live, Cause.TIME_LIMIT)

    def _adopt_timers(self) -> None:
        """Time limits and retries of jobs that the state knew before this engine."""
        for live in self._state.jobs.values():
            if live.run_since_s is not None and live.stopping is None:
                self._limit(live)
            if live.retry_s is not None and not live.state.is_final:
                heapq.heappush(self._retries, (live.retry_s, live.seq, live))

    def _limit(self, live: LiveJob) -> None:
        limit_s, since_s = live.job.time_limit_s, live.run_since_s
        if limit_s is not None and since_s is not None:
            heapq.heappush(self._limits, (since_s + limit_s - live.ran_s, live.seq, live))

    def _end_retries(self) -> None:
        """Jobs whose pause after a failure is over contend again."""
        while self._retries and self._retries[0][0] <= self._state.now_s:
            _, _, live = heapq.heappop(self._retries)
            if live.retry_s is None or live.state.is_final:
                continue
            live.retry_s = None
            live.unmet -= 1
            if live.state is JobState.WAITING and not live.unmet:
                self._changes.arrived.append(live)

    def _evict(self, live: LiveJob, cause: Cause) -> None:
        """Stop a job for good; its claim ends now, its hold on the devices when it answers."""
        held = live.placement
        if held is None:
            raise InvariantBroken(f"job {live.job.id} holds nothing and can't be stopped")
        self._state.give_up_claim(live)
        self._order_stop(live, held, cause)
        self._changes.left.append(live)
        self._changes.freed = True

    # -- what users do ---------------------------------------------------------------------------

    def _job_arrived(self, event: JobArrived) -> None:
        live = self._state.admit(event.job, event.nominal_rate)
        if live.unmet and any(self._state.jobs[d].state.is_final for d in live.job.depends_on if self._unmet(d)):
            self._finish(live, JobState.CANCELLED)
        elif event.held:
            live.state = JobState.HELD
        elif not live.unmet:
            self._changes.arrived.append(live)

    def _unmet(self, job_id: JobId) -> bool:
        return self._state.jobs[job_id].state is not JobState.SUCCEEDED

    def _job_cancelled(self, event: JobCancelled) -> None:
        live = self._state.live(event.job_id)
        if live.state.is_final or live.stopping in (Cause.CANCELLED, Cause.TIME_LIMIT):
            return
        if live.stopping is not None:
            self._leave(live)
            live.stopping = Cause.CANCELLED
        elif live.state in (JobState.STARTING, JobState.RUNNING):
            self._evict(live, Cause.CANCELLED)
        else:
            self._leave(live)
            self._finish(live, JobState.CANCELLED)

    def _job_held(self, event: JobHeld) -> None:
        live = self._state.live(event.job_id)
        if live.state is JobState.WAITING:
            self._leave(live)
            live.state = JobState.HELD

    def _job_released(self, event: JobReleased) -> None:
        live = self._state.live(event.job_id)
        if live.state is JobState.HELD:
            live.state = JobState.WAITING
            live.since_s = self._state.now_s
            if not live.unmet:
                self._changes.arrived.append(live)

    def _leave(self, live: LiveJob) -> None:
        """A waiting job stops contending."""
        if live.reserved:
            self._state.give_up_claim(live)
            self._changes.freed = True
        self._changes.left.append(live)

    # -- what drivers answer ---------------------------------------------------------------------

    def _started(self, event: Started) -> None:
        live = self._state.live(event.job_id)
        if live.state is not JobState.STARTING:
            raise InvariantBroken(f"job {event.job_id} started, but it is {live.state.value}")
        self._state.running(live, event.rate, event.work_from_s)
        if live.stopping is not None:
            return
        self._changes.started.append(live)
        self._limit(live)

    def _start_failed(self, event: StartFailed) -> None:
        live = self._state.live(event.job_id)
        self._requeue(live, live.work, event.retry_s)

    def _stopped(self, event: Stopped) -> None:
        live = self._state.live(event.job_id)
        cause = live.stopping
        if cause is None:
            raise InvariantBroken(f"job {event.job_id} stopped without an order")
        if live.run_since_s is not None and cause in (Cause.PREEMPTED, Cause.MOVED):
            live.preemptions += 1
        self._state.halt(live, event.work)
        self._vacated = True
        match cause:
            case Cause.PREEMPTED:
                self._changes.arrived.append(live)
            case Cause.MOVED:
                if live.placement is None:
                    self._changes.arrived.append(live)
            case Cause.CANCELLED:
                self._finish(live, JobState.CANCELLED)
            case Cause.TIME_LIMIT:
                self._finish(live, JobState.FAILED)

    def _resized(self, event: Resized) -> None:
        live = self._state.live(event.job_id)
        if live.stopping is not None:
            return
        self._state.vacating.pop(event.job_id, None)
        self._vacated = True
        live.settle(self._state.now_s)
        live.work = event.work
        live.run_milli = live.gpu_milli
        self._state.running(live, event.rate, event.work_from_s)
        self._changes.started.append(live)

    def _speed_changed(self, event: SpeedChanged) -> None:
        live = self._state.live(event.job_id)
        if live.run_since_s is None:
            return
        live.settle(self._state.now_s)
        live.work = event.work
        live.rate = event.rate
        if live.stopping is None:
            self._changes.started.append(live)

    def _lapsed(self, event: Lapsed) -> None:
        live = self._state.live(event.job_id)
        if live.run_since_s is None:
            return
        self._state.lapse(live, event.work)
        if live.stopping is None:
            self._changes.lapsed.append(live)

    def _job_ended(self, event: JobEnded) -> None:
        live = self._state.live(event.job_id)
        if live.state.is_final:
            raise InvariantBroken(f"job {event.job_id} ended twice")
        self._clear_off(live, event.work)
        self._finish(live, _FINAL_BY_END[event.end])

    def _interrupted(self, event: Interrupted) -> None:
        live = self._state.live(event.job_id)
        self._requeue(live, event.work, event.retry_s)

    def _requeue(self, live: LiveJob, work: float, retry_s: float | None) -> None:
        """A run came to nothing; the job waits again, or has had its last chance."""
        cause = live.stopping
        self._clear_off(live, work)
        live.restarts += 1
        limit = live.job.max_restarts
        if cause is Cause.CANCELLED:
            self._finish(live, JobState.CANCELLED)
        elif cause is Cause.TIME_LIMIT or (limit is not None and live.restarts > limit):
            self._finish(live, JobState.FAILED)
        elif retry_s is not None and retry_s > self._state.now_s:
            live.retry_s = retry_s
            live.unmet += 1
            heapq.heappush(self._retries, (retry_s, live.seq, live))
        else:
            self._changes.arrived.append(live)

    def _clear_off(self, live: LiveJob, work: float) -> None:
        """The job's tasks are gone, ordered or not: free what it held and claimed."""
        self._changes.left.append(live)
        if live.placement is not None:
            self._state.give_up_claim(live)
            self._changes.freed = True
        if live.job.id in self._state.vacating:
            self._vacated = True
        self._state.halt(live, work)

    def _finish(self, live: LiveJob, final: JobState) -> None:
        """The job has ended; those that wait for it may go on, or never will."""
        ended = [(live, final)]
        while ended:
            live, final = ended.pop()
            self._state.finish(live, final)
            for waiting in self._state.dependents.pop(live.job.id, ()):
                if waiting.state.is_final:
                    continue
                waiting.unmet -= 1
                if final is not JobState.SUCCEEDED:
                    ended.append((waiting, JobState.CANCELLED))
                elif not waiting.unmet and waiting.state is JobState.WAITING:
                    self._changes.arrived.append(waiting)

    # -- what happens to nodes -------------------------------------------------------------------

    def _node_lost(self, event: NodeLost) -> None:
        index = self._state.node(event.node_id)
        self._state.inventory.set_up(index, False)
        self._node_turned(index)
        self._drop_reservations(index)
        self._changes.shrunk = True

    def _node_back(self, event: NodeBack) -> None:
        index = self._state.node(event.node_id)
        self._state.inventory.set_up(index, True)
        self._node_turned(index)
        self._changes.freed = True

    def _node_drained(self, event: NodeDrained) -> None:
        index = self._state.node(event.node_id)
        self._state.inventory.set_drained(index, True)
        self._node_turned(index)
        self._drop_reservations(index)
        self._changes.shrunk = True

    def _node_undrained(self, event: NodeUndrained) -> None:
        index = self._state.node(event.node_id)
        self._state.inventory.set_drained(index, False)
        self._node_turned(index)
        self._changes.freed = True

    def _node_added(self, event: NodeAdded) -> None:
        self._state.add_node(event.node)
        self._changes.freed = True

    def _node_turned(self, index: int) -> None:
        if self._state.ledger is not None:
            self._state.ledger.node_turned(index, self._state.inventory)

    def _drop_reservations(self, index: int) -> None:
        for live in list(self._state.reserved.values()):
            if any(slot.node == index for slot in live.placement or ()):
                self._state.give_up_claim(live)
                self._changes.left.append(live)
                if live.stopping is None:
                    self._changes.arrived.append(live)
                self._changes.freed = True
