"""`swap`: training a model on one device that does not hold it, by swapping tensors with the host.

Harmony (Li et al., HotOS 2021) schedules tasks, not whole passes: micro-batches are grouped, a layer runs all of a
group before the next layer does, so that its weights come in once for each group; and a layer's update follows its
last backward pass at once. The planner tries every group size with and without early updates, decides evictions by
Belady's rule, and overlaps copies with compute.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Iterator
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.planner.description.problem import PlanningProblem
from rota.planner.options import DEFAULTS, PlannerOptions
from rota.planner.pipelines.chain import LayerChain, layer_chain
from rota.planner.plan import PlacementPlan, PlanObjective, PlanStage, ReportProgress
from rota.planner.simulate.tasks import SimTask, StepTimeline, simulate_tasks

OPTIMIZER_STATES = 2
"""Optimizer state as a multiple of the weights."""
_MOST_LAYERS = 60
"""Longer chains are merged into so many layers, which are swapped as a whole."""
DEFAULT_HOST_BYTES_PER_MS = 12e6
"""PCIe 3.0 x16 as training sees it, where the problem has no link to a CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapPlan:
    """A group size and whether updates are early; what it moves and how long the step takes."""

    group: int
    early_update: bool
    step_ms: float
    in_bytes: float
    out_bytes: float
    timeline: StepTimeline


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """One task, the tensors that it needs on the device, those that it writes and those that end with it."""

    name: str
    time_ms: float
    needs: tuple[str, ...]
    writes: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()


def plan_swap(
    problem: PlanningProblem, options: PlannerOptions = DEFAULTS, report: ReportProgress | None = None
) -> PlacementPlan:
    """The group size and order of updates with the shortest step on the first device."""
    began_s = time.process_time()
    chain, _ = layer_chain(problem).merged(_MOST_LAYERS)
    device = problem.devices.devices[0]
    if device.memory_bytes is None:
        raise RotaError(f"swap needs the memory of {device.name!r}; add `memory_bytes`")
    rate = _host_rate(problem)
    plans = all_swap_plans(chain, device.memory_bytes, options.micro_batches, rate, device.name)
    best = min(plans, key=lambda plan: (plan.step_ms, plan.in_bytes, plan.group))
    plain = next(plan for plan in plans if plan.group == 1 and not plan.early_update)
    operators = tuple(sorted(number for layer in chain.members for number in layer))
    stage = PlanStage(
        devices=(device.name,),
        operators=operators,
        compute_ms=(sample_ms := float(chain.time_ms[-1])),
        transfer_ms=max(best.step_ms / options.micro_batches - sample_ms, 0.0),
        memory_bytes=min(int(chain.weight_bytes[-1]), device.memory_bytes),
    )
    return PlacementPlan(
        planner="swap",
        objective=PlanObjective.LATENCY,
        value_ms=best.step_ms,
        of_step=True,
        timeline=best.timeline,
        stages=(stage,),
        seconds=time.process_time() - began_s,
        notes=(
            f"groups of {best.group} micro-batches, updates {'at once' if best.early_update else 'at the end'}",
            f"moves {(best.in_bytes + best.out_bytes) / 2**30:.2f} GiB; one by one"
            f" {(plain.in_bytes + plain.out_bytes) / 2**30:.2f} GiB and {plain.step_ms:.1f} ms",
        ),
    )


def _host_rate(problem: PlanningProblem) -> float:
    links = [link.bytes_per_ms for link in problem.devices.links]
    return max(links, default=DEFAULT_HOST_BYTES_PER_MS)


def all_swap_plans(
    chain: LayerChain, memory_bytes: float, micro_batches: int, bytes_per_ms: float, device: str = "gpu"
) -> list[SwapPlan]:
    """A plan for each group size that divides the micro-batches, with updates at once and at the end."""
    sizes = _tensor_bytes(chain, micro_batches)
    found = []
    for group in (size for size in range(1, micro_batches + 1) if micro_batches % size == 0):
        for early in (False, True):
            tasks = list(_tasks(chain, micro_batches, group, early))
            found.append(_simulated(tasks, sizes, memory_bytes, bytes_per_ms, device, group, early))
    return found


def _tensor_bytes(chain: LayerChain, micro_batches: int) -> dict[str, float]:
    sizes: dict[str, float] = {}
    for layer in range(len(chain)):
        weights = float(chain.weight_bytes[layer + 1] - chain.weight_bytes[layer])
        sizes[f"w{layer}"] = sizes[f"g{layer}"] = weights
        sizes[f"o{layer}"] = OPTIMIZER_STATES * weights
        for batch in range(micro_batches):
            resident = float(chain.resident_bytes[layer + 1] - chain.resident_bytes[layer])
            sizes[f"a{layer}.{batch}"] = max(resident, float(chain.cut_bytes[layer + 1]))
    return sizes


def _tasks(chain: LayerChain, micro_batches: int, group: int, early_update: bool) -> Iterator[_Task]:
    """The tasks of a step: for each group forward through all layers and back, then the updates."""
    layers = len(chain)
    groups = [range(start, start + group) for start in range(0, micro_batches, group)]
    for place, batches in enumerate(groups):
        is_last = place == len(groups) - 1
        for layer in range(layers):
            forward_ms = float(chain.forward_ms[layer + 1] - chain.forward_ms[layer])
            for batch in batches:
                before = (f"a{layer - 1}.{batch}",) if layer else ()
                made = f"a{layer}.{batch}"
                yield _Task(
                    name=f"F{batch} of layer {layer}",
                    time_ms=forward_ms,
                    needs=(f"w{layer}", *before, made),
                    writes=(made,),
                )
        for layer in reversed(range(layers)):
            backward_ms = chain.stage_ms(layer, layer + 1)
            backward_ms -= float(chain.forward_ms[layer + 1] - chain.forward_ms[layer])
            for batch in batches:
                yield _Task(
                    name=f"B{batch} of layer {layer}",
                    time_ms=backward_ms,
                    needs=(f"w{layer}", f"g{layer}", f"a{layer}.{batch}"),
                    writes=(f"g{layer}",),
                    ends=(f"a{layer}.{batch}",),
                )
            if early_update and is_last:
                yield _update(layer)
    if not early_update:
        for layer in range(layers):
            yield _update(layer)


def _update(layer: int) -> _Task:
    tensors = (f"w{layer}", f"g{layer}", f"o{layer}")
    return _Task(name=f"update of layer {layer}", time_ms=0.0, needs=tensors, writes=tensors[::2], ends=tensors[1:2])


def _simulated(
    tasks: list[_Task],
    sizes: dict[str, float],
    memory_bytes: float,
    bytes_per_ms: float,
    device: str,
    group: int,
    early: bool,
) -> SwapPlan:
    uses: dict[str, list[int]] = {}
    for number, task in enumerate(tasks):
        for tensor in task.needs:
            uses.setdefault(tensor, []).append(number)
    cache = _DeviceMemory(sizes, memory_bytes, uses)
    made: list[SimTask] = []
    previous: int | None = None
    last_copy: int | None = None
    in_bytes = out_bytes = 0.0
    for number, task in enumerate(tasks):
        before = int(cache.used_bytes)
        came, left = cache.make_room(number, task)
        peak, after_bytes = int(cache.peak_bytes), int(cache.used_bytes)
        in_bytes, out_bytes = in_bytes + came, out_bytes + left
        after = [] if previous is None else [previous]
        if came or left:
            # Copies of the next task run while the one before the last computes: two buffers.
            waits = [each for each in (previous - 1 if previous else None, last_copy) if each is not None and each >= 0]
            made.append(_copies(task, number, device, max(came, left) / bytes_per_ms, waits))
            last_copy = len(made) - 1
            after.append(last_copy)
        kind = "forward" if task.name[0] == "F" else "backward"
        made.append(
            SimTask(
                name=task.name,
                resource=device,
                duration_ms=task.time_ms,
                after=after,
                kind=kind,
                rank=float(number),
                at_start=((device, peak - before),),
                at_end=((device, after_bytes - peak),),
            )
        )
        previous = len(made) - 1
    timeline = simulate_tasks(made)
    return SwapPlan(
        group=group,
        early_update=early,
        step_ms=timeline.step_ms,
        in_bytes=in_bytes,
        out_bytes=out_bytes,
        timeline=timeline,
    )


def _copies(task: _Task, number: int, device: str, time_ms: float, waits: list[int]) -> SimTask:
    return SimTask(
        name=f"copies for {task.name}",
        resource=f"{device} host link",
        duration_ms=time_ms,
        after=waits,
        kind="swap",
        rank=float(number),
    )


class _DeviceMemory:
    """What is on the device; the tensor that is needed last makes room, and goes out if it was written."""

    def __init__(self, sizes: dict[str, float], limit: float, uses: dict[str, list[int]]) -> None:
        self._sizes = sizes
        self._limit = limit
        self._uses = uses
        self._held: dict[str, bool] = {}
        """Tensors on the device, and whether the host lacks what was written."""
        self._known: set[str] = {tensor for tensor in sizes if tensor[0] in "wo"}
        self.used_bytes = 0.0
        self.peak_bytes = 0.0
        """What was held while the last task ran."""

    def make_room(self, number: int, task: _Task) -> tuple[float, float]:
        """Bring a task's tensors in; bytes that came and that left."""
        came = left = 0.0
        for tensor in task.needs:
            if tensor in self._held:
                continue
            left += self._evict(self._sizes[tensor], number, task)
            if tensor in self._known:
                came += self._sizes[tensor]
            self._held[tensor] = False
            self.used_bytes += self._sizes[tensor]
        self.peak_bytes = self.used_bytes
        for tensor in task.writes:
            self._held[tensor] = True
        for tensor in task.ends:
            if self._held.pop(tensor, None) is not None:
                self.used_bytes -= self._sizes[tensor]
            self._known.discard(tensor)
        return came, left

    def _evict(self, needed: float, number: int, task: _Task) -> float:
        left = 0.0
        while self.used_bytes + needed > self._limit:
            choices = [tensor for tensor in self._held if tensor not in task.needs]
            if not choices:
                raise RotaError(
                    f"{task.name} alone needs more than the device's {self._limit:g} bytes; take a smaller micro-batch"
                )
            tensor = max(choices, key=lambda each: (self._next_use(each, number), each))
            if self._held.pop(tensor):
                left += self._sizes[tensor]
                self._known.add(tensor)
            self.used_bytes -= self._sizes[tensor]
        return left

    def _next_use(self, tensor: str, number: int) -> int:
        places = self._uses[tensor]
        following = bisect.bisect_left(places, number)
        return places[following] if following < len(places) else 1 << 60
