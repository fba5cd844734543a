"""The shape of an ordering policy: a sort key per job, and the moment at which that key changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from rota.core.state.decayed_usage import Past
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import JobView


class Turn(NamedTuple):
    """A job's place in the order: smallest key first.

    Keys are tuples of numbers that end in the job's `seq`, so that the order is total. With a `slope`, the
    first number grows by that much a second (srtf: -1 while the job runs), so that nobody has to be asked
    again only because time passed. `until_s` is when to ask again; `memo` comes back as `job.memo` then.
    """

    key: tuple[float, ...]
    slope: float = 0.0
    until_s: float = math.inf
    memo: Any = None


def later(now_s: float, seconds: float) -> float:
    """So many seconds from now, but never now itself, however coarse the clock."""
    return max(now_s + seconds, math.nextafter(now_s, math.inf))


class Backfill(Enum):
    """What may pass a job that does not fit."""

    NONE = "none"
    ANY = "any"
    EASY = "easy"


class Groups(Protocol):
    """Fairness between groups of jobs: whose group comes first matters more than the job's own key."""

    def open(self, past: dict[str, Past]) -> None:
        """Nobody holds anything, as far as is known; `past` is the state's, to be read and kept up to date."""

    def of(self, job: JobView) -> Hashable:
        """The group that a job belongs to."""

    def share(self, job: JobView, inventory: Inventory) -> tuple[float, ...]:
        """What a job of its group holds."""

    def change(self, group: Hashable, share: tuple[float, ...], sign: int, now_s: float, *, resumes: bool) -> None:
        """A group's job came to hold its share, or left it; `resumes`: it was found holding it."""

    def rank(self, group: Hashable, now_s: float) -> tuple[float, ...]:
        """A group's place in the order: smallest first."""


class OrderingRule(Protocol):
    """An ordering policy with its parameters bound."""

    @property
    def backfill(self) -> Backfill:
        """What may pass a job that does not fit."""

    @property
    def preempts(self) -> bool:
        """Whether a job may take devices from one further down the order."""

    @property
    def groups(self) -> Groups | None:
        """Between which groups of jobs to be fair, if between any."""

    def turn(self, job: JobView, now_s: float) -> Turn:
        """The job's place in the order now."""

    def ended(self, job: JobView, now_s: float) -> bool:
        """A job ended; whether all keys have to be asked for anew because of what was learned."""

    @property
    def memory(self) -> Any:
        """What the rule has learned, as a serialisable value."""


class Learner(Protocol):
    """A rule that learns from jobs that end."""

    @property
    def memory(self) -> Any:
        """What it has learned, as a serialisable value."""

    def ended(self, job: JobView, now_s: float) -> bool:
        """A job ended; whether every key has to be asked for anew."""


@dataclass(slots=True)
class SimpleRule:
    """A rule made of one function, and of what learns for it where something does."""

    of: Callable[[JobView, float], Turn]
    backfill: Backfill = Backfill.ANY
    preempts: bool = False
    groups: Groups | None = None
    learner: Learner | None = None

    def turn(self, job: JobView, now_s: float) -> Turn:
        """The job's place in the order now."""
        return self.of(job, now_s)

    def ended(self, job: JobView, now_s: float) -> bool:
        """A job ended; whether all keys have to be asked for anew because of what was learned."""
        return self.learner is not None and self.learner.ended(job, now_s)

    @property
    def memory(self) -> Any:
        """What was learned."""
        return None if self.learner is None else self.learner.memory
