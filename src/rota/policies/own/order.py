"""The order of jobs under Rota's own policy: by level, running jobs before waiting ones, then by submission."""

from __future__ import annotations

import math

from rota.core.state.job_record import JobView
from rota.mechanisms.declare import Traits
from rota.mechanisms.ordering.declare import ordering
from rota.mechanisms.ordering.rule import Turn, later
from rota.policies.own.levels import Levels
from rota.policies.own.params import RotaParams


@ordering(
    "rota",
    cites="Rota's own; levels as in multi-level feedback (Kalyanasundaram and Pruhs, J. ACM 2003)",
    preempts=True,
    traits=Traits(
        scheduling_input="attained service (time x devices)",
        dimensions="time and space",
        priority="by level of attained service",
        preemption="yes",
        starvation="no: bounded",
        placement="consolidated",
        intrusiveness="checkpoint",
    ),
)
class rota:  # noqa: N801 - named as the policy that it stands for
    """The lowest level of attained service first, levels growing geometrically; running jobs keep their devices."""

    def __init__(self, params: RotaParams) -> None:
        self._levels = Levels(params.base_gpu_s, params.growth)

    def turn(self, job: JobView, now_s: float) -> Turn:
        """The job's place in the order."""
        attained = job.attained_gpu_s(now_s)
        level = self._levels.of(attained)
        until_s = math.inf
        if job.progress_rate and job.gpus:
            until_s = later(now_s, (self._levels.limit(level) - attained) / job.gpus)
        return Turn((level, not job.holds, job.seq), until_s=until_s)
