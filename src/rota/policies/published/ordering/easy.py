"""EASY backfill: submission order, and jobs may pass the first waiting job if they do not delay it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.core.state.job_record import JobView
from rota.mechanisms.declare import Traits
from rota.mechanisms.ordering.declare import ordering
from rota.mechanisms.ordering.rule import Backfill, Planning, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class EasyParams:
    """With the defaults, the first waiting job reserves devices by number, as in the paper.

    With any other value, reservations are of whole nodes, as in Slurm: the first `reserve` waiting jobs (0: all, which
    is conservative backfill) reserve the nodes on which they can start first, if that is within `window_s`. Times are
    rounded down to `resolution_s`; running jobs are taken to end in groups, the first `group_s` long, each further one
    reaching twice as far (0: one by one); jobs pass others at multiples of `interval_s` (0: always); only the first
    `depth` waiting jobs are considered (0: all). With `limits`, simulated jobs are expected to run for as long as their
    users said, not as long as they will. `rota slurm policy` reads all of them from Slurm's configuration.
    """

    reserve: int = 1
    window_s: float = math.inf
    resolution_s: float = 0.0
    interval_s: float = 0.0
    group_s: float = 0.0
    depth: int = 0
    limits: bool = False

    def __post_init__(self) -> None:
        for name in ("reserve", "depth", "resolution_s", "interval_s", "group_s"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise RotaError(f"easy: {name} is {value:g}; it must be a finite number, 0 or more")
        if not self.window_s > 0:
            raise RotaError(f"easy: window_s is {self.window_s:g}; it must be above 0")


def _backfill(params: EasyParams) -> Backfill | Planning:
    if params == EasyParams():
        return Backfill.EASY
    return Planning(
        reserve=params.reserve,
        window_s=params.window_s,
        resolution_s=params.resolution_s,
        interval_s=params.interval_s,
        group_s=params.group_s,
        depth=params.depth,
        limits=params.limits,
    )


@ordering(
    "easy",
    cites="Lifka, JSSPP 1995; with reserve=0, conservative backfill: Mu'alem and Feitelson, TPDS 2001",
    backfill=_backfill,
    traits=Traits(
        prior_knowledge="run time (estimate)",
        scheduling_input="arrival order, expected run time",
        starvation="none: the head has a reservation (possible with a window_s)",
        placement="consolidated",
    ),
)
def easy_backfill(job: JobView, now_s: float, params: EasyParams) -> Turn:
    """Submission order with a reservation for the first waiting job; shorter jobs backfill the gap before it."""
    return Turn((job.seq,))
