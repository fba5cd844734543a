"""The part of a run that is measured: without the filling of an empty cluster and without its drain."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rota.core.errors import RotaError


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim:
    """What is left out at one end of a run: a number of jobs, a fraction of the jobs, or a length of time."""

    jobs: int = 0
    fraction: float = 0.0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.jobs < 0:
            raise RotaError(f"{self.jobs} jobs can't be left out; it must be 0 or more")
        if not 0 <= self.fraction < 1:
            raise RotaError(f"{self.fraction:.0%} of the jobs can't be left out; it must be below 100%")
        if not 0 <= self.seconds < math.inf:
            raise RotaError(f"{self.seconds:g} s can't be left out; it must be a finite time, 0 or more")

    def __bool__(self) -> bool:
        return bool(self.jobs or self.fraction or self.seconds)

    def __str__(self) -> str:
        if self.fraction:
            return f"{100 * self.fraction:g}%"
        return f"{self.jobs} jobs" if self.jobs else f"{self.seconds:g}s"

    def of(self, jobs: int) -> int:
        """How many of so many jobs are left out by count or fraction."""
        return self.jobs if self.jobs else int(self.fraction * jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyWindow:
    """What is left out before and after the measured part; nothing by default."""

    warm_up: Trim = field(default_factory=Trim)
    cool_down: Trim = field(default_factory=Trim)

    def __bool__(self) -> bool:
        return bool(self.warm_up) or bool(self.cool_down)

    def __str__(self) -> str:
        return f"warm-up {self.warm_up}, cool-down {self.cool_down}" if self else "the whole run"
