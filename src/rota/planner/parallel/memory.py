"""Bytes that a plan needs on its fullest device: weights, gradients, optimizer state and activations."""

from __future__ import annotations

from dataclasses import dataclass

from rota.planner.parallel.plans import ParallelPlan, Recompute, Sharding, TrainingSetup
from rota.planner.parallel.transformer import TransformerShape

WEIGHT_BYTES = 2
GRADIENT_BYTES = 2
OPTIMIZER_BYTES = 12  # a 32-bit copy of the weight and Adam's two moments
RESERVED_BYTES = 1 << 30  # context, communication buffers; what a process holds before it trains


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Bytes on the fullest device of a plan."""

    state_bytes: int
    activation_bytes: int

    @property
    def total_bytes(self) -> int:
        """Everything that must fit, with what a process reserves."""
        return self.state_bytes + self.activation_bytes + RESERVED_BYTES


def layer_activation_bytes(shape: TransformerShape, *, micro_batch: int, tensor: int) -> float:
    """Activations that one layer keeps for its backward pass: sbh (10 + 24/t + 5as/ht) (Korthikanti et al., 2022)."""
    unit = shape.seq * micro_batch * shape.hidden
    return unit * (10 + 24 / tensor + 5 * shape.heads * shape.seq / (shape.hidden * tensor))


def state_bytes_per_parameter(sharding: Sharding, data: int) -> float:
    """Bytes per parameter of a replica, by what is divided among the replicas (ZeRO's three stages)."""
    weight: float = WEIGHT_BYTES
    gradient: float = GRADIENT_BYTES
    optimizer: float = OPTIMIZER_BYTES
    if sharding is not Sharding.NONE:
        optimizer /= data
    if sharding in (Sharding.GRADIENTS, Sharding.WEIGHTS):
        gradient /= data
    if sharding is Sharding.WEIGHTS:
        weight /= data
    return weight + gradient + optimizer


def memory_use(setup: TrainingSetup, plan: ParallelPlan) -> MemoryUse:
    """What the fuller of the first and the last stage needs: most micro-batches in flight, or the loss."""
    shape = setup.shape
    layers = plan.stage_layers(shape.layers)
    parameters = (layers * shape.layer_parameters + shape.embedding_parameters) / plan.tensor
    state = parameters * state_bytes_per_parameter(plan.sharding, plan.data)
    micro_batches = plan.micro_batches(setup.batch)
    in_flight: float = min(plan.pipeline, micro_batches)
    if plan.interleave > 1:
        in_flight *= 1 + (plan.pipeline - 1) / (plan.pipeline * plan.interleave)
    whole = layer_activation_bytes(shape, micro_batch=plan.micro_batch, tensor=plan.tensor)
    boundary = 2 * shape.seq * plan.micro_batch * shape.hidden
    if plan.recompute is Recompute.FULL:
        first, last = layers * in_flight * boundary + whole, float(layers * boundary)
    else:
        first, last = layers * in_flight * whole, layers * whole
    # The scores over the vocabulary: in half precision, and twice in 32 bits for the loss and its gradient.
    last += 10 * shape.seq * plan.micro_batch * shape.vocab / plan.tensor
    return MemoryUse(state_bytes=round(state), activation_bytes=round(max(first, last)))
