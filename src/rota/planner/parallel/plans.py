"""A plan of parallel training: degrees, micro-batch, schedule, recomputation and sharding; and its checks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rota.core.errors import RotaError
from rota.planner.parallel.transformer import TransformerShape


class Recompute(Enum):
    """Which activations are computed again in the backward pass instead of being kept."""

    NONE = "none"
    FULL = "full"


class Sharding(Enum):
    """What data-parallel replicas divide among themselves instead of each holding a copy."""

    NONE = "none"
    OPTIMIZER = "optimizer"
    GRADIENTS = "gradients"
    WEIGHTS = "weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """What is trained and on how many devices: the question that a plan answers."""

    shape: TransformerShape
    batch: int
    gpus: int
    per_node: int

    def __post_init__(self) -> None:
        for option, value in (("batch", self.batch), ("gpus", self.gpus), ("per-node", self.per_node)):
            if value < 1:
                raise RotaError(f"--{option} {value} is below 1; give a positive number")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelPlan:
    """Degrees of tensor, pipeline and data parallelism and how the batch goes through them.

    `interleave` is the number of model chunks per device (1: the plain one-forward-one-backward schedule).
    """

    tensor: int
    pipeline: int
    data: int
    micro_batch: int
    interleave: int = 1
    recompute: Recompute = Recompute.FULL
    sharding: Sharding = Sharding.NONE

    @property
    def gpus(self) -> int:
        """Devices that the plan takes."""
        return self.tensor * self.pipeline * self.data

    def micro_batches(self, batch: int) -> int:
        """Micro-batches that go through each pipeline in a step."""
        return batch // (self.data * self.micro_batch)

    def stage_layers(self, layers: int) -> int:
        """Layers of the largest stage."""
        return -(-layers // self.pipeline)


def objection(setup: TrainingSetup, plan: ParallelPlan) -> str | None:
    """Why a plan is impossible for the setup, as one line that names the option and the way out; None if it is not."""
    shape = setup.shape
    degrees = {
        "tensor": plan.tensor,
        "pipeline": plan.pipeline,
        "data": plan.data,
        "micro-batch": plan.micro_batch,
        "interleave": plan.interleave,
    }
    for option, value in degrees.items():
        if value < 1:
            return f"--{option} {value} is below 1; give a positive number"
    if shape.heads % plan.tensor:
        return f"--tensor {plan.tensor} does not divide --heads {shape.heads}; give a divisor of {shape.heads}"
    if plan.pipeline > shape.layers:
        return f"--pipeline {plan.pipeline} is above --layers {shape.layers}; each stage needs a layer, so give fewer"
    if plan.gpus != setup.gpus:
        return (
            f"--tensor {plan.tensor} x --pipeline {plan.pipeline} x --data {plan.data} is {plan.gpus}, "
            f"not --gpus {setup.gpus}; leave one of them out to have it chosen"
        )
    if setup.batch % (plan.data * plan.micro_batch):
        return (
            f"--data {plan.data} x --micro-batch {plan.micro_batch} does not divide --batch {setup.batch}; "
            "every replica needs the same number of micro-batches"
        )
    return _interleave_objection(setup, plan)


def _interleave_objection(setup: TrainingSetup, plan: ParallelPlan) -> str | None:
    if plan.interleave == 1:
        return None
    if plan.pipeline == 1:
        return f"--interleave {plan.interleave} needs a pipeline; give --pipeline 2 or more, or --interleave 1"
    if setup.shape.layers % (plan.pipeline * plan.interleave):
        return (
            f"--interleave {plan.interleave} x --pipeline {plan.pipeline} does not divide --layers "
            f"{setup.shape.layers}; give another number of chunks or --interleave 1"
        )
    if plan.micro_batches(setup.batch) % plan.pipeline:
        return (
            f"--interleave {plan.interleave} needs micro-batches ({plan.micro_batches(setup.batch)}) in multiples of "
            f"--pipeline {plan.pipeline}; give --interleave 1 or another --micro-batch"
        )
    return None


def checked(setup: TrainingSetup, plan: ParallelPlan) -> ParallelPlan:
    """The plan itself, if it is possible for the setup."""
    if reason := objection(setup, plan):
        raise RotaError(reason)
    return plan
