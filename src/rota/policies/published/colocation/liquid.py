"""Liquid: placed by network cost, one by one or in batches; devices shared by predicted use (Gu et al., TPDS 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rota.core.engine.protocols import Allocator, Policy
from rota.core.model.job import WHOLE, Job
from rota.core.state.job_record import JobView, LiveJob
from rota.mechanisms.colocation.declare import sharing
from rota.mechanisms.declare import NEVER_STOPS, SHARES, DeclaredPolicy, Knowledge, Traits
from rota.mechanisms.network.batch_placement import BatchPlacement
from rota.mechanisms.network.genetic import Effort
from rota.mechanisms.ordering.list_scheduler import ListScheduler
from rota.mechanisms.ordering.rule import Backfill, SimpleRule, Turn
from rota.perf.speed.network import weighting
from rota.policies.published.colocation.horus import Horus, HorusParams, lacks_pairs_under

_CITES = "Gu et al., TPDS 2022"
USUAL_BYTES = 8 << 30
"""Device memory of a job that does not say how much it needs, and of which nothing was learned."""
_TRAITS = Traits(
    prior_knowledge="traffic of tasks; model, from which utilisation is predicted",
    scheduling_input="arrival order, network topology, predicted utilisation",
    placement="near by network cost, packed",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiquidParams(HorusParams):
    """Jobs of one device share it, at most `most` of them, while their predicted utilisations are at most `limit`.

    With `overlap` a job starts to load while the one before it on its devices saves. `h` is how far nodes are, as of
    the placement.
    """

    overlap: bool = True
    h: str = "levels"

    def __post_init__(self) -> None:
        HorusParams.__post_init__(self)
        weighting(self.h)


def _nearby(params: LiquidParams | LiquidBatchParams) -> str:
    """The placement that goes by the same distances."""
    return "liquid" if params.h == "levels" else f"liquid:h={params.h}"


class Liquid(Horus):
    """First in first out; jobs of one device that find none free share one, if use and memory allow."""

    def __init__(self, params: LiquidParams, knowledge: Knowledge) -> None:
        super().__init__(params, knowledge)
        self.overlaps = params.overlap

    def shares(self, job: Job) -> bool:
        """Single tasks with one whole device."""
        return super().shares(job) and len(job.roles) == 1 and job.tasks == 1 and job.gpu_milli == WHOLE

    def has_room(self, live: LiveJob, hosts: Sequence[LiveJob], memory_bytes: int | None) -> bool:
        """Whether the device's memory holds all, those with the usual amount who do not say how much they need."""
        needs = [each.job.roles[0].device_memory_bytes or USUAL_BYTES for each in (*hosts, live)]
        return memory_bytes is None or sum(needs) <= memory_bytes


liquid = replace(
    sharing(
        "liquid",
        Liquid,
        cites=_CITES,
        summary="First in first out, each task where it adds least traffic; jobs of one device share by predicted use.",
        params=LiquidParams,
        placement="liquid",
        traits=_TRAITS,
        predicts_use=True,
        emits=SHARES,
        remarks=lacks_pairs_under,
        packs=True,
    ),
    places=_nearby,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiquidBatchParams:
    """`h` is how far nodes are, as of the placement; a search ends after `limit_s` seconds or `work` tasks touched.

    With `overlap` a job starts to load while the one before it on its devices saves.
    """

    h: str = "levels"
    limit_s: float = 30.0
    work: int = 90_000
    overlap: bool = True

    def __post_init__(self) -> None:
        weighting(self.h)
        Effort(limit_s=self.limit_s, work=self.work)


def _first_come(job: JobView, now_s: float) -> Turn:
    return Turn((job.seq,))


def _batch(params: LiquidBatchParams, allocator: Allocator, knowledge: Knowledge) -> Policy:
    order = ListScheduler(SimpleRule(of=_first_come, backfill=Backfill.ANY, preempts=False), allocator)
    effort = Effort(limit_s=params.limit_s, work=params.work)
    return BatchPlacement(order, weighting(params.h), effort, knowledge.seed, params.overlap)


liquid_batch = DeclaredPolicy(
    name="liquid-batch",
    cites=_CITES,
    summary="First in first out; jobs that start together are placed together, by a grouping genetic algorithm.",
    traits=replace(
        _TRAITS,
        prior_knowledge="traffic of tasks",
        scheduling_input="arrival order, network topology",
        placement="near by network cost",
    ),
    params=LiquidBatchParams,
    placement="liquid",
    places=_nearby,
    make=_batch,
    whole_cluster=True,
    emits=NEVER_STOPS,
)
