"""A trial: one set of parameters, the job that trains with it, and what it has reported."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Value = float | int | str | bool
Params = dict[str, Value]
Point = tuple[int, float]
"""A step and the loss there."""
MOST_POINTS = 200
"""Points of a curve that are kept."""


class TrialState(Enum):
    """Where a trial stands."""

    ACTIVE = "active"
    """Its job waits, runs, or is about to resume."""
    PAUSED = "paused"
    """Its job is held with its progress saved; it may be promoted."""
    STOPPED = "stopped"
    """Ended by the rule."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """Ended by a user, or with its sweep."""

    @property
    def is_over(self) -> bool:
        """Whether its job has ended, or is being cancelled."""
        return self not in (TrialState.ACTIVE, TrialState.PAUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTrial:
    """One trial. Losses are to be minimised; a value to be maximised is negated."""

    number: int
    params: Params
    job_id: str = ""
    state: TrialState = TrialState.ACTIVE
    values: dict[int, float] = field(default_factory=dict)
    """The loss at each mark that it has passed, in order."""
    curve: tuple[Point, ...] = ()
    """Its reports so far, thinned."""
    why: str = ""
    """Why it is in its state."""

    @property
    def loss(self) -> float:
        """Its best loss so far; infinite before its first report."""
        return min((value for _, value in self.curve), default=math.inf)

    @property
    def step(self) -> int:
        """The last step that it reported."""
        return self.curve[-1][0] if self.curve else 0


def thinned(points: Sequence[Point], keep: Sequence[int] = (), most: int = MOST_POINTS) -> tuple[Point, ...]:
    """Some of the points, evenly: the first, the last, the best, and those at the steps to keep, among them."""
    if len(points) <= most:
        return tuple(points)
    marks = set(keep)
    best = min(range(len(points)), key=lambda index: points[index][1])
    every = -(-len(points) // (most // 2))
    last = len(points) - 1
    return tuple(
        point for index, point in enumerate(points) if index % every == 0 or index in (best, last) or point[0] in marks
    )


def clean(value: Any) -> float:
    """A reported loss; one that is no number any more is the worst there is."""
    number = float(value)
    return number if math.isfinite(number) else math.inf
