"""How machines fail, as one value: causes with their rates, the law of the times between failures, and repairs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rota.core.errors import RotaError

UNKNOWN_CAUSE = "node"


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseRate:
    """A cause of node failures and how often it strikes, in failures per 1000 days of one node."""

    name: str
    per_1000_node_days: float

    def __post_init__(self) -> None:
        if not 0 <= self.per_1000_node_days < math.inf:
            raise RotaError(f"the rate of {self.name!r} is {self.per_1000_node_days:g}; it must be 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFaultClass:
    """A class of failures that a job brings with it: its weight among them, and the mean run time until it fails.

    One that `repeats` fails every attempt; the next attempt helps against others.
    """

    name: str
    weight: float
    mean_s: float
    repeats: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureModel:
    """Everything that is random about failures. A preset's name, or `custom`."""

    name: str
    causes: tuple[CauseRate, ...] = ()
    shape: float = 1.0
    """Weibull's shape of the time since the last repair: 1 is exponential, below 1 failures come in bursts."""
    wear: float = 0.0
    """By what fraction of its first rate the failure rate of a node grows in a year."""
    infant: float = 0.0
    """The failure rate right after a repair is higher by this factor of the usual rate."""
    infant_s: float = 259_200.0
    """The time in which that decays to 1/e."""
    rack: float = 0.0
    """The fraction of a node's failures that take its whole rack."""
    lemons: float = 0.0
    """The fraction of nodes that fail `lemon_factor` times as often as others; the mean rate stays."""
    lemon_factor: float = 10.0
    repair_s: float = 86_400.0
    """Mean time to repair, exponentially distributed."""
    detect_s: float = 0.0
    """Time from a failure until it is noticed; jobs stand still meanwhile."""
    proven_s: float = 0.0
    """A repaired node is unproven for so long, times its failures so far: large jobs avoid it. 0: never."""
    spares: int = 0
    """Nodes that take no jobs until others fail."""
    adaptive: bool = False
    """Whether jobs save at Young's interval for their size, and not at the interval that the scenario gives."""
    job_classes: tuple[JobFaultClass, ...] = ()
    job_failures: float = 0.0
    """The fraction of jobs that have a fault of their own."""
    tries: int = 3
    """Attempts of a job with a fault of its own before it has failed."""

    def __post_init__(self) -> None:
        if not 0 < self.shape < math.inf:
            raise RotaError(f"failures: shape is {self.shape:g}; it must be above 0")
        for name in ("wear", "infant", "infant_s", "repair_s", "detect_s", "proven_s"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise RotaError(f"failures: {name} is {value:g}; it must be 0 or more")
        for name in ("rack", "lemons", "job_failures"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise RotaError(f"failures: {name} is {value:g}; it must be a fraction between 0 and 1")
        if self.spares < 0 or self.tries < 1:
            raise RotaError(f"failures: spares is {self.spares}, tries {self.tries}; at least 0 spares and 1 try")
        if not self.lemon_factor >= 1:
            raise RotaError(f"failures: lemon_factor is {self.lemon_factor:g}; it must be 1 or more")

    @property
    def per_1000_node_days(self) -> float:
        """Failures of one node in 1000 days, of all causes."""
        return sum(cause.per_1000_node_days for cause in self.causes)

    @property
    def node_mttf_s(self) -> float:
        """Mean time to failure of one node, without what age and repairs add."""
        rate = self.per_1000_node_days
        return 86_400_000.0 / rate if rate > 0 else math.inf
