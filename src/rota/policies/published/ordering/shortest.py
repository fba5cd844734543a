"""Shortest first: by devices, remaining time, or remaining time x devices."""

from __future__ import annotations

from rota.core.state.job_record import JobView
from rota.mechanisms.declare import Traits
from rota.mechanisms.ordering.declare import ordering
from rota.mechanisms.ordering.rule import Turn

_ORACLE = Traits(
    prior_knowledge="run time",
    scheduling_input="remaining time",
    dimensions="time",
    preemption="yes",
    placement="consolidated",
    intrusiveness="checkpoint",
)


@ordering(
    "fewest-gpus",
    cites="smallest job first, as `sjf` in Gu et al., NSDI 2019",
    preempts=True,
    traits=Traits(
        scheduling_input="requested devices",
        preemption="yes",
        placement="consolidated",
        intrusiveness="checkpoint",
    ),
)
def fewest_gpus(job: JobView, now_s: float) -> Turn:
    """The fewest devices first."""
    return Turn((job.gpus, job.seq))


@ordering("srtf", cites="Schrage, Operations Research 1968", preempts=True, traits=_ORACLE)
def shortest_remaining_time(job: JobView, now_s: float) -> Turn:
    """The shortest remaining time first, which is optimal for mean completion time on one device."""
    pace, until_s = job.pace(now_s)
    return Turn((job.left_s(now_s), job.seq), slope=-pace, until_s=until_s)


@ordering(
    "srsf",
    cites="shortest remaining service first, in Gu et al., NSDI 2019",
    preempts=True,
    traits=Traits(
        prior_knowledge="run time",
        scheduling_input="remaining time x devices",
        dimensions="time and space",
        preemption="yes",
        placement="consolidated",
        intrusiveness="checkpoint",
    ),
)
def shortest_remaining_service(job: JobView, now_s: float) -> Turn:
    """The least remaining time x devices first; ties go to fewer devices, then to the earlier job."""
    gpus = job.job.gpus
    pace, until_s = job.pace(now_s)
    return Turn((job.left_s(now_s) * gpus if gpus else 0.0, gpus, job.seq), slope=-pace * gpus, until_s=until_s)
