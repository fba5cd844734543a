"""The time and memory of one training iteration under a plan.

A stage's time per micro-batch is that of its layers, their tensor-parallel all-reduces and its messages to neighbours.
The pipeline takes the slowest stage's time for every micro-batch and the others' once; gradients are then reduced and
the optimizer steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from rota.planner.parallel.collectives import Ring, all_gather_s, all_reduce_s, send_s
from rota.planner.parallel.hardware import Accelerator
from rota.planner.parallel.kernels import HALF_BYTES, layer_forward_s, logits_s
from rota.planner.parallel.memory import GRADIENT_BYTES, MemoryUse, memory_use
from rota.planner.parallel.plans import ParallelPlan, Recompute, Sharding, TrainingSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationCost:
    """What one iteration takes, in parts that add up to `iteration_s`, and what it needs."""

    iteration_s: float
    compute_s: float
    tensor_s: float
    messages_s: float
    bubble_s: float
    gradients_s: float
    optimizer_s: float
    memory: MemoryUse
    tflops_per_gpu: float
    fits: bool


def tensor_ring(setup: TrainingSetup, plan: ParallelPlan) -> Ring:
    """The devices that split one layer: neighbours, on one node while they fit on it."""
    per_node = min(plan.tensor, setup.per_node)
    return Ring(ranks=plan.tensor, per_node=per_node, groups_per_node=max(1, setup.per_node // per_node))


def data_ring(setup: TrainingSetup, plan: ParallelPlan) -> Ring:
    """The devices that hold the same part of the model: every `tensor`-th device of a stage."""
    per_node = min(plan.data, max(1, setup.per_node // plan.tensor))
    return Ring(ranks=plan.data, per_node=per_node, groups_per_node=max(1, min(setup.per_node, plan.gpus) // per_node))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTime:
    """What one layer takes for a micro-batch, forward and backward with recomputation."""

    compute_s: float
    tensor_s: float

    @property
    def total_s(self) -> float:
        """Compute and communication, which wait for each other."""
        return self.compute_s + self.tensor_s


def layer_time(device: Accelerator, setup: TrainingSetup, plan: ParallelPlan) -> LayerTime:
    """Time of one layer for one micro-batch; never less than the host needs to launch its kernels."""
    passes = 4 if plan.recompute is Recompute.FULL else 3
    rates = device.kernels
    forward_s = layer_forward_s(device, setup.shape, micro_batch=plan.micro_batch, tensor=plan.tensor)
    message_bytes = HALF_BYTES * plan.micro_batch * setup.shape.seq * setup.shape.hidden
    reduces = 6 if plan.recompute is Recompute.FULL else 4
    tensor_s = reduces * all_reduce_s(device.interconnect, tensor_ring(setup, plan), message_bytes)
    parameters = setup.shape.layer_parameters / plan.tensor
    accumulate_s = rates.accumulate_bytes * parameters / device.memory_bytes_per_s
    device_s = passes * (forward_s + rates.layer_gap_s) + accumulate_s
    return LayerTime(compute_s=max(device_s, passes * rates.layer_launch_s - tensor_s), tensor_s=tensor_s)


def messages_s(device: Accelerator, setup: TrainingSetup, plan: ParallelPlan) -> float:
    """Time that a stage's messages add to a micro-batch: activations one way, gradients the other.

    Devices of a tensor group send a part each, which the receivers gather (PTD-P's scatter/gather).
    """
    if plan.pipeline == 1:
        return 0.0
    whole_bytes = HALF_BYTES * plan.micro_batch * setup.shape.seq * setup.shape.hidden
    crosses = plan.gpus > setup.per_node
    one_s = send_s(
        device.interconnect,
        whole_bytes / plan.tensor,
        crosses_nodes=crosses,
        senders_per_node=min(setup.per_node, plan.gpus),
    )
    one_s += all_gather_s(device.interconnect, tensor_ring(setup, plan), whole_bytes)
    return 2 * one_s * plan.interleave


def gradients_s(device: Accelerator, setup: TrainingSetup, plan: ParallelPlan, parameters: float) -> float:
    """Time to bring gradients and weights of the fullest stage together over the replicas.

    Whole or with a sharded optimizer: once a step, an all-reduce (or a reduce-scatter and an all-gather, which move as
    much). Sharded gradients are scattered after every micro-batch; sharded weights are also gathered twice for each.
    """
    ring = data_ring(setup, plan)
    once_s = all_gather_s(device.interconnect, ring, GRADIENT_BYTES * parameters)
    micro_batches = plan.micro_batches(setup.batch)
    match plan.sharding:
        case Sharding.NONE | Sharding.OPTIMIZER:
            total_s = 2 * once_s
        case Sharding.GRADIENTS:
            total_s = (micro_batches + 1) * once_s
        case Sharding.WEIGHTS:
            total_s = 3 * micro_batches * once_s
        case _:
            assert_never(plan.sharding)
    return total_s + _embedding_s(device, setup, plan)


def _embedding_s(device: Accelerator, setup: TrainingSetup, plan: ParallelPlan) -> float:
    """Time to add up the gradients of the embedding, which the first and the last stage share."""
    if plan.pipeline == 1:
        return 0.0
    on_node = min(setup.per_node, plan.gpus)
    ends = Ring(ranks=2, per_node=2 if plan.gpus <= setup.per_node else 1, groups_per_node=on_node)
    return all_reduce_s(device.interconnect, ends, GRADIENT_BYTES * setup.shape.embedding_parameters / plan.tensor)


def iteration_cost(device: Accelerator, setup: TrainingSetup, plan: ParallelPlan) -> IterationCost:
    """The cost of a plan that `plans.objection` does not object to."""
    shape, micro_batches = setup.shape, plan.micro_batches(setup.batch)
    layer = layer_time(device, setup, plan)
    head_s = logits_s(device, shape, micro_batch=plan.micro_batch, tensor=plan.tensor)
    message_s = messages_s(device, setup, plan)
    most = plan.stage_layers(shape.layers)
    last_s = shape.layers // plan.pipeline * layer.total_s + head_s
    slowest_s = max(most * layer.total_s, last_s) + message_s
    every_s = shape.layers * layer.total_s + head_s + plan.pipeline * message_s
    bubble_s = (every_s - slowest_s) / plan.interleave
    parameters = (most * shape.layer_parameters + shape.embedding_parameters) / plan.tensor
    reduce_s = gradients_s(device, setup, plan, parameters)
    held = parameters / (1 if plan.sharding is Sharding.NONE else plan.data)
    optimizer_s = device.kernels.adam_bytes * held / device.memory_bytes_per_s
    total_s = micro_batches * slowest_s + bubble_s + reduce_s + optimizer_s
    memory = memory_use(setup, plan)
    flops = shape.step_flops(setup.batch, recompute=plan.recompute is Recompute.FULL)
    tensor_s = micro_batches * most * layer.tensor_s
    return IterationCost(
        iteration_s=total_s,
        compute_s=micro_batches * (slowest_s - message_s) - tensor_s,
        tensor_s=tensor_s,
        messages_s=micro_batches * message_s,
        bubble_s=bubble_s,
        gradients_s=reduce_s,
        optimizer_s=optimizer_s,
        memory=memory,
        tflops_per_gpu=flops / total_s / plan.gpus / 1e12,
        fits=memory.total_bytes <= device.usable_bytes,
    )
