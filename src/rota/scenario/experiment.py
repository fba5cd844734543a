"""The input of an experiment as one frozen value: a grid of runs over workloads, clusters, loads, seeds and policies.

Files are named, not read. `rota.experiments` runs it; the command line, a YAML file and Python callers make it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rota.core.errors import RotaError
from rota.scenario.window import SteadyWindow

PLAIN = "default"
"""The name of the only variant of an experiment without variants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Every combination of these is one run; all policies run on the same jobs."""

    name: str
    policies: tuple[str, ...]
    traces: tuple[str, ...]
    """Kinds of generated workload, as `NAME[:elastic=F,deadlines=F]`, or trace files."""
    clusters: tuple[str, ...]
    loads: tuple[float | None, ...] = (None,)
    """Offered load as a fraction of the cluster's devices; None leaves the times of a trace file as they are."""
    seeds: tuple[int, ...] = (0,)
    jobs: int | None = None
    """Jobs of each workload; of a trace file, a window of so many consecutive jobs that the seed chooses."""
    window: SteadyWindow = field(default_factory=SteadyWindow)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `rota sim` for all runs, as a scenario file has them."""
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {PLAIN: {}})
    """Named sets of further options, such as speed models, to compare."""
    metrics: tuple[str, ...] = ()
    """The metrics that tables and figures show; the results hold all."""
    own_metrics: tuple[str, ...] = ()
    """Metrics of the user's own, as `FILE.py:FUNCTION`."""
    baseline: str | None = None
    """The policy that others are compared with; None: the first."""

    def __post_init__(self) -> None:
        for what, given in (
            ("policy", self.policies),
            ("trace", self.traces),
            ("cluster", self.clusters),
            ("load", self.loads),
            ("seed", self.seeds),
        ):
            _refuse_empty_or_repeated(what, given)
        for load in self.loads:
            if load is not None and not 0 < load < math.inf:
                raise RotaError(f"load is {load:g}; it must be a number above 0, such as 0.9")
        if self.jobs is not None and self.jobs < 1:
            raise RotaError(f"the number of jobs is {self.jobs}; it must be at least 1")
        if self.baseline is not None and self.baseline not in self.policies:
            raise RotaError(f"baseline {self.baseline!r} is not among the policies: {', '.join(self.policies)}")

    @property
    def reference(self) -> str:
        """The policy that others are compared with."""
        return self.baseline or self.policies[0]


def _refuse_empty_or_repeated(what: str, given: tuple[object, ...]) -> None:
    if not given:
        raise RotaError(f"an experiment needs at least one {what}")
    for index, value in enumerate(given):
        if value in given[:index]:
            raise RotaError(f"{what} {value!r} is given twice")
