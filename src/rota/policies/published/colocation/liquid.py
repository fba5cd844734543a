"""Liquid: placement by network cost, singly or in batches; device sharing by predicted utilisation.

Gu et al., TPDS 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rota.core.engine.protocols import Allocator, Policy
from rota.core.model.job import WHOLE, Job
from rota.core.state.job_record import JobView, LiveJob
from rota.mechanisms.colocation.declare import colocation
from rota.mechanisms.declare import NEVER_STOPS, SHARES, DeclaredPolicy, Knowledge, Traits
from rota.mechanisms.network.batch_placement import BatchPlacement
from rota.mechanisms.network.genetic import SearchBudget
from rota.mechanisms.ordering.list_scheduler import ListScheduler
from rota.mechanisms.ordering.rule import Backfill, SimpleRule, Turn
from rota.perf.speed.network import weighting
from rota.policies.published.colocation.horus import Horus, HorusParams, lacks_pairs_under

_CITES = "Gu et al., TPDS 2022"
USUAL_BYTES = 8 << 30
"""Device memory assumed for a job that does not request any and of which none was learned."""
_TRAITS = Traits(
    prior_knowledge="traffic of tasks; model, from which utilisation is predicted",
    scheduling_input="arrival order, network topology, predicted utilisation",
    placement="lowest network cost, packed",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiquidParams(HorusParams):
    """At most `most` jobs of one device share it, while the sum of their predicted utilisations is at most `limit`.

    With `overlap`, a job loads its data while its predecessor on the same devices still saves a checkpoint. `h` is the
    distance between nodes, as of the placement `liquid`.
    """

    overlap: bool = True
    h: str = "levels"

    def __post_init__(self) -> None:
        HorusParams.__post_init__(self)
        weighting(self.h)


def _placement(params: LiquidParams | LiquidBatchParams) -> str:
    """Return the placement with the same distances."""
    return "liquid" if params.h == "levels" else f"liquid:h={params.h}"


class Liquid(Horus):
    """First in first out; jobs of one device that find none free share one if utilisation and memory allow it."""

    def __init__(self, params: LiquidParams, knowledge: Knowledge) -> None:
        super().__init__(params, knowledge)
        self.overlaps = params.overlap

    def is_shareable(self, job: Job) -> bool:
        """Jobs of one task on one whole device."""
        return super().is_shareable(job) and len(job.roles) == 1 and job.tasks == 1 and job.gpu_milli == WHOLE

    def fits_memory(self, live: LiveJob, hosts: Sequence[LiveJob], memory_bytes: int | None) -> bool:
        """Return whether a device has memory for all jobs; those that request none count `USUAL_BYTES`."""
        needs = [each.job.roles[0].device_memory_bytes or USUAL_BYTES for each in (*hosts, live)]
        return memory_bytes is None or sum(needs) <= memory_bytes


liquid = replace(
    colocation(
        "liquid",
        Liquid,
        cites=_CITES,
        summary="First in first out at the least network cost; jobs of one device share it by predicted utilisation.",
        params=LiquidParams,
        placement="liquid",
        traits=_TRAITS,
        predicts_use=True,
        emits=SHARES,
        remarks=lacks_pairs_under,
        packs=True,
    ),
    places=_placement,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiquidBatchParams:
    """Distances `h` as of the placement `liquid`; the genetic search ends after `work` task placements.

    With `overlap`, a job loads its data while its predecessor on the same devices still saves a checkpoint.
    """

    h: str = "levels"
    work: int = 90_000
    overlap: bool = True

    def __post_init__(self) -> None:
        weighting(self.h)
        SearchBudget(work=self.work)


def _first_come(job: JobView, now_s: float) -> Turn:
    return Turn((job.seq,))


def _batch(params: LiquidBatchParams, allocator: Allocator, knowledge: Knowledge) -> Policy:
    order = ListScheduler(SimpleRule(of=_first_come, backfill=Backfill.ANY, preempts=False), allocator)
    return BatchPlacement(order, weighting(params.h), SearchBudget(work=params.work), knowledge.seed, params.overlap)


liquid_batch = DeclaredPolicy(
    name="liquid-batch",
    cites=_CITES,
    summary="First in first out; jobs that start together are placed together, by a grouping genetic algorithm.",
    traits=replace(
        _TRAITS,
        prior_knowledge="traffic of tasks",
        scheduling_input="arrival order, network topology",
        placement="lowest network cost",
    ),
    params=LiquidBatchParams,
    placement="liquid",
    places=_placement,
    make=_batch,
    whole_cluster=True,
    emits=NEVER_STOPS,
    draws=True,
)
