"""What a declared policy may offer to commands and to the manager beyond scheduling."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rota.core.engine.protocols import Policy
from rota.core.model.job import DeviceType, Job
from rota.perf.speed.model import SpeedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationInput:
    """What a simulation is about to run: its jobs, the device types of its cluster, and the speeds of jobs."""

    jobs: Sequence[Job]
    device_types: Collection[DeviceType]
    speed: SpeedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainingPlan:
    """How a manager improves the weights of a learned policy."""

    weights: Path
    """Those in use."""
    every_s: float
    """How often it tries; 0: never."""
    fewest: int
    """How many speeds it must have seen first."""


class RetrainedPolicy(Protocol):
    """The weights of a learned policy."""

    def plan(self, params: Any) -> RetrainingPlan:
        """Return the plan that the policy's parameters ask for."""

    def check(self, weights: Path) -> None:
        """Raise a `RotaError` if a file does not hold usable weights."""

    def options_with(self, options: str, weights: Path) -> str:
        """Return the policy's options with these weights in place of those they name."""

    def swap(self, policy: Policy, params: Any) -> Callable[[], None]:
        """Load the weights that the parameters name; return what lets the built policy use them."""
