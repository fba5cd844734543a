"""The network of a cluster with all that its file says: links, routing, latencies, models and how jobs share it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rota.core.errors import RotaError
from rota.network.calibration import CollectiveTable
from rota.network.demand import IterationDemand
from rota.network.topology import NetworkTopology


class PhaseAlignment(Enum):
    """Which iterations of jobs meet on a link when no mechanism shifts them.

    `ALIGNED` is the worst case: all jobs communicate at the same time. `RANDOM` is what to expect of independent jobs.
    """

    ALIGNED = "aligned"
    RANDOM = "random"


class LinkMechanism(Enum):
    """What divides links between jobs: fair sharing only, Cassini's time shifts, or Crux's paths and priorities."""

    FAIR = "fair"
    CASSINI = "cassini"
    CRUX = "crux"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryInterference:
    """How communication and computing slow each other down in memory (Denis et al., ICPP 2021).

    While they overlap, communication loses up to `on_communication` of its bandwidth, by the memory pressure of the
    computing; computing takes `on_computing` longer.
    """

    on_communication: float = 0.9
    on_computing: float = 0.1256

    def __post_init__(self) -> None:
        if not 0 <= self.on_communication < 1 or not 0 <= self.on_computing < math.inf:
            raise RotaError(
                f"interference: {self.on_communication:g} on communication, {self.on_computing:g} on computing; "
                "the first must be from 0 to below 1, the second 0 or more"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkModel:
    """A network and how to model jobs on it."""

    topology: NetworkTopology
    source: str = "the network"
    ecmp: bool = True
    seed: int = 0
    message_s: float = 0.0
    """Seconds that software adds to every message."""
    efficiency: float = 1.0
    """Fraction of a link's rate that bytes reach."""
    inside: CollectiveTable | None = None
    """Measured all-reduces between devices of one node, which take the place of its links."""
    models: Mapping[str, IterationDemand] = field(default_factory=dict)
    usual: IterationDemand | None = None
    """What a job sends that names no known model; None: nothing."""
    alignment: PhaseAlignment = PhaseAlignment.ALIGNED
    mechanism: LinkMechanism = LinkMechanism.FAIR
    priority_levels: int = 8
    """Priorities that the switches know, under Crux."""
    interference: MemoryInterference = field(default_factory=MemoryInterference)
    interface: str = ""
    """The network interface of nodes that jobs use, as gloo and NCCL name it."""
    adapters: str = ""
    """The InfiniBand adapters that NCCL may use."""

    def __post_init__(self) -> None:
        if not 0 < self.efficiency <= 1:
            raise RotaError(f"efficiency is {self.efficiency:g}; it must be above 0 and at most 1")
        if not 0 <= self.message_s < math.inf:
            raise RotaError(f"message latency is {self.message_s:g} s; it must be 0 or more")
        if self.priority_levels < 1:
            raise RotaError(f"priority_levels is {self.priority_levels}; it must be at least 1")
