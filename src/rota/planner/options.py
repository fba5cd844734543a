"""What a caller may ask of a planner beyond the problem; each planner uses what concerns it."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.planner.plan import PlanObjective


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
        if self.time_limit_s <= 0:
            raise RotaError(f"a time limit of {self.time_limit_s:g} s; it must be more than 0")
        if self.coarsen_to < 2:
            raise RotaError(f"coarsen_to={self.coarsen_to}; at least 2 groups are needed")
        if self.deadline_ms is not None and self.deadline_ms <= 0:
            raise RotaError(f"a deadline of {self.deadline_ms:g} ms; it must be more than 0")


DEFAULTS = PlannerOptions()
