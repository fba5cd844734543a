"""First in, first out: the order of submission, strictly or with gaps filled."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.state.job_record import JobView
from rota.mechanisms.declare import Traits
from rota.mechanisms.ordering.declare import ordering
from rota.mechanisms.ordering.rule import Backfill, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class FifoParams:
    """With `backfill`, a job that does not fit is passed by later ones that do."""

    backfill: bool = False


@ordering(
    "fifo",
    cites="the baseline of every paper; with backfill=true, the first-fit queue of Gu et al., NSDI 2019",
    backfill=lambda params: Backfill.ANY if params.backfill else Backfill.NONE,
    traits=Traits(starvation="none (strict); possible for large jobs (backfill)", placement="consolidated"),
)
def first_in_first_out(job: JobView, now_s: float, params: FifoParams) -> Turn:
    """Who came first runs first."""
    return Turn((job.seq,))
