"""What the cluster asks of the planner: a named model's speed on some devices, and how to start it there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

from rota.core.errors import RotaError
from rota.planner.parallel.hardware import accelerator
from rota.planner.parallel.model_names import planned_model
from rota.planner.parallel.plans import ParallelPlan, Recompute, Sharding, TrainingSetup
from rota.planner.parallel.search import CostedPlan, by_search


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSpeed:
    """The best plan of a model on some devices; without one, why there is none.

    `variables` are environment variables for the job (`ROTA_PLAN` is the plan as JSON), `arguments` those of the
    usual training scripts after torchrun's own.
    """

    steps_per_s: float
    plan: ParallelPlan | None
    memory_bytes: int
    reason: str | None = None
    torchrun: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether the model can be trained there at all."""
        return self.plan is not None


@lru_cache(maxsize=65536)
def planned_speed(model: str, gpu: str, gpus: int, nodes: int = 1, batch: int | None = None) -> PlannedSpeed:
    """The best plan of a named model on `gpus` devices of a type, spread evenly over `nodes`.

    The name may give parts of the plan, as `gpt-39b:tensor=8`. Recomputation and a sharded optimizer are used where
    they help. A model that does not fit, or devices that cannot be divided evenly, are an answer; an unknown name is
    an error.
    """
    device, wanted = accelerator(gpu), planned_model(model)
    named = wanted.named
    if gpus < 1 or nodes < 1:
        raise RotaError(f"{gpus} GPUs on {nodes} nodes cannot run {model}; give positive numbers")
    if gpus % nodes:
        return PlannedSpeed(
            steps_per_s=0.0, plan=None, memory_bytes=0, reason=f"{gpus} GPUs do not spread evenly over {nodes} nodes"
        )
    setup = TrainingSetup(shape=named.shape, batch=batch or named.batch, gpus=gpus, per_node=gpus // nodes)
    found: list[CostedPlan] = []
    reason = ""
    for constraints in wanted.constraints:
        try:
            found.append(by_search(device, setup, constraints)[0])
        except RotaError as error:
            reason = str(error)
    if not found:
        return PlannedSpeed(steps_per_s=0.0, plan=None, memory_bytes=0, reason=reason)
    best = min(found, key=lambda one: one.cost.iteration_s)
    return PlannedSpeed(
        steps_per_s=1 / best.cost.iteration_s,
        plan=best.plan,
        memory_bytes=best.cost.memory.total_bytes,
        torchrun=(f"--nnodes={nodes}", f"--nproc-per-node={gpus // nodes}"),
        arguments=script_arguments(setup, best.plan),
        variables=(("ROTA_PLAN", json.dumps({"model": named.name, "batch": setup.batch, **plan_fields(best.plan)})),),
    )


def plan_fields(plan: ParallelPlan) -> dict[str, int | str]:
    """A plan as JSON fields."""
    return {
        "tensor": plan.tensor,
        "pipeline": plan.pipeline,
        "data": plan.data,
        "micro_batch": plan.micro_batch,
        "interleave": plan.interleave,
        "recompute": plan.recompute.value,
        "zero": plan.sharding.value,
    }


def script_arguments(setup: TrainingSetup, plan: ParallelPlan) -> tuple[str, ...]:
    """The plan as the arguments of Megatron-LM's training scripts."""
    words = [
        f"--tensor-model-parallel-size={plan.tensor}",
        f"--pipeline-model-parallel-size={plan.pipeline}",
        f"--micro-batch-size={plan.micro_batch}",
        f"--global-batch-size={setup.batch}",
    ]
    if plan.interleave > 1:
        chunk = setup.shape.layers // (plan.pipeline * plan.interleave)
        words.append(f"--num-layers-per-virtual-pipeline-stage={chunk}")
    if plan.recompute is Recompute.FULL:
        words += ["--recompute-granularity=full", "--recompute-method=uniform"]
    if plan.sharding is not Sharding.NONE:
        words.append("--use-distributed-optimizer")
    return tuple(words)
