"""The draft in which a policy writes its plan: each step is checked, moves the claims at once, and can be undone."""

from __future__ import annotations

import math
from typing import TypeAlias

from rota.core.engine.preemption_guard import FREE_LOSSES, OPEN, PreemptionGuard
from rota.core.engine.protocols import Allocator
from rota.core.errors import PlanRefused
from rota.core.messages.decisions import Lease
from rota.core.messages.reasons import Reason
from rota.core.model.job import JobState
from rota.core.model.placement import Placement, fault_in, is_suspended_claim, same_devices, suspended_claim
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import Phase

Trial: TypeAlias = tuple[int, int, int]
"""How much was changed and touched, and where more was available, when something began to be tried."""


class Draft:
    """A plan that is being written: each step moves claims at once, and can be undone."""

    __slots__ = (
        "_ledger",
        "_log",
        "allocator",
        "guard",
        "guard_wakeup_s",
        "inventory",
        "leases",
        "moves",
        "now_s",
        "touched",
        "waits",
    )

    def __init__(self, inventory: Inventory, allocator: Allocator, now_s: float) -> None:
        self.inventory = inventory
        self.allocator = allocator
        self._ledger = allocator.ledger
        self.now_s = now_s
        self.guard: PreemptionGuard = OPEN
        """Which running jobs this plan must not stop."""
        self.guard_wakeup_s = math.inf
        """When the first job that was spared in this plan loses its protection."""
        self.touched: dict[LiveJob, Placement | None] = {}
        """Each job that was changed, with the placement that it had before."""
        self.leases: dict[LiveJob, Lease] = {}
        """The lease of each job that was given one."""
        self.moves: dict[LiveJob, None] = {}
        """Jobs that are moved with their state, instead of being stopped and started again."""
        self.waits: list[tuple[LiveJob, Reason]] = []
        self._log: list[tuple[LiveJob, Placement | None]] = []

    def offer(self, live: LiveJob) -> Placement | Reason:
        """Devices for a job out of what is free in this draft, or why there are none."""
        return self.allocator.offer(live, self.inventory, self.now_s)

    def place(self, live: LiveJob) -> Placement | None:
        """Devices for a job out of what is free in this draft; None if there are none."""
        return self.allocator.place(live, self.inventory, self.now_s)

    def reason(self, live: LiveJob) -> Reason:
        """Why a job that certainly finds no devices in this draft finds none."""
        return self.allocator.reason(live, self.inventory, self.now_s)

    def may_preempt(self, live: LiveJob) -> bool:
        """Whether this plan may stop, move or resize a job that holds devices; the guard decides."""
        if self.guard is OPEN and live.undone <= FREE_LOSSES:
            return True
        until_s = self.guard.protected_until_s(live)
        if until_s <= self.now_s:
            return True
        self.guard_wakeup_s = min(self.guard_wakeup_s, until_s)
        return False

    def assign(self, live: LiveJob, placement: Placement) -> None:
        """Let a job hold these devices."""
        job = live.job
        fault = fault_in(placement, job)
        if fault is not None:
            raise PlanRefused(f"job {job.id}: {fault}")
        if live.placement is not None:
            raise PlanRefused(f"job {job.id}: it holds devices already")
        if live.is_leaving or live.state.is_final or live.phase < Phase.WAITING:
            raise PlanRefused(f"job {job.id}: it can't be placed, it is {live.state.value}")
        if not self.inventory.is_free(placement, job.roles, job.exclusive):
            raise PlanRefused(f"job {job.id}: the devices of its placement are not free")
        self._change(live, placement)

    def assign_offered(self, live: LiveJob, placement: Placement) -> None:
        """Let a job hold devices that the allocator just offered, so that they need no second check."""
        self._change(live, placement)

    def release(self, live: LiveJob) -> None:
        """Let a job hold nothing. One that is being relocated loses its claim on other devices."""
        if live.placement is None:
            raise PlanRefused(f"job {live.job.id}: it holds nothing that could be released")
        self._change(live, None)

    def move(self, live: LiveJob, placement: Placement) -> None:
        """Move a job that runs or is suspended to other devices."""
        mark = self.mark()
        self.release(live)
        try:
            self.assign(live, placement)
        except PlanRefused:
            self.undo(mark)
            raise
        self.moves[live] = None

    def share(self, live: LiveJob, placement: Placement) -> None:
        """Let a job hold another fraction of its devices."""
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
        """Suspend a running job where it is, so that its devices can be given to others."""
        held = live.placement
        if live.phase is Phase.RESUME_RESERVED and live.suspended_on is not None:
            self._change(live, suspended_claim(live.suspended_on))
        elif held is None or live.state is not JobState.RUNNING or live.is_leaving or live.job.exclusive:
            raise PlanRefused(f"job {live.job.id}: it can't be suspended, it is {live.state.value}")
        elif is_suspended_claim(held) or not live.is_settled:
            raise PlanRefused(f"job {live.job.id}: it is being resized, moved or suspended")
        else:
            self._change(live, suspended_claim(held))

    def can_resume(self, live: LiveJob, there: Placement | None = None) -> bool:
        """Whether the devices of a suspended job are free in this draft, or the fraction `there`."""
        if live.state is not JobState.SUSPENDED or live.suspended_on is None or live.is_leaving:
            return False
        if live.placement is None or not is_suspended_claim(live.placement):
            return False
        roles = live.job.roles
        self.inventory.give(live.placement, roles)
        fits = self.inventory.is_free(there or live.suspended_on, roles, back=True)
        self.inventory.take(live.placement, roles)
        return fits

    def resume(self, live: LiveJob, there: Placement | None = None) -> None:
        """Resume a suspended job on its former devices, or with another fraction of them."""
        former = live.suspended_on
        if former is None or not self.can_resume(live, there):
            raise PlanRefused(f"job {live.job.id}: it can't be resumed, it is {live.state.value}")
        if there is not None and not same_devices(there, former):
            raise PlanRefused(f"job {live.job.id}: it is suspended on other devices")
        self._change(live, there or former)

    def lease(self, live: LiveJob, lease: Lease) -> None:
        """Give a job that holds devices in this draft a lease; without another it does nothing after its end."""
        if live.placement is None:
            raise PlanRefused(f"job {live.job.id}: it holds nothing that could be leased")
        self.leases[live] = lease

    def touch(self, live: LiveJob) -> None:
        """Count a job as considered for a change; decisions come in the order in which jobs first were."""
        self.touched.setdefault(live, live.placement)

    def because(self, live: LiveJob, reason: Reason) -> None:
        """Record why a job was passed over; one job stands for all that are interchangeable with it."""
        self.waits.append((live, reason))

    def alters(self, live: LiveJob) -> bool:
        """Whether a job holds something else now than before; what was tried and undone does not count."""
        return live in self.touched and self.touched[live] != live.placement

    def mark(self) -> int:
        """A point to which `undo` can return."""
        return len(self._log)

    def trial(self) -> Trial:
        """A point to which `take_back` can return, as if nothing had been tried."""
        return len(self._log), len(self.touched), self.inventory.grown

    def take_back(self, trial: Trial) -> None:
        """Undo every step since a trial began, and forget which jobs it touched."""
        mark, touched, grown = trial
        self.undo(mark)
        while len(self.touched) > touched:
            self.touched.popitem()
        self.inventory.grown = grown

    def undo(self, mark: int) -> None:
        """Undo every step since the mark."""
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

    def abandon(self) -> None:
        """Undo everything, so that nothing is planned."""
        self.undo(0)
        self.touched.clear()
        self.leases.clear()
        self.moves.clear()
        self.waits.clear()

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
