"""The engine: events in, decisions out. The same object in the simulator, on one machine, on Kubernetes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rota.core.engine.dispatch import Dispatch
from rota.core.engine.draft import Draft
from rota.core.engine.protocols import Allocator, Changes, Policy
from rota.core.engine.timers import Timers
from rota.core.engine.transitions import Transitions
from rota.core.errors import InvariantBroken
from rota.core.messages.decisions import Decision
from rota.core.messages.events import Event
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import Job, JobId, JobState
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State


class Journal(Protocol):
    """Where steps are written, in order: events, decisions, and reasons to wait that changed."""

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
        self._orders = Dispatch(state)
        self._timers = Timers(state)
        self._intake = Transitions(state, self._orders, self._timers)
        self._waits: list[tuple[JobId, Reason]] = []
        self._is_broken = False
        state.ledger = allocator.ledger
        if state.ledger is not None:
            state.ledger.adopt(state)
        policy.adopt(state)
        self._never_resumed = [] if policy.capabilities.suspends else _suspended_jobs(state)
        """Jobs suspended under another policy that this one would never resume."""

    @property
    def state(self) -> State:
        """What the engine knows; for reading only."""
        return self._state

    @property
    def memory(self) -> Any:
        """The policy's memory, as a value for a snapshot."""
        return self._policy.memory

    @property
    def overlaps(self) -> bool:
        """Whether drivers should report that a job only saves, so that its devices can be given to another."""
        return self._policy.capabilities.overlaps

    @property
    def slices(self) -> bool:
        """Whether the policy suspends jobs so that others have their turn on the same devices."""
        return self._policy.capabilities.explains_turns

    @property
    def policy(self) -> Policy:
        """The active policy."""
        return self._policy

    @property
    def wakeup_s(self) -> float:
        """When the engine wants a `TimerFired` even if nothing else happens."""
        ledger = self._state.ledger
        wake_s = min(self._policy.wakeup_s, self._timers.next_s)
        return wake_s if ledger is None else min(wake_s, ledger.wakeup_s)

    def step(self, now_s: float, events: Sequence[Event]) -> list[Decision]:
        """Take events that happen at one moment, together; return what to do about them.

        A first event that makes no sense is refused and changes nothing. A failure after that leaves the state
        between two steps: the engine then refuses further steps and has to be rebuilt from its records.
        """
        if self._is_broken:
            raise InvariantBroken("the engine failed in an earlier step; rebuild it from its records")
        if now_s != self._state.now_s:
            self._state.advance(now_s)
        taken = 0
        try:
            self._orders.decisions = []
            self._waits = []
            for event in events:
                self._intake.take(event)
                taken += 1
            self._settle(now_s)
        except BaseException:
            self._is_broken = taken > 0 or not events
            raise
        decisions = self._orders.decisions
        if self._journal is not None:
            self._journal.append(now_s, events, decisions, self._waits)
        return decisions

    def explain(self, job_id: JobId) -> Reason | None:
        """Why a job does not run, or None if it does or has ended."""
        live = self._state.live(job_id)
        if live.state is JobState.HELD:
            return Reason(code=ReasonCode.HELD)
        if live.state is JobState.SUSPENDED and self._policy.capabilities.explains_turns:
            return self._policy.explain(live, self._draft())
        if live.state is not JobState.WAITING:
            return None
        if live.retry_s is not None:
            return Reason(code=ReasonCode.RETRY, until_s=live.retry_s)
        if live.unmet:
            if self._state.turns.is_waiting(live):
                return Reason(code=ReasonCode.ARRAY_LIMIT, limit=live.job.array_limit or 0)
            unmet = next(d for d in live.job.depends_on if self._state.jobs[d].state is not JobState.SUCCEEDED)
            return Reason(code=ReasonCode.DEPENDENCY, job=unmet)
        if live.reserved:
            return Reason(code=ReasonCode.VACATING, need_milli=live.gpu_milli)
        return self._policy.explain(live, self._draft())

    def obstacle(self, job: Job) -> Reason | None:
        """Why a job that is not here yet would find no free devices now; None if it would."""
        found = self._allocator.offer(LiveJob(job, self._state.seq, self._state.now_s, 1.0), self._state.inventory, 0.0)
        return found if isinstance(found, Reason) else None

    def refuse(self, job: Job) -> str | None:
        """Why a job can never run here, beginning with the field; None if it can."""
        return self._allocator.refuse(job)

    def fork(self, policy: Policy, *, allocator: Allocator | None = None, journal: Journal | None = None) -> Engine:
        """An independent engine under a policy that adopts a copy of the state.

        An allocator with accounts of its own can't be shared; the fork needs another one like it.
        """
        allocator = allocator or self._allocator
        if allocator.ledger is not None and allocator.ledger is self._state.ledger:
            raise InvariantBroken("a fork can't share the accounts of its allocator; give it an allocator of its own")
        state = self._state.fork()
        state.memory = self._policy.memory
        return Engine(state, policy, allocator, journal=journal)

    def _settle(self, now_s: float) -> None:
        """After the events: handle what is due, and replan if something may have changed the plan."""
        intake, orders, policy = self._intake, self._orders, self._policy
        if self._timers.next_s <= now_s:
            intake.enforce_limits()
            intake.end_pauses()
        if orders.vacated:
            orders.start_reserved()
        if self._never_resumed:
            self._never_resumed = [live for live in self._never_resumed if not intake.send_back(live)]
        changes = intake.changes
        ledger = self._state.ledger
        if ledger is not None and ledger.wakeup_s <= now_s:
            ledger.wake()
            changes.freed = True
        if changes.arrived or changes.left or changes.started or changes.freed or changes.shrunk or changes.lapsed:
            intake.changes = Changes()
            policy.note(changes, now_s)
            if changes.freed or changes.arrived or changes.left or changes.lapsed or policy.wakeup_s <= now_s:
                self._replan()
        elif policy.wakeup_s <= now_s:
            self._replan()

    def _draft(self) -> Draft:
        return Draft(self._state.inventory, self._allocator, self._state.now_s)

    def _replan(self) -> None:
        draft = self._draft()
        try:
            self._policy.plan(draft)
        except BaseException:
            draft.undo(0)
            raise
        dropped = self._orders.carry_out(draft)
        if dropped:
            self._policy.note(Changes(arrived=dropped), self._state.now_s)
        for live, reason in draft.waits:
            if live.wait_code is not reason.code:
                self._state.note_obstacle(live, reason.code)
                self._waits.append((live.job.id, reason))


def _suspended_jobs(state: State) -> list[LiveJob]:
    """Jobs that are suspended, or will be."""
    return [live for live in state.jobs.values() if live.suspended_on is not None]
