"""The planners of parallel training by name, with what each answers in one form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rota.core.errors import RotaError, did_you_mean
from rota.planner.parallel.deployment import plan_fields
from rota.planner.parallel.hardware import Accelerator
from rota.planner.parallel.iteration import IterationCost
from rota.planner.parallel.plans import Recompute, TrainingSetup
from rota.planner.parallel.search import PlanConstraints, by_rule, by_search, divisors

if TYPE_CHECKING:
    from rota.planner.parallel.layerwise.planner import LayerwisePlan

_MOST_TRIES = 8
_UNIT_MIB = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelAnswer:
    """A planner's plan as fields for programs, its cost, and a short form for people."""

    iteration_s: float
    tflops_per_gpu: float
    memory_bytes: int
    fits: bool
    plan: Mapping[str, Any]
    short: str
    parts_s: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelPlanner:
    """One planner: what it optimises and guarantees, where it comes from, and the function that plans."""

    name: str
    summary: str
    cites: str
    objective: str
    guarantee: str
    plan: Callable[[Accelerator, TrainingSetup, PlanConstraints], ParallelAnswer]
    takes_constraints: bool = False
    """Whether parts of the plan may be given."""


def costed_answer(plan: Mapping[str, int | str], cost: IterationCost) -> ParallelAnswer:
    """The answer for a plan with one degree of each kind."""
    short = f"t{plan['tensor']} p{plan['pipeline']} d{plan['data']} b{plan['micro_batch']}"
    return ParallelAnswer(
        iteration_s=cost.iteration_s,
        tflops_per_gpu=cost.tflops_per_gpu,
        memory_bytes=cost.memory.total_bytes,
        fits=cost.fits,
        plan=plan,
        short=short if plan["interleave"] == 1 else f"{short} v{plan['interleave']}",
        parts_s={
            "compute": cost.compute_s,
            "tensor": cost.tensor_s,
            "messages": cost.messages_s,
            "bubble": cost.bubble_s,
            "gradients": cost.gradients_s,
            "optimizer": cost.optimizer_s,
        },
    )


def _searched(device: Accelerator, setup: TrainingSetup, constraints: PlanConstraints) -> ParallelAnswer:
    best = by_search(device, setup, constraints)[0]
    return costed_answer(plan_fields(best.plan), best.cost)


def _ruled(device: Accelerator, setup: TrainingSetup, constraints: PlanConstraints) -> ParallelAnswer:
    best = by_rule(device, setup, constraints)[0]
    return costed_answer(plan_fields(best.plan), best.cost)


def _micro_batch_counts(setup: TrainingSetup) -> list[int]:
    """Numbers of micro-batches worth a try: divisors of the batch, thinned to a few from many down to one."""
    every = divisors(setup.batch)
    step = max(1, -(-len(every) // _MOST_TRIES))
    return every[::-1][::step]


def _best_of(setup: TrainingSetup, plan: Callable[[int], ParallelAnswer]) -> ParallelAnswer:
    """The fastest answer over numbers of micro-batches; the last refusal if there is none."""
    found: list[ParallelAnswer] = []
    refusal: RotaError | None = None
    for count in _micro_batch_counts(setup):
        try:
            found.append(plan(count))
        except RotaError as error:
            refusal = error
    if not found:
        assert refusal is not None
        raise refusal
    return min(found, key=lambda answer: answer.iteration_s)


def _tflops(setup: TrainingSetup, recompute: Recompute, iteration_s: float) -> float:
    flops = setup.shape.step_flops(setup.batch, recompute=recompute is Recompute.FULL)
    return flops / iteration_s / setup.gpus / 1e12


def _staged(device: Accelerator, setup: TrainingSetup, constraints: PlanConstraints) -> ParallelAnswer:
    from rota.planner.parallel.staged import MOST_GROUPS, StagedTask, plan_staged

    groups = min(MOST_GROUPS, setup.shape.layers)
    recompute = constraints.recompute[-1]

    def plan(micro_batches: int) -> ParallelAnswer:
        task = StagedTask(
            device=device,
            setup=setup,
            micro_batches=micro_batches,
            groups=groups,
            recompute=recompute,
            sharding=constraints.sharding,
        )
        found = plan_staged(task)
        fields = [
            {"layers": one.layers, "gpus": one.gpus, "tensor": one.tensor, "data": one.data} for one in found.stages
        ]
        return ParallelAnswer(
            iteration_s=found.iteration_s,
            tflops_per_gpu=_tflops(setup, recompute, found.iteration_s),
            memory_bytes=found.memory_bytes,
            fits=True,
            plan={"micro_batches": micro_batches, "recompute": recompute.value, "stages": fields},
            short=" + ".join(f"{one.layers} on {one.gpus} (t{one.tensor} d{one.data})" for one in found.stages),
            parts_s={},
        )

    return _best_of(setup, plan)


def _layerwise(device: Accelerator, setup: TrainingSetup, constraints: PlanConstraints) -> ParallelAnswer:
    from rota.planner.parallel.layerwise.planner import LayerwiseTask, plan_layerwise
    from rota.planner.parallel.layerwise.profile import MIB, modelled_links, modelled_profile

    if setup.gpus & (setup.gpus - 1):
        raise RotaError(f"--gpus {setup.gpus} is no power of two, which galvatron-like needs; use --planner ptd-p")
    most_split = max(part for part in divisors(setup.per_node) if setup.shape.heads % part == 0)
    profile = modelled_profile(device, setup.shape, setup.gpus)
    links = modelled_links(device, setup.gpus, setup.per_node)

    def plan(micro_batches: int) -> ParallelAnswer:
        task = LayerwiseTask(
            profile=profile,
            links=links,
            gpus=setup.gpus,
            memory_mib=device.memory_bytes // MIB,
            batch=setup.batch,
            chunks=micro_batches,
            unit_mib=_UNIT_MIB,
            most_split=most_split,
        )
        return _layerwise_answer(setup, plan_layerwise(task))

    return _best_of(setup, plan)


def _layerwise_answer(setup: TrainingSetup, found: LayerwisePlan) -> ParallelAnswer:
    runs = [(strategy, len(list(same))) for strategy, same in groupby(found.strategies)]
    layers: list[dict[str, Any]] = [
        {
            "layers": count,
            "tensor": strategy.tensor,
            "sequence": strategy.sequence,
            "data": strategy.data,
            "zero": strategy.sharding.value,
            "recompute": Recompute.FULL.value if strategy.recompute else Recompute.NONE.value,
        }
        for strategy, count in runs
    ]
    texts = [f"{row['layers']} x {_strategy_text(row)}" for row in layers]
    return ParallelAnswer(
        iteration_s=found.step_s,
        tflops_per_gpu=_tflops(setup, Recompute.NONE, found.step_s),
        memory_bytes=round(found.memory_mib * (1 << 20)),
        fits=True,
        plan={"pipeline": found.pipeline, "micro_batches": found.chunks, "layers": layers},
        short=f"p{found.pipeline}: {' + '.join(texts)}",
        parts_s={},
    )


def _strategy_text(row: Mapping[str, Any]) -> str:
    text = (
        f"t{row['tensor']} s{row['sequence']} d{row['data']}"
        if row["sequence"] > 1
        else f"t{row['tensor']} d{row['data']}"
    )
    return text + (" zero" if row["zero"] == "weights" else "") + (" recomputed" if row["recompute"] == "full" else "")


PARALLEL_PLANNERS: tuple[ParallelPlanner, ...] = (
    ParallelPlanner(
        name="ptd-p",
        summary="Tries all degrees of tensor, pipeline and data parallelism, micro-batches and chunks.",
        cites="Narayanan et al., SC 2021",
        objective="iteration time of a transformer",
        guarantee="least predicted time among plans with one degree of each kind",
        plan=_searched,
        takes_constraints=True,
    ),
    ParallelPlanner(
        name="ptd-p-rule",
        summary="Tensor parallelism up to a node, then stages until the model fits, then replicas.",
        cites="Narayanan et al., SC 2021",
        objective="iteration time of a transformer",
        guarantee="the micro-batch and chunks are the best for the degrees that the rule takes",
        plan=_ruled,
        takes_constraints=True,
    ),
    ParallelPlanner(
        name="alpa-like",
        summary="Chooses stages, their layers, sub-meshes and splits by dynamic programming.",
        cites="Zheng et al., OSDI 2022",
        objective="iteration time of a transformer",
        guarantee="least predicted time among stages on sub-meshes, to the spacing of bounds (0.5 %)",
        plan=_staged,
    ),
    ParallelPlanner(
        name="galvatron-like",
        summary="Chooses split, sharding and recomputation for each layer under a memory bound.",
        cites="Miao et al., VLDB 2023",
        objective="iteration time of a transformer",
        guarantee="least time of a micro-batch with its reduction, for each number of stages and embedding strategy",
        plan=_layerwise,
    ),
)


def parallel_planner(name: str) -> ParallelPlanner:
    """The planner of that name."""
    for planner in PARALLEL_PLANNERS:
        if planner.name == name:
            return planner
    names = [planner.name for planner in PARALLEL_PLANNERS]
    raise RotaError(f"unknown --planner {name!r}; {did_you_mean(name, names)}")
