"""The protocols between the engine and policies, allocators and placements.

A policy never changes the state: it tries things on a `Draft`, which checks each step and can undo it.
What the draft holds in the end is the plan.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
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


class Changes:
    """What events changed since the policy was last notified."""

    __slots__ = ("arrived", "freed", "lapsed", "left", "shrunk", "started")

    def __init__(self, *, arrived: Iterable[LiveJob] = (), freed: bool = False) -> None:
        self.arrived = list(arrived)
        """Jobs that now wait for devices: new, released, preempted, interrupted, or with dependencies met."""
        self.left: list[LiveJob] = []
        """Jobs that neither wait nor hold devices any more: ended, cancelled, held, being stopped."""
        self.started: list[LiveJob] = []
        """Jobs that hold devices and whose speed, size or start became known."""
        self.lapsed: list[LiveJob] = []
        """Jobs that hold devices and whose lease is over."""
        self.freed = freed
        """Devices became available that were not before."""
        self.shrunk = False
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
    asks_guard: bool = False
    """Whether it stops, moves or resizes no job without asking `Draft.may_preempt`."""
    spares_others: bool = False
    """Whether it stops no job in favour of one whose `preempts` is false."""
    explains_turns: bool = False
    """Whether `explain` also says why a job is suspended."""


class Policy(Protocol):
    """Decides which jobs hold devices. Notified of every change, asked for a plan when one may be due."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do beyond starting and stopping jobs. A wrapper passes on those of the policy inside."""

    @property
    def wakeup_s(self) -> float:
        """When it has to be asked for a plan even without an event."""

    def note(self, changes: Changes, now_s: float) -> None:
        """Update indexes; decide nothing yet."""

    def plan(self, draft: Draft) -> None:
        """Write into the draft what should change."""

    def explain(self, waiting: LiveJob, draft: Draft) -> Reason:
        """Why a job that waits for devices was passed over, by the code that does it."""

    def adopt(self, state: State) -> None:
        """Rebuild all indexes from a state that it did not follow from the start (after a fork or a restart).

        `state.memory` is what the former policy remembered, which may have been another one, or none.
        """

    @property
    def memory(self) -> Any:
        """What it must remember beyond the jobs' memos, as a value that JSON can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Devices for a job, and the jobs that have to leave them first."""

    placement: Placement
    victims: tuple[LiveJob, ...]


class ClaimFollower(Protocol):
    """Follows every claim on devices, in drafts too."""

    def adopt(self, state: State) -> None:
        """Take in the claims of a state that it did not follow from the start."""

    def moved(self, live: LiveJob, before: Placement | None, after: Placement | None, *, undo: bool) -> None:
        """A job's claim changed; `undo`: because a draft undoes what it tried."""


class Ledger(ClaimFollower, Protocol):
    """An allocator's own accounts."""

    def node_turned(self, index: int, inventory: Inventory) -> None:
        """A node became usable or unusable; it may be new."""

    def promise(self, cells: CellPlan | None, tenants: TenantPlan | None, inventory: Inventory) -> None:
        """Replace the guarantees; the accounts are empty until `adopt`. A refusal changes nothing."""

    def could_hold(self, live: LiveJob) -> bool:
        """Whether the guarantees could hold a job if no other job were there."""

    def keeps_promise(self, live: LiveJob) -> bool:
        """Whether a job that asks for a guarantee has one: it holds its tenant's own devices, or waits for them."""

    @property
    def wakeup_s(self) -> float:
        """When a waiting job may be given what it was refused, without any event."""

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
    """Tenancy: which devices a job may use. Placement ranks the choices within that."""

    def refuse(self, job: Job) -> str | None:
        """Why a job can never run here, beginning with the field and ending with the way out; None if it can."""

    @property
    def ledger(self) -> Ledger | None:
        """Its own accounts, if it keeps any."""

    @property
    def has_guarantees(self) -> bool:
        """Whether tenants have devices guaranteed, so that not every job may use or free every device."""

    def quota_scope(self, live: LiveJob) -> Hashable:
        """A key that is equal for jobs that contend for the same guarantee: those of one private cluster."""

    def equivalence_key(self, live: LiveJob) -> Hashable:
        """A key that is equal for jobs that are interchangeable to the allocator."""

    def stage(self, live: LiveJob, now_s: float) -> tuple[int, float]:
        """How far the job's locality has relaxed by now, and when it relaxes further."""

    def offer(self, live: LiveJob, inventory: Inventory, now_s: float) -> Placement | Reason:
        """Devices for a job out of what is free, or why there are none."""

    def place(self, live: LiveJob, inventory: Inventory, now_s: float) -> Placement | None:
        """Devices for a job out of what is free; None if there are none."""

    def reason(self, live: LiveJob, inventory: Inventory, now_s: float) -> Reason:
        """Why there are no devices for a job that certainly finds none. Asked only if refusals of it are kept."""

    def displace(self, live: LiveJob, inventory: Inventory, now_s: float) -> Offer | None:
        """Devices for a job held by others that its guarantee displaces, whatever the policy's order."""

    def may_displace(self, live: LiveJob, victim: LiveJob, now_s: float) -> bool:
        """Whether a policy may preempt the victim for the job."""

    def keeps_refusal(self, job: Job) -> bool:
        """Whether a job that was refused stays so until some node, where more became available, has room for a task."""

    @property
    def shortage(self) -> Shortage:
        """What a job lacks to start now, and what the policy could free by preemption."""

    @property
    def reservation_shortage(self) -> Shortage:
        """What a job's private cluster lacks to start it, and what comes back to that cluster when jobs end."""


class Placer(Protocol):
    """Which of the free devices to take: ranks the choices within what tenancy allows."""

    @property
    def neighbours(self) -> ClaimFollower | None:
        """What knows which jobs hold which devices, for a placement that depends on that."""

    def ladder(self, job: Job, ran_s: float = 0.0) -> tuple[tuple[float, Locality], ...]:
        """The localities that a job which has run so long requires, each until it has waited so many seconds."""

    def alike(self, job: Job) -> Hashable:
        """A key that is equal for jobs that are placed in the same way."""

    def keeps_refusal(self, job: Job) -> bool:
        """Whether a job that finds no devices finds some only after a node gets room for a task of it."""

    def find(self, inventory: Inventory, job: Job, insist: Locality | None) -> Placement | None:
        """Devices for all tasks of a job, or None. `insist` is the locality that must hold, if any."""
