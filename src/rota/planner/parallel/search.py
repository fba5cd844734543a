"""The planner `ptd-p`: degrees of tensor, pipeline and data parallelism, by the paper's rule or by search.

The rule (Narayanan et al., SC 2021): tensor parallelism up to the size of a node, then pipeline parallelism until the
model fits, then data parallelism for the rest, and the micro-batch that takes the least time. The search tries every
combination of degrees.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.planner.parallel.hardware import GIB, Accelerator
from rota.planner.parallel.iteration import IterationCost, iteration_cost
from rota.planner.parallel.memory import GRADIENT_BYTES, OPTIMIZER_BYTES, WEIGHT_BYTES, layer_activation_bytes
from rota.planner.parallel.plans import ParallelPlan, Recompute, Sharding, TrainingSetup, objection
from rota.planner.parallel.transformer import TransformerShape

LARGEST_MICRO_BATCH = 64
_KEPT_SEQUENCES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConstraints:
    """What of a plan is given; the rest is chosen."""

    tensor: int | None = None
    pipeline: int | None = None
    data: int | None = None
    micro_batch: int | None = None
    interleave: int | None = None
    recompute: tuple[Recompute, ...] = (Recompute.FULL,)
    sharding: Sharding = Sharding.NONE

    def plan(self) -> ParallelPlan | None:
        """The one plan that the constraints leave, if they leave nothing to choose."""
        if None in (self.tensor, self.pipeline, self.data, self.micro_batch) or len(self.recompute) > 1:
            return None
        assert self.tensor is not None
        assert self.pipeline is not None
        assert self.data is not None
        assert self.micro_batch is not None
        return ParallelPlan(
            tensor=self.tensor,
            pipeline=self.pipeline,
            data=self.data,
            micro_batch=self.micro_batch,
            interleave=self.interleave or 1,
            recompute=self.recompute[0],
            sharding=self.sharding,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CostedPlan:
    """A plan with its cost."""

    plan: ParallelPlan
    cost: IterationCost


def usual_recompute(device: Accelerator, shape: TransformerShape) -> Recompute:
    """Whether a model is trained with recomputation by default.

    Activations are kept if one device holds the model's state and those of eight sequences. That depends on the model
    and the device alone, so that plans of one model compare.
    """
    state = shape.parameters * (WEIGHT_BYTES + GRADIENT_BYTES + OPTIMIZER_BYTES)
    kept = shape.layers * layer_activation_bytes(shape, micro_batch=_KEPT_SEQUENCES, tensor=1)
    return Recompute.NONE if state + kept <= device.usable_bytes else Recompute.FULL


def divisors(number: int) -> list[int]:
    """The divisors of a positive number, ascending."""
    small = [part for part in range(1, int(number**0.5) + 1) if number % part == 0]
    return small + [number // part for part in reversed(small) if part * part != number]


def _degrees(setup: TrainingSetup, constraints: PlanConstraints) -> Iterator[tuple[int, int, int]]:
    """Every tensor, pipeline and data degree that the constraints, the model and the devices leave open."""
    for tensor in [constraints.tensor] if constraints.tensor else divisors(setup.gpus):
        if setup.gpus % tensor or setup.shape.heads % tensor:
            continue
        for pipeline in [constraints.pipeline] if constraints.pipeline else divisors(setup.gpus // tensor):
            if setup.gpus % (tensor * pipeline) or pipeline > setup.shape.layers:
                continue
            data = setup.gpus // (tensor * pipeline)
            if constraints.data in (None, data):
                yield tensor, pipeline, data


def _plans(setup: TrainingSetup, constraints: PlanConstraints, degrees: tuple[int, int, int]) -> Iterator[ParallelPlan]:
    """Every plan of some degrees: micro-batches, numbers of chunks and recomputation that are open."""
    tensor, pipeline, data = degrees
    if setup.batch % data:
        return
    sizes = [size for size in divisors(setup.batch // data) if size <= LARGEST_MICRO_BATCH]
    per_stage = setup.shape.layers // pipeline
    open_chunks = divisors(per_stage) if pipeline > 1 and constraints.micro_batch is None else [1]
    for micro_batch in [constraints.micro_batch] if constraints.micro_batch else sizes:
        for interleave in [constraints.interleave] if constraints.interleave else open_chunks:
            for recompute in constraints.recompute:
                plan = ParallelPlan(
                    tensor=tensor,
                    pipeline=pipeline,
                    data=data,
                    micro_batch=micro_batch,
                    interleave=interleave,
                    recompute=recompute,
                    sharding=constraints.sharding,
                )
                if objection(setup, plan) is None:
                    yield plan


def _costed_plans(device: Accelerator, setup: TrainingSetup, plans: Iterator[ParallelPlan]) -> list[CostedPlan]:
    costed = [CostedPlan(plan=plan, cost=iteration_cost(device, setup, plan)) for plan in plans]
    return sorted(costed, key=_order)


def _order(costed: CostedPlan) -> tuple[float, int, int, int, int]:
    plan = costed.plan
    return (costed.cost.iteration_s, plan.tensor, plan.pipeline, plan.micro_batch, plan.interleave)


def by_search(device: Accelerator, setup: TrainingSetup, constraints: PlanConstraints) -> list[CostedPlan]:
    """All plans within the constraints that fit in memory, fastest first."""
    check_constraints(setup, constraints)
    everything = [plan for degrees in _degrees(setup, constraints) for plan in _plans(setup, constraints, degrees)]
    if not everything:
        raise RotaError(_no_division(setup, constraints))
    costed = _costed_plans(device, setup, iter(everything))
    fitting = [one for one in costed if one.cost.fits]
    if not fitting:
        raise RotaError(_no_room(device, setup, costed))
    return fitting


def by_rule(device: Accelerator, setup: TrainingSetup, constraints: PlanConstraints) -> list[CostedPlan]:
    """The plans of the paper's rule, best micro-batch first: the first degrees, in its order, that fit."""
    check_constraints(setup, constraints)
    on_node = max(part for part in divisors(setup.per_node) if setup.shape.heads % part == 0)
    ordered = sorted(
        (degrees for degrees in _degrees(setup, constraints) if degrees[0] <= on_node or constraints.tensor),
        key=lambda degrees: (degrees[0] * degrees[1], -degrees[0]),
    )
    tried: list[CostedPlan] = []
    for degrees in ordered:
        costed = _costed_plans(device, setup, _plans(setup, constraints, degrees))
        fitting = [one for one in costed if one.cost.fits]
        if fitting:
            return fitting
        tried += costed
    raise RotaError(_no_room(device, setup, tried) if tried else _no_division(setup, constraints))


def check_constraints(setup: TrainingSetup, constraints: PlanConstraints) -> None:
    """Raise for a constraint that no plan can meet, naming its option."""
    degrees = {"tensor": constraints.tensor, "pipeline": constraints.pipeline, "data": constraints.data}
    numbers = degrees | {"micro-batch": constraints.micro_batch, "interleave": constraints.interleave}
    for option, value in numbers.items():
        if value is not None and value < 1:
            raise RotaError(f"--{option} {value} is below 1; give a positive number")
    heads, layers = setup.shape.heads, setup.shape.layers
    if constraints.tensor and heads % constraints.tensor:
        raise RotaError(f"--tensor {constraints.tensor} does not divide --heads {heads}; give a divisor of {heads}")
    if constraints.pipeline and constraints.pipeline > layers:
        raise RotaError(f"--pipeline {constraints.pipeline} is above --layers {layers}; give fewer stages")
    _check_product(setup, {option: value for option, value in degrees.items() if value is not None})
    share = (constraints.data or 1) * (constraints.micro_batch or 1)
    if setup.batch % share:
        options = {"data": constraints.data, "micro-batch": constraints.micro_batch}
        given = " x ".join(f"--{option} {value}" for option, value in options.items() if value is not None)
        raise RotaError(f"{given} does not divide --batch {setup.batch}; every replica needs whole micro-batches")


def _check_product(setup: TrainingSetup, degrees: dict[str, int]) -> None:
    """Raise if the given degrees cannot be those of a plan on all devices."""
    product = math.prod(degrees.values())
    given = " x ".join(f"--{option} {value}" for option, value in degrees.items())
    if len(degrees) == 3 and product != setup.gpus:
        raise RotaError(f"{given} is {product}, not --gpus {setup.gpus}; leave one of them out to have it chosen")
    if setup.gpus % product:
        raise RotaError(f"{given} does not divide --gpus {setup.gpus}; give a divisor of {setup.gpus}")


def _no_division(setup: TrainingSetup, constraints: PlanConstraints) -> str:
    if constraints.interleave and constraints.interleave > 1:
        return (
            f"--interleave {constraints.interleave} suits no plan: pipeline x interleave must divide --layers "
            f"{setup.shape.layers}, and micro-batches must come in multiples of the pipeline; leave it out"
        )
    return (
        f"--gpus {setup.gpus} cannot be divided for --batch {setup.batch}, --heads {setup.shape.heads} and the given "
        "degrees; give a batch that is a multiple of the GPUs, or fewer degrees"
    )


def _no_room(device: Accelerator, setup: TrainingSetup, costed: list[CostedPlan]) -> str:
    least = min(costed, key=lambda one: (one.cost.memory.total_bytes, _order(one)))
    plan = least.plan
    return (
        f"no plan fits the {device.usable_bytes / GIB:.0f} usable GiB of one {device.name} on --gpus {setup.gpus}: "
        f"the least is {least.cost.memory.total_bytes / GIB:.1f} GiB with --tensor {plan.tensor} "
        f"--pipeline {plan.pipeline} --micro-batch {plan.micro_batch}; give more --gpus, --zero optimizer or a --gpu "
        "with more memory"
    )
