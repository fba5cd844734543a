"""Jobs before they have a time: what generators draw first, so that the span can follow from the load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from rota.core.model.job import WHOLE
from rota.traces.assemble import Shape, gang, pod
from rota.traces.workload import Outcome


@dataclass(slots=True, kw_only=True, eq=False)
class Planned:
    """A job that will be submitted `submit_s` after its campaign begins, and once placed, at `submit_s`.

    `work` is what it asks for, `work * ends_at` what it will run. `due_s` is a deadline on the same clock as
    `submit_s`, `after` a job that must succeed first. A pod is one task with all of its devices, or a part of one;
    other jobs have a task for each.
    """

    gpus: float
    work: float
    tenant: str
    user: str = ""
    name: str = ""
    outcome: Outcome = Outcome.SUCCEEDED
    ends_at: float = 1.0
    labels: tuple[tuple[str, str], ...] = ()
    time_limit_s: float | None = None
    after: Planned | None = None
    due_s: float | None = None
    submit_s: float = 0.0
    model: str | None = None
    is_pod: bool = False
    priority: int = 0

    @property
    def shape(self) -> Shape:
        """Its roles."""
        return pod(round(self.gpus * WHOLE)) if self.is_pod else gang(int(self.gpus))

    @property
    def gpu_s(self) -> float:
        """Devices times the seconds that the job will run."""
        return self.gpus * self.work * self.ends_at


Campaign: TypeAlias = list[Planned]
"""Jobs that one person or one program submits as one thing."""

Draw: TypeAlias = Callable[[Random, int], list[Campaign]]
"""Campaigns with so many jobs altogether."""

Place: TypeAlias = Callable[[Random, list[Campaign], float], None]
"""Sets when each job is submitted, within a span of so many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKind:
    """One kind of workload: which jobs there are, and when they come."""

    name: str
    description: str
    draw: Draw
    place: Place


def seconds(value: float) -> float:
    """A duration in whole seconds and at least one, as schedulers record them."""
    return float(max(1, round(value)))


def cut_short(run_s: float, ends_at: float) -> tuple[float, float]:
    """The work of a job that runs `run_s` and ends at about this fraction of it, with the exact fraction."""
    work = seconds(run_s / ends_at)
    return work, min(1.0, run_s / work)
