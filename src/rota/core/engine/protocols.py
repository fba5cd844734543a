"""What the engine asks of a policy, of an allocator, and the draft in which a plan is written.

A policy never changes the state: it tries things on a `Draft`, which checks each step and can undo it.
What the draft holds in the end is the plan.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from rota.core.messages.reasons import Reason
from rota.core.model.cells import CellPlan
from rota.core.model.job import Job, Locality
from rota.core.model.placement import Placement
from rota.core.model.tenants import TenantPlan
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State

if TYPE_CHECKING:
    from rota.core.engine.draft import Draft


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the engine, the drivers and wrapping policies have to know about a policy."""

    suspends: bool = False
    """Whether it resumes suspended jobs; under any other policy they are stopped and wait."""
    overlaps: bool = False
    """Whether it assigns the devices of a job that only saves its result; otherwise they are free when the job ends."""
    moves_parts: bool = True
    """Whether consolidation may move tasks that hold fractions of devices."""


class Policy(Protocol):
    """What should hold devices. Told of every change, asked for a plan when one may be due."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do beyond starting and stopping jobs. A wrapper passes on those of the policy inside."""

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


class Shortage(Protocol):
    """How many devices a job is short of by count, and how many of those each holder could free.

    All in thousandths of devices. Counts are bounds: a job that is not short may still not fit.
    """

    def milli(self, live: LiveJob, inventory: Inventory) -> int:
        """What a job is short of; 0 when the count suffices."""

    def freed_by(self, holder: LiveJob, live: LiveJob, inventory: Inventory) -> int:
        """What a holder would free at most that the job could use."""


class Allocator(Protocol):
    """Who may use what, and which devices: tenancy, with placement ranking the choices inside it."""

    def refuse(self, job: Job) -> str | None:
        """What about a job can never be had here, beginning with the field and saying the way out; None if nothing."""

    @property
    def ledger(self) -> Ledger | None:
        """Its own books, if it keeps any."""

    def quota_scope(self, live: LiveJob) -> Hashable:
        """A key that is equal for jobs which contend for the same devices as of right: those of one private cluster."""

    def equivalence_key(self, live: LiveJob) -> Hashable:
        """A key that is equal for jobs which are interchangeable here."""

    def stage(self, live: LiveJob, now_s: float) -> tuple[int, float]:
        """How far the job's wishes have relaxed by now, and when they relax further."""

    def offer(self, live: LiveJob, inventory: Inventory, now_s: float) -> Placement | Reason:
        """Devices for a job out of what is free, or why there are none."""

    def displace(self, live: LiveJob, inventory: Inventory, now_s: float) -> Offer | None:
        """Devices for a job at the expense of others whom it may displace whatever the policy's order says."""

    def may_displace(self, live: LiveJob, victim: LiveJob, now_s: float) -> bool:
        """Whether a policy that preempts may take the victim's devices for the job."""

    @property
    def shortage(self) -> Shortage:
        """What a job lacks to start now, and what the policy could free by preemption."""

    @property
    def reservation_shortage(self) -> Shortage:
        """What a job's private cluster lacks to start it, and what comes back to that cluster when jobs end."""


class Placer(Protocol):
    """Which of the free devices to take: ranks the choices within what tenancy allows."""

    def ladder(self, job: Job) -> tuple[tuple[float, Locality], ...]:
        """What the job insists on until it has waited so many seconds, one step after the other; then on nothing."""

    def alike(self, job: Job) -> Hashable:
        """A key that is equal for jobs which are placed in the same way."""

    def find(self, inventory: Inventory, job: Job, insist: Locality | None) -> Placement | None:
        """Devices for all tasks of a job, or None. `insist` is the locality that must hold, if any."""
