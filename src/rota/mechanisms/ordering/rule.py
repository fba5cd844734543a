"""What ordering rules are asked and answer: a sort key per job, and when that key changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from rota.core.state.decayed_usage import Past
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import JobView
from rota.mechanisms.ordering.turn import Turn as Turn
from rota.mechanisms.ordering.turn import later as later


class Backfill(Enum):
    """Which jobs may pass one that does not fit."""

    NONE = "none"
    ANY = "any"
    EASY = "easy"
    PLAN = "plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """What backfill with a plan of nodes reserves, and when."""

    reserve: int = 0
    """How many waiting jobs get a reservation at most; 0: every one."""
    window_s: float = math.inf
    """A job that can't start so soon gets none."""
    resolution_s: float = 0.0
    """Reservations begin and end at multiples of this."""
    interval_s: float = 0.0
    """Jobs pass others at multiples of this only; 0: at every event."""
    group_s: float = 0.0
    """Running jobs count as ended in groups: those that end until so long after the first, until twice as long, and so
    on; 0: one by one."""
    depth: int = 0
    """How many waiting jobs are considered at most; 0: every one."""
    limits: bool = False
    """Whether jobs are expected to run for as long as their users said, where the true run time is known too."""


class Groups(Protocol):
    """Fairness between groups of jobs: the rank of its group comes before a job's own key."""

    def open(self, past: dict[str, Past]) -> None:
        """Start without holders; `past` is the state's past usage, to be read and updated."""

    def of(self, job: JobView) -> Hashable:
        """The group that a job belongs to."""

    def share(self, job: JobView, inventory: Inventory) -> tuple[float, ...]:
        """What a job adds to the share of its group while it holds devices."""

    def change(self, group: Hashable, share: tuple[float, ...], sign: int, now_s: float, *, resumes: bool) -> None:
        """Add (sign 1) or remove (sign -1) a job's share; `resumes` if it held the share before this policy began."""

    def rank(self, group: Hashable, now_s: float) -> tuple[float, ...]:
        """The sort key of a group: smallest first."""


class OrderingRule(Protocol):
    """An ordering policy with its parameters bound."""

    @property
    def backfill(self) -> Backfill:
        """Which jobs may pass one that does not fit."""

    @property
    def planning(self) -> Planning | None:
        """What is reserved, for `Backfill.PLAN`."""

    @property
    def preempts(self) -> bool:
        """Whether a job may take devices from one further down the order."""

    @property
    def groups(self) -> Groups | None:
        """The groups to be fair between; None for no groups."""

    def turn(self, job: JobView, now_s: float) -> Turn:
        """The job's place in the order now."""

    def ended(self, job: JobView, now_s: float) -> bool:
        """Learn from a job that ended; return whether all keys have to be computed again."""

    @property
    def memory(self) -> Any:
        """What the rule has learned, as a serialisable value."""


@runtime_checkable
class SeesEnds(Protocol):
    """A rule that is told of jobs that end."""

    def ended(self, job: JobView, now_s: float) -> bool:
        """Learn from a job that ended; return whether all keys have to be computed again."""


class Learner(SeesEnds, Protocol):
    """A rule that learns from jobs that end."""

    @property
    def memory(self) -> Any:
        """What it has learned, as a serialisable value."""


@dataclass(slots=True)
class SimpleRule:
    """A rule made of one function and, where it learns, of a learner."""

    of: Callable[[JobView, float], Turn]
    backfill: Backfill = Backfill.ANY
    preempts: bool = False
    groups: Groups | None = None
    learner: Learner | None = None
    planning: Planning | None = None

    def turn(self, job: JobView, now_s: float) -> Turn:
        """The job's place in the order now."""
        return self.of(job, now_s)

    def ended(self, job: JobView, now_s: float) -> bool:
        """Learn from a job that ended; return whether all keys have to be computed again."""
        return self.learner is not None and self.learner.ended(job, now_s)

    @property
    def memory(self) -> Any:
        """What the learner has learned."""
        return None if self.learner is None else self.learner.memory
