"""The input of a simulation as one frozen value.

The command line, Python callers, the what-if of a manager, the journal's header and the report share it. Files are
named, not read: `rota.drivers.simulator.load` reads them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.perf.profiles.partial_profiles import EstimateSpec
from rota.perf.speed.model import Costs, SpeedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """Mean times to failure and to repair of a node, both exponentially distributed."""

    mean_time_to_failure_s: float
    mean_time_to_repair_s: float = 3600.0

    def __post_init__(self) -> None:
        for amount, what in (
            (self.mean_time_to_failure_s, "mean time to failure"),
            (self.mean_time_to_repair_s, "mean time to repair"),
        ):
            if not 0 < amount < math.inf:
                raise RotaError(f"{what} is {amount:g}; it must be a number of seconds above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChange:
    """The cluster that replaces the present one at a moment."""

    at_s: float
    cluster: Cluster | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that determines a run. A cluster is a value, or a specification that is still to be read."""

    policies: tuple[str, ...] = ()
    """The policies to compare, as `NAME[:key=value,...]`; a journal has exactly one."""
    placement: str | None = None
    """None: each policy's own."""
    tenancy: str = "none"
    cluster: Cluster | str | None = None
    """None: the cluster that comes with the trace."""
    changes: tuple[ClusterChange, ...] = ()
    trace: str | None = None
    """The workload's file; None for a workload that is given as a value."""
    format: str | None = None
    """None: recognised by content."""
    jobs: int | None = None
    """How many jobs of the trace to take; None: all."""
    skip_bad_lines: bool = False
    skip_oversized: bool = False
    profiles: str | None = None
    """A file, `catalogue` or `none`; None: the catalogue where it knows the jobs."""
    profiles_sha256: str | None = None
    """The digest of that file, where a replay must find the same one."""
    reference: str | None = None
    """The device type in whose seconds work is counted."""
    estimate: EstimateSpec | None = None
    """How much of the profiles policies know; None: all."""
    speed: SpeedModel = field(default_factory=SpeedModel)
    """The options of the speed model; its profiles are those named above."""
    costs: Costs = field(default_factory=Costs)
    network: str | None = None
    """The network file, as `FILE[:between=NAME,...]`; None: that of the cluster file, else links do not matter."""
    faults: str | None = None
    """The file of node failures and repairs."""
    fault_rates: FaultRates | None = None
    failures: str | None = None
    """How machines fail: a preset with parameters, as `rsc-1:spares=4`."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise RotaError(f"the number of jobs is {self.jobs}; it must be at least 1")
        for index, policy in enumerate(self.policies):
            if policy in self.policies[:index]:
                raise RotaError(f"policy {policy!r} is given twice")
        for change in self.changes:
            if not 0 <= change.at_s < math.inf:
                raise RotaError(f"a change of the cluster is at {change.at_s:g} s; it must be 0 or more")

    @property
    def policy(self) -> str:
        """The only policy of a scenario that is one run."""
        if len(self.policies) != 1:
            raise RotaError(f"a run has one policy; this scenario has {len(self.policies)}")
        return self.policies[0]

    def under(self, policy: str) -> Scenario:
        """The run of one policy."""
        return replace(self, policies=(policy,))
