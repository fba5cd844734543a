"""What a caller may ask of a planner beyond the problem; each planner uses what concerns it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.planner.plan import PlanObjective

MOST_MICRO_BATCHES = 4096
"""A step is simulated pass by pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerOptions:
    """Settings of a search: what to make small, how long to look, and the pipeline's micro-batches."""

    objective: PlanObjective | None = None
    micro_batches: int = 8
    time_limit_s: float = 10.0
    seed: int = 0
    coarsen_to: int = 24
    """Operators are put together until at most so many groups are left, for planners that solve a program."""
    deadline_ms: float | None = None

    def __post_init__(self) -> None:
        if self.micro_batches < 1:
            raise RotaError(f"{self.micro_batches} micro-batches; at least 1 is needed")
        if self.micro_batches > MOST_MICRO_BATCHES:
            raise RotaError(f"{self.micro_batches} micro-batches; a step has at most {MOST_MICRO_BATCHES}, give fewer")
        if not 0 < self.time_limit_s < math.inf:
            raise RotaError(f"a time limit of {self.time_limit_s:g} s; it must be a number above 0")
        if self.coarsen_to < 2:
            raise RotaError(f"coarsen_to={self.coarsen_to}; at least 2 groups are needed")
        if self.deadline_ms is not None and not 0 < self.deadline_ms < math.inf:
            raise RotaError(f"a deadline of {self.deadline_ms:g} ms; it must be a number above 0")


DEFAULTS = PlannerOptions()
