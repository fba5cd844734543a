"""The planner `alpa-like`: stages on sub-meshes by dynamic programming, with the best split inside each stage.

After Zheng et al., OSDI 2022 (Alpa): a pipeline of stages takes the sum of their times once and the slowest one's for
every further micro-batch. For each bound on the slowest stage, the program chooses stages, their layers, devices and
splits from the last one back, so that the micro-batches in flight, and with them the memory, are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np

from rota.core.errors import RotaError
from rota.planner.parallel.collectives import send_s
from rota.planner.parallel.hardware import GIB, Accelerator
from rota.planner.parallel.iteration import data_ring, gradients_s, layer_time
from rota.planner.parallel.kernels import HALF_BYTES, logits_s
from rota.planner.parallel.memory import RESERVED_BYTES, layer_activation_bytes, state_bytes_per_parameter
from rota.planner.parallel.plans import ParallelPlan, Recompute, Sharding, TrainingSetup

MOST_GROUPS = 16
_BOUND_GAP = 1.005  # bounds on the slowest stage that are closer than this are not told apart


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStage:
    """Consecutive layers on some devices, split `tensor` ways and replicated `data` times."""

    layers: int
    gpus: int
    tensor: int
    data: int
    micro_batch_s: float
    step_s: float
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPlan:
    """Stages from the first to the last, the number of micro-batches and the time of an iteration."""

    stages: tuple[PipelineStage, ...]
    micro_batches: int
    iteration_s: float

    @property
    def memory_bytes(self) -> int:
        """Memory of the fullest device."""
        return max(stage.memory_bytes for stage in self.stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedTask:
    """What is planned: a setup in micro-batches, its layers in groups of about equal work that stay together."""

    device: Accelerator
    setup: TrainingSetup
    micro_batches: int
    groups: int
    recompute: Recompute = Recompute.FULL
    sharding: Sharding = Sharding.OPTIMIZER

    def __post_init__(self) -> None:
        if self.micro_batches < 1 or self.setup.batch % self.micro_batches:
            raise RotaError(
                f"--micro-batches {self.micro_batches} does not divide --batch {self.setup.batch}; "
                f"give a divisor of {self.setup.batch}"
            )
        if not 1 <= self.groups <= self.setup.shape.layers:
            raise RotaError(f"{self.groups} groups of --layers {self.setup.shape.layers}; give 1 to as many as layers")


def group_bounds(task: StagedTask) -> tuple[int, ...]:
    """Layers before each group, and all of them: the groups whose most work is least.

    The output layer is work of the last group, which therefore has fewer layers, as where Alpa groups operators by
    their floating-point operations.
    """
    layers, groups = task.setup.shape.layers, task.groups
    if groups == 1:
        return 0, layers
    plan = ParallelPlan(tensor=1, pipeline=1, data=1, micro_batch=1, recompute=task.recompute, sharding=Sharding.NONE)
    one = layer_time(task.device, replace(task.setup, gpus=1), plan).total_s
    head = logits_s(task.device, task.setup.shape, micro_batch=1, tensor=1) / one
    share = (layers + head) / groups

    def work(last: int) -> tuple[float, float]:
        return max(last + head, -(-(layers - last) // (groups - 1))), abs(last + head - share)

    last = min(range(1, layers - groups + 2), key=work)
    return (*(int(place * (layers - last) / (groups - 1) + 0.5) for place in range(groups)), layers)


def submesh_sizes(gpus: int, per_node: int) -> list[int]:
    """Devices that a stage may have: powers of two within a node, or whole nodes."""
    within = [1 << power for power in range(per_node.bit_length()) if 1 << power <= min(per_node, gpus)]
    whole = [per_node * nodes for nodes in range(1, gpus // per_node + 1) if (gpus // per_node) % nodes == 0]
    return sorted({*within, *whole})


def _splits(task: StagedTask, gpus: int) -> Iterator[ParallelPlan]:
    """Every split of a stage's devices into tensor and data that the heads and the micro-batch allow."""
    sequences = task.setup.batch // task.micro_batches
    tensor = 1
    while tensor <= min(gpus, task.setup.per_node):
        data = gpus // tensor
        if gpus % tensor == 0 and task.setup.shape.heads % tensor == 0 and sequences % data == 0:
            yield ParallelPlan(
                tensor=tensor,
                pipeline=1,
                data=data,
                micro_batch=sequences // data,
                recompute=task.recompute,
                sharding=task.sharding,
            )
        tensor *= 2


def _stage(task: StagedTask, layers: int, plan: ParallelPlan, *, last: bool, in_flight: int) -> PipelineStage:
    """Time and memory of some layers on a stage's devices."""
    device, shape = task.device, task.setup.shape
    local = replace(task.setup, gpus=plan.gpus)
    micro_s = layers * layer_time(device, local, plan).total_s
    if last:
        micro_s += logits_s(device, shape, micro_batch=plan.micro_batch, tensor=plan.tensor)
    boundary = HALF_BYTES * plan.micro_batch * shape.seq * shape.hidden
    crosses = task.setup.gpus > task.setup.per_node
    senders = min(task.setup.per_node, plan.gpus)
    micro_s += 2 * send_s(device.interconnect, boundary / plan.tensor, crosses_nodes=crosses, senders_per_node=senders)
    ends = shape.embedding_parameters if last else 0
    parameters = (layers * shape.layer_parameters + ends) / plan.tensor
    held = parameters / (data_ring(local, plan).ranks if task.sharding is not Sharding.NONE else 1)
    step_s = gradients_s(device, local, plan, parameters) + device.kernels.adam_bytes * held / device.memory_bytes_per_s
    whole = layer_activation_bytes(shape, micro_batch=plan.micro_batch, tensor=plan.tensor)
    kept = layers * in_flight * boundary + whole if task.recompute is Recompute.FULL else layers * in_flight * whole
    if last:
        kept += 10 * shape.seq * plan.micro_batch * shape.vocab / plan.tensor
    state = parameters * state_bytes_per_parameter(task.sharding, plan.data)
    return PipelineStage(
        layers=layers,
        gpus=plan.gpus,
        tensor=plan.tensor,
        data=plan.data,
        micro_batch_s=micro_s,
        step_s=step_s,
        memory_bytes=round(state + kept) + RESERVED_BYTES,
    )


class _StageTable:
    """The best split of every stage: by its groups of layers, its devices, and micro-batches in flight."""

    def __init__(self, task: StagedTask, *, usable_bytes: float | None = None) -> None:
        self._task = task
        self._usable_bytes = task.device.usable_bytes if usable_bytes is None else usable_bytes
        self._bounds = group_bounds(task)
        self._known: dict[tuple[int, int, bool, int], PipelineStage | None] = {}

    def best(self, start: int, end: int, gpus: int, *, in_flight: int) -> PipelineStage | None:
        """The split with the least time that fits for the groups from start up to end; None if none does."""
        layers, last = self._bounds[end] - self._bounds[start], end == self._task.groups
        key = (layers, gpus, last, in_flight)
        if key not in self._known:
            options = [
                _stage(self._task, layers, plan, last=last, in_flight=in_flight) for plan in _splits(self._task, gpus)
            ]
            fitting = [one for one in options if one.memory_bytes <= self._usable_bytes]
            self._known[key] = min(fitting, key=self.weight, default=None)
        return self._known[key]

    def weight(self, stage: PipelineStage) -> float:
        """Time of a micro-batch with its part of what is done once a step."""
        return stage.micro_batch_s + stage.step_s / self._task.micro_batches


def plan_staged(task: StagedTask) -> StagedPlan:
    """The stages with the least iteration time; a `RotaError` if nothing fits."""
    table = _StageTable(task)
    sizes = submesh_sizes(task.setup.gpus, task.setup.per_node)
    best: list[PipelineStage] | None = None
    best_s = np.inf
    for bound_s in _bounds(task, table, sizes):
        if bound_s * (task.micro_batches - 1) >= best_s:
            break
        stages = _within(task, table, sizes, bound_s)
        if stages is not None and (total_s := _iteration_s(task, stages)) < best_s:
            best, best_s = stages, total_s
    if best is None:
        if _within(task, _StageTable(task, usable_bytes=np.inf), sizes, np.inf) is None:
            raise RotaError(
                f"--gpus {task.setup.gpus} cannot all be used by {task.setup.shape.layers} layers with "
                f"{task.setup.batch // task.micro_batches} sequences in each of {task.micro_batches} micro-batches; "
                "give a larger --batch, fewer micro-batches or fewer --gpus"
            )
        raise RotaError(
            f"no stages of {task.setup.shape.layers} layers fit the {task.device.usable_bytes / GIB:.0f} usable GiB "
            f"of one {task.device.name} on --gpus {task.setup.gpus}; give more --gpus or a --gpu with more memory"
        )
    return StagedPlan(stages=tuple(best), micro_batches=task.micro_batches, iteration_s=float(best_s))


def costed_stages(task: StagedTask, stages: Sequence[tuple[int, int]]) -> Iterator[StagedPlan]:
    """Every plan with these layers and devices per stage, first to last, that fits: one for each choice of splits."""
    options = [
        [
            stage
            for plan in _splits(task, gpus)
            if (stage := _stage(task, layers, plan, last=place == len(stages) - 1, in_flight=len(stages) - place))
            and stage.memory_bytes <= task.device.usable_bytes
        ]
        for place, (layers, gpus) in enumerate(stages)
    ]
    for chosen in product(*options):
        yield StagedPlan(stages=chosen, micro_batches=task.micro_batches, iteration_s=_iteration_s(task, list(chosen)))


def _iteration_s(task: StagedTask, stages: list[PipelineStage]) -> float:
    once = sum(stage.micro_batch_s for stage in stages)
    slowest = max(stage.micro_batch_s for stage in stages)
    return once + (task.micro_batches - 1) * slowest + max(stage.step_s for stage in stages)


def _bounds(task: StagedTask, table: _StageTable, sizes: list[int]) -> list[float]:
    """Times that the slowest stage may have, ascending."""
    found = []
    for start, end in combinations(range(task.groups + 1), 2):
        for gpus in sizes:
            stage = table.best(start, end, gpus, in_flight=1)
            if stage is not None:
                found.append(table.weight(stage))
    kept: list[float] = []
    for bound in sorted(found):
        if not kept or bound > kept[-1] * _BOUND_GAP:
            kept.append(bound)
        else:
            kept[-1] = bound
    return kept


def _within(task: StagedTask, table: _StageTable, sizes: list[int], bound_s: float) -> list[PipelineStage] | None:
    """The stages with the least sum of times, none above the bound, that use all devices; None if there are none.

    `least[k, n]` is that sum for the last groups from `k` on `n` devices, for the number of stages so far.
    """
    groups, gpus = task.groups, task.setup.gpus
    least = np.full((groups + 1, gpus + 1), np.inf)
    least[groups, 0] = 0.0
    choices: list[dict[tuple[int, int], PipelineStage]] = []
    best_s, best_count = np.inf, 0
    for count in range(1, groups + 1):
        after = np.full_like(least, np.inf)
        choice: dict[tuple[int, int], PipelineStage] = {}
        for start in range(groups - count, -1, -1):
            for end in range(start + 1, groups + 2 - count):
                if not np.isfinite(least[end]).any():
                    continue
                for size in sizes:
                    stage = table.best(start, end, size, in_flight=count)
                    if stage is None or table.weight(stage) > bound_s * (1 + 1e-9):
                        continue
                    sums = least[end, : gpus + 1 - size] + table.weight(stage)
                    better = np.flatnonzero(sums < after[start, size:])
                    after[start, size:][better] = sums[better]
                    choice.update({(start, size + int(place)): stage for place in better})
        choices.append(choice)
        least = after
        if least[0, gpus] < best_s:
            best_s, best_count = float(least[0, gpus]), count
    return _traced(task, choices, best_count) if best_count else None


def _traced(task: StagedTask, choices: list[dict[tuple[int, int], PipelineStage]], count: int) -> list[PipelineStage]:
    """The stages that a finished table chose, first to last."""
    starts = {layers: group for group, layers in enumerate(group_bounds(task))}
    stages = []
    start, left, done = 0, task.setup.gpus, 0
    for number in range(count, 0, -1):
        stage = choices[number - 1][start, left]
        stages.append(stage)
        done += stage.layers
        start = starts[done]
        left -= stage.gpus
    return stages
