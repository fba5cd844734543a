"""E-LAS: attained service weighted by the fraction of epochs done; no run times needed.

Real jobs report how far they are (`rota.sdk.steps`); of a simulated job, the fraction of its work counts.

The paper's formula could not be checked (only its abstract was found). This is a reconstruction: with the
fraction e of epochs done, service x (1 - e) / e is the remaining service at the pace so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.core.state.job_record import JobView
from rota.mechanisms.declare import Traits
from rota.mechanisms.ordering.declare import ordering
from rota.mechanisms.ordering.rule import Turn, later

SOONEST_S = 10.0
"""The least time between two looks at what a job reports; reports are read as often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasParams:
    """The assumed number of epochs of a job that does not state it; progress is observed at the end of each epoch."""

    epochs: int = 20

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise RotaError(f"epochs is {self.epochs}; it must be at least 1")


@ordering(
    "e-las",
    cites="Sultana et al., ICPP 2020 (reconstructed)",
    preempts=True,
    traits=Traits(
        prior_knowledge="number of epochs, and how many are done (reported)",
        scheduling_input="attained service, fraction of epochs done",
        dimensions="time and space",
        preemption="yes",
        placement="consolidated",
        intrusiveness="epoch reports, checkpoint",
    ),
)
def epoch_aware_attained_service(job: JobView, now_s: float, params: ElasParams) -> Turn:
    """The least remaining service first, estimated from epochs done; jobs in their first epoch before all others."""
    total = job.job.work
    if job.reported is None and not total:
        return Turn((job.attained_gpu_s(now_s), job.seq))
    until_s = math.inf
    if job.reported is not None:
        epochs_done = int(job.reported * params.epochs + 1e-9)
        if job.progress_rate:  # looked at again when a tenth of the time per epoch has passed
            until_s = later(now_s, max(job.run_s(now_s) / (10 * max(epochs_done, 1)), SOONEST_S))
    else:
        assert total
        done = job.work_done(now_s) / total
        epochs_done = int(done * params.epochs + 1e-9)
        if job.progress_rate and epochs_done + 1 < params.epochs:
            work_left = ((epochs_done + 1) / params.epochs - done) * total
            until_s = now_s + max(work_left / job.progress_rate, 1e-6)
    seen = min(epochs_done / params.epochs, 1.0)
    service = job.attained_gpu_s(now_s)
    memo: tuple[int, float] | None = job.memo
    if memo is None or memo[0] != epochs_done:
        memo = (epochs_done, service * (1 - seen) / seen if seen else 0.0)
    return Turn((memo[1], not job.holds, job.seq), until_s=until_s, memo=memo)
