"""Highest priority first; among equals, submission order."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.core.state.job_record import JobView
from rota.mechanisms.declare import Traits
from rota.mechanisms.ordering.declare import ordering
from rota.mechanisms.ordering.rule import Turn, later


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityParams:
    """`aging` is what an hour of waiting adds to a job's priority, in whole steps of one."""

    aging: float = 0.0

    def __post_init__(self) -> None:
        if not self.aging >= 0:
            raise RotaError(f"aging is {self.aging:g}; it must be 0 or more")


@ordering(
    "priority",
    cites="static priorities with ageing, as in Slurm's multifactor plugin and Kubernetes' PriorityClass",
    preempts=True,
    traits=Traits(
        scheduling_input="priority, arrival order",
        priority="given by the user",
        preemption="yes",
        starvation="possible; none with aging",
        placement="consolidated",
        intrusiveness="checkpoint",
    ),
)
def highest_priority(job: JobView, now_s: float, params: PriorityParams) -> Turn:
    """The highest priority first; waiting can raise it, in steps so that two jobs do not swap every second."""
    per_s = params.aging / 3600.0
    raised = per_s * job.waited_s(now_s)
    steps = math.floor(raised + 1e-9)
    until_s = math.inf
    if per_s and not job.holds:
        until_s = later(now_s, (steps + 1 - raised) / per_s)
    return Turn((-job.job.priority - steps, not job.holds, job.seq), until_s=until_s)
