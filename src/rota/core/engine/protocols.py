"""What the engine asks of a policy, of an allocator, and the draft in which a plan is written.

A policy never changes the state: it tries things on a `Draft`, which checks each step and can undo it.
What the draft holds in the end is the plan.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol

from rota.core.errors import PlanRefused
from rota.core.messages.decisions import Lease
from rota.core.messages.reasons import Reason
from rota.core.model.cells import CellPlan
from rota.core.model.job import Job, JobState, Locality
from rota.core.model.placement import Placement, fault_in, is_parked, parked, same_devices
from rota.core.model.tenants import TenantPlan
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State


@dataclass(slots=True)
class Changes:
    """What events did since the policy was last told, as far as a policy cares."""

    arrived: list[LiveJob] = field(default_factory=list)
    """Jobs that now wait for devices: new, released, preempted, interrupted, or with dependencies met."""
    left: list[LiveJob] = field(default_factory=list)
    """Jobs that neither wait nor hold devices any more: ended, cancelled, held, being stopped."""
    started: list[LiveJob] = field(default_factory=list)
    """Jobs that hold devices and whose speed, size or start became known."""
    lapsed: list[LiveJob] = field(default_factory=list)
    """Jobs that hold devices and whose lease is over."""
    freed: bool = False
    """Devices became available that were not before."""
    shrunk: bool = False
    """Devices went away that were available before."""


class Policy(Protocol):
    """What should hold devices. Told of every change, asked for a plan when one may be due.

    One that has `suspends = True` looks after suspended jobs; under any other they are stopped and wait.
    One that has `overlaps = True` gives away the devices of a job that only saves; others wait for its end.
    """

    @property
    def wakeup_s(self) -> float:
        """When it wants to be asked even if nothing happens."""

    def note(self, changes: Changes, now_s: float) -> None:
        """Keep indexes true; decide nothing yet."""

    def plan(self, draft: Draft) -> None:
        """Write into the draft what should change."""

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """Why a job that waits for devices was passed over, by the code that does it."""

    def adopt(self, state: State) -> None:
        """Build all indexes anew from a state it did not see grow (after a fork or a restart).

        `state.memory` is what a policy remembered then. It may have been another one, or none.
        """

    @property
    def memory(self) -> Any:
        """What it must remember beyond the jobs' memos, as a value that JSON can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Devices for a job, and who has to leave them first."""

    placement: Placement
    victims: tuple[LiveJob, ...]


class Ledger(Protocol):
    """An allocator's own books. They follow every claim, so that they are as true in a draft as outside of it."""

    def adopt(self, state: State) -> None:
        """Open the books with a state that was not seen growing."""

    def moved(self, live: LiveJob, before: Placement | None, after: Placement | None, *, undo: bool) -> None:
        """A job's claim changed; `undo`: because a draft takes back what it tried."""

    def node_turned(self, index: int, inventory: Inventory) -> None:
        """A node came to be usable, or ceased to be; it may be new."""

    def promise(self, cells: CellPlan | None, tenants: TenantPlan | None, inventory: Inventory) -> None:
        """From now on this is promised; the books are empty until `adopt`. Refused before anything is changed."""

    def could_hold(self, live: LiveJob) -> bool:
        """Whether the promises would hold a job that asks for a guarantee, if nothing else were there."""

    def keeps_promise(self, live: LiveJob) -> bool:
        """Whether a job that asks for a guarantee has one: it holds its tenant's own, or waits for it."""

    @property
    def wakeup_s(self) -> float:
        """When a job that waits may be given what it was refused, though nothing happens."""

    def wake(self) -> None:
        """That moment has come."""


class Allocator(Protocol):
    """Who may use what, and which devices: tenancy, with placement ranking the choices inside it."""

    def refuse(self, job: Job) -> str | None:
        """What about a job can never be had here, beginning with the field and saying the way out; None if nothing."""

    @property
    def ledger(self) -> Ledger | None:
        """Its own books, if it keeps any."""

    def realm(self, live: LiveJob) -> Hashable:
        """A key that is equal for jobs which contend for the same devices as of right: those of one private cluster."""

    def shape(self, live: LiveJob) -> Hashable:
        """A key that is equal for jobs which are interchangeable here."""

    def stage(self, live: LiveJob, now_s: float) -> tuple[int, float]:
        """How far the job's wishes have relaxed by now, and when they relax further."""

    def offer(self, live: LiveJob, inventory: Inventory, now_s: float) -> Placement | Reason:
        """Devices for a job out of what is free, or why there are none."""

    def displace(self, live: LiveJob, inventory: Inventory, now_s: float) -> Offer | None:
        """Devices for a job at the expense of others whom it may displace whatever the policy's order says."""

    def may_displace(self, live: LiveJob, victim: LiveJob, now_s: float) -> bool:
        """Whether a policy that pre-empts may take the victim's devices for the job."""

    def missing_milli(self, live: LiveJob, inventory: Inventory) -> int:
        """How many thousandths of devices a job is short of by mere count; 0 when the count suffices."""

    def yields_milli(self, live: LiveJob, victim: LiveJob, inventory: Inventory) -> int:
        """How many thousandths the victim's going could free at most that the job could use."""

    def short_milli(self, live: LiveJob, inventory: Inventory) -> int:
        """How many thousandths have to come back to the job's private cluster before it can have its devices."""

    def returns_milli(self, live: LiveJob, holder: LiveJob, inventory: Inventory) -> int:
        """How many of those come back at most when a holder ends by itself."""


class Placer(Protocol):
    """Which of the free devices to take: ranks the choices within what tenancy allows."""

    def ladder(self, job: Job) -> tuple[tuple[float, Locality], ...]:
        """What the job insists on until it has waited so many seconds, one step after the other; then on nothing."""

    def alike(self, job: Job) -> Hashable:
        """A key that is equal for jobs which are placed in the same way."""

    def find(self, inventory: Inventory, job: Job, insist: Locality | None) -> Placement | None:
        """Devices for all tasks of a job, or None. `insist` is the locality that must hold, if any."""


class Draft:
    """A plan in the making: claims are really moved, step by step, and can be moved back."""

    __slots__ = ("_ledger", "_log", "allocator", "inventory", "leases", "moves", "now_s", "touched", "waits")

    def __init__(self, inventory: Inventory, allocator: Allocator, now_s: float) -> None:
        self.inventory = inventory
        self.allocator = allocator
        self._ledger = allocator.ledger
        self.now_s = now_s
        self.touched: dict[LiveJob, Placement | None] = {}
        """Each job that was changed, with the placement that it had before."""
        self.leases: dict[LiveJob, Lease] = {}
        """How long each job may go on that was given a lease."""
        self.moves: dict[LiveJob, None] = {}
        """Jobs that go on elsewhere with their state, instead of being stopped and started again."""
        self.waits: list[tuple[LiveJob, Reason]] = []
        self._log: list[tuple[LiveJob, Placement | None]] = []

    def offer(self, live: LiveJob) -> Placement | Reason:
        """Devices for a job out of what is free in this draft, or why there are none."""
        return self.allocator.offer(live, self.inventory, self.now_s)

    def assign(self, live: LiveJob, placement: Placement) -> None:
        """Let a job hold these devices."""
        job = live.job
        fault = fault_in(placement, job)
        if fault is not None:
            raise PlanRefused(f"job {job.id}: {fault}")
        if live.placement is not None:
            raise PlanRefused(f"job {job.id}: it holds devices already")
        if live.stopping is not None or live.state.is_final:
            raise PlanRefused(f"job {job.id}: it can't be placed, it is {live.state.value}")
        if not self.inventory.is_free(placement, job.roles, job.exclusive):
            raise PlanRefused(f"job {job.id}: the devices of its placement are not free")
        self._change(live, placement)

    def assign_offered(self, live: LiveJob, placement: Placement) -> None:
        """Let a job hold devices that the allocator just offered, so that they need no second check."""
        self._change(live, placement)

    def release(self, live: LiveJob) -> None:
        """Let a job hold nothing. One that is being moved loses what it was to move to."""
        if live.placement is None:
            raise PlanRefused(f"job {live.job.id}: it holds nothing that could be taken from it")
        self._change(live, None)

    def move(self, live: LiveJob, placement: Placement) -> None:
        """Let a job that runs or is suspended go on elsewhere."""
        mark = self.mark()
        self.release(live)
        try:
            self.assign(live, placement)
        except PlanRefused:
            self.undo(mark)
            raise
        self.moves[live] = None

    def share(self, live: LiveJob, placement: Placement) -> None:
        """Let a job have another part of the devices that it holds."""
        mark = self.mark()
        self.release(live)
        fault = fault_in(placement, live.job)
        if fault is None and not self.inventory.is_free(placement, live.job.roles, live.job.exclusive, back=True):
            fault = "that much of its devices is not free"
        if fault is not None:
            self.undo(mark)
            raise PlanRefused(f"job {live.job.id}: {fault}")
        self._change(live, placement)

    def suspend(self, live: LiveJob) -> None:
        """Let a running job rest where it is, so that others can have its devices."""
        held = live.placement
        if live.state is JobState.SUSPENDED and live.reserved and live.parked is not None:
            self._change(live, parked(live.parked))
        elif held is None or live.state is not JobState.RUNNING or live.stopping is not None or live.job.exclusive:
            raise PlanRefused(f"job {live.job.id}: it can't be suspended, it is {live.state.value}")
        elif is_parked(held) or live.run_milli != live.gpu_milli:
            raise PlanRefused(f"job {live.job.id}: it is being resized, moved or suspended")
        else:
            self._change(live, parked(held))

    def can_resume(self, live: LiveJob, there: Placement | None = None) -> bool:
        """Whether the devices on which a suspended job rests are free in this draft, or that part of them."""
        if live.state is not JobState.SUSPENDED or live.parked is None or live.stopping is not None:
            return False
        if live.placement is None or not is_parked(live.placement):
            return False
        roles = live.job.roles
        self.inventory.give(live.placement, roles)
        fits = self.inventory.is_free(there or live.parked, roles, back=True)
        self.inventory.take(live.placement, roles)
        return fits

    def resume(self, live: LiveJob, there: Placement | None = None) -> None:
        """Let a suspended job go on, on the devices where it rests or with another part of them."""
        resting = live.parked
        if resting is None or not self.can_resume(live, there):
            raise PlanRefused(f"job {live.job.id}: it can't be resumed, it is {live.state.value}")
        if there is not None and not same_devices(there, resting):
            raise PlanRefused(f"job {live.job.id}: it rests on other devices")
        self._change(live, there or resting)

    def lease(self, live: LiveJob, lease: Lease) -> None:
        """Let a job that holds devices in this draft go on for so long, and no longer without a new lease."""
        if live.placement is None:
            raise PlanRefused(f"job {live.job.id}: it holds nothing that could be leased")
        self.leases[live] = lease

    def because(self, live: LiveJob, reason: Reason) -> None:
        """Say why a job was passed over; one job speaks for all that are alike."""
        self.waits.append((live, reason))

    def alters(self, live: LiveJob) -> bool:
        """Whether a job holds something else now than before; what was tried and undone does not count."""
        return live in self.touched and self.touched[live] != live.placement

    def mark(self) -> int:
        """A point to which `undo` can return."""
        return len(self._log)

    def undo(self, mark: int) -> None:
        """Take back every step since the mark."""
        while len(self._log) > mark:
            live, before = self._log.pop()
            job = live.job
            if live.placement is not None:
                self.inventory.give(live.placement, job.roles, job.exclusive)
            if before is not None:
                self.inventory.take(before, job.roles, job.exclusive)
            if self._ledger is not None:
                self._ledger.moved(live, live.placement, before, undo=True)
            live.set_placement(before)

    def _change(self, live: LiveJob, placement: Placement | None) -> None:
        before = live.placement
        job = live.job
        if before is not None:
            self.inventory.give(before, job.roles, job.exclusive)
        if placement is not None:
            self.inventory.take(placement, job.roles, job.exclusive)
        self.touched.setdefault(live, before)
        self._log.append((live, before))
        if self._ledger is not None:
            self._ledger.moved(live, before, placement, undo=False)
        live.set_placement(placement)
