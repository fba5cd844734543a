"""The parameters of Rota's own policy: one set for all workloads, each ingredient with its own switch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rota.core.errors import RotaError


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaParams:
    """The first level ends at `base_gpu_s` device-seconds, each further level at `growth` times the last limit."""

    base_gpu_s: float = 600.0
    growth: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.base_gpu_s < math.inf:
            raise RotaError(f"base_gpu_s is {self.base_gpu_s:g}; it must be a number above 0")
        if not 1 < self.growth < math.inf:
            raise RotaError(f"growth is {self.growth:g}; it must be a number above 1")
