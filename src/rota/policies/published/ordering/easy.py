"""EASY backfill: submission order, and jobs may pass the first waiting job if they do not delay it."""

from __future__ import annotations

from rota.core.state.job_record import JobView
from rota.mechanisms.declare import Traits
from rota.mechanisms.ordering.declare import ordering
from rota.mechanisms.ordering.rule import Backfill, Turn


@ordering(
    "easy",
    cites="Lifka, JSSPP 1995",
    backfill=Backfill.EASY,
    traits=Traits(
        prior_knowledge="run time (estimate)",
        scheduling_input="arrival order, expected run time",
        starvation="none: the head has a reservation",
        placement="consolidated",
    ),
)
def easy_backfill(job: JobView, now_s: float) -> Turn:
    """Submission order with a reservation for the first waiting job; shorter jobs backfill the gap before it."""
    return Turn((job.seq,))
