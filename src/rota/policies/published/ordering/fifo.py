"""First in, first out: the order of submission, strict or with backfill."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.state.job_record import JobView
from rota.mechanisms.declare import Traits
from rota.mechanisms.ordering.declare import ordering
from rota.mechanisms.ordering.rule import Backfill, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class FifoParams:
    """With `backfill`, later jobs that fit may pass one that does not."""

    backfill: bool = False


@ordering(
    "fifo",
    cites="the baseline of every paper; with backfill=true, the first-fit queue of Gu et al., NSDI 2019",
    backfill=lambda params: Backfill.ANY if params.backfill else Backfill.NONE,
    traits=Traits(starvation="none (strict); possible for large jobs (backfill)", placement="consolidated"),
)
def first_in_first_out(job: JobView, now_s: float, params: FifoParams) -> Turn:
    """The first job submitted runs first."""
    return Turn((job.seq,))
