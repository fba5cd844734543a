"""An event-driven simulator of tasks on resources: a resource runs one task at a time, in order of rank.

Devices, links and shared media are all resources. A task starts when everything before it has ended and its resource
is free; of several that could start, the one with the least rank does.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from rota.core.errors import RotaError
from rota.planner.simulate.shared_cores import run_on_cores


@dataclass(slots=True, kw_only=True)
class SimTask:
    """Work of a known length on one resource; `holds` are changes of memory at its start and its end."""

    name: str
    resource: str
    duration_ms: float
    after: list[int] = field(default_factory=list)
    rank: float = 0.0
    kind: str = "compute"
    stage: int = 0
    at_start: tuple[tuple[str, int], ...] = ()
    """Bytes that a device gains (or loses) when the task starts."""
    at_end: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpan:
    """When a task ran, and where."""

    name: str
    resource: str
    kind: str
    stage: int
    start_ms: float
    end_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeline:
    """One simulated step: every span, its length, and memory by device."""

    spans: tuple[TaskSpan, ...]
    step_ms: float
    peak_bytes: dict[str, int]
    memory: dict[str, tuple[tuple[float, int], ...]]
    """Per device the moments at which its memory changed, and to what."""

    def busy_ms(self, resource: str) -> float:
        """How long a resource worked, transfers of a device's own port left out."""
        return sum(span.end_ms - span.start_ms for span in self.spans if span.resource == resource)

    def compute_resources(self) -> list[str]:
        """The resources that computed, in order of first use."""
        return list(dict.fromkeys(span.resource for span in self.spans if span.kind in COMPUTE_KINDS))

    @property
    def bubble(self) -> float:
        """The fraction of the computing devices' time that is idle during the step."""
        devices = self.compute_resources()
        if not devices or not self.step_ms:
            return 0.0
        busy_ms = sum(span.end_ms - span.start_ms for span in self.spans if span.kind in COMPUTE_KINDS)
        return max(0.0, 1.0 - busy_ms / (len(devices) * self.step_ms))


def side_by_side(device: str, memory_bytes: float, spans: Sequence[tuple[str, float, float]]) -> StepTimeline:
    """The step of operators (name, start, end) that one device runs at once, as its planner's rules say."""
    return StepTimeline(
        spans=tuple(
            TaskSpan(name=name, resource=device, kind="compute", stage=0, start_ms=start_ms, end_ms=end_ms)
            for name, start_ms, end_ms in spans
        ),
        step_ms=max((end_ms for _, _, end_ms in spans), default=0.0),
        peak_bytes={device: ceil(memory_bytes)},
        memory={device: ((0.0, ceil(memory_bytes)),)},
    )


COMPUTE_KINDS = frozenset({"compute", "forward", "backward", "recompute"})
_CORE_KINDS = COMPUTE_KINDS | {"transfer"}


def simulate_tasks(
    tasks: Sequence[SimTask],
    resident_bytes: dict[str, int] | None = None,
    core_speeds: Sequence[float] = (),
    core_of: Mapping[str, int] | None = None,
) -> StepTimeline:
    """Run tasks to the end; `resident_bytes` is what devices hold all the time.

    With `core_speeds`, devices are processes that share cores: the speed of a task where one, two, ... are active.
    `core_of` says which core a device is pinned to; without it, they are divided evenly among all that are active.
    """
    start_ms, end_ms = run_on_cores(tasks, core_speeds, _CORE_KINDS, core_of or {}) if core_speeds else _run(tasks)
    spans = tuple(
        TaskSpan(
            name=task.name,
            resource=task.resource,
            kind=task.kind,
            stage=task.stage,
            start_ms=start_ms[number],
            end_ms=end_ms[number],
        )
        for number, task in enumerate(tasks)
    )
    memory = _memory(tasks, start_ms, end_ms, resident_bytes or {})
    return StepTimeline(
        spans=spans,
        step_ms=max(end_ms, default=0.0),
        peak_bytes={device: max(held for _, held in curve) for device, curve in memory.items()},
        memory=memory,
    )


def _run(tasks: Sequence[SimTask]) -> tuple[list[float], list[float]]:
    waiting = [len(task.after) for task in tasks]
    following: list[list[int]] = [[] for _ in tasks]
    for number, task in enumerate(tasks):
        for before in task.after:
            following[before].append(number)
    start_ms, end_ms = [0.0] * len(tasks), [0.0] * len(tasks)
    ready: dict[str, list[tuple[float, int]]] = {task.resource: [] for task in tasks}
    is_busy = dict.fromkeys(ready, False)
    events: list[tuple[float, int]] = []
    for number, count in enumerate(waiting):
        if not count:
            heapq.heappush(ready[tasks[number].resource], (tasks[number].rank, number))
    done, now_ms, touched = 0, 0.0, set(ready)
    while True:
        for resource in sorted(touched):
            if ready[resource] and not is_busy[resource]:
                _, number = heapq.heappop(ready[resource])
                is_busy[resource] = True
                start_ms[number] = now_ms
                end_ms[number] = now_ms + tasks[number].duration_ms
                heapq.heappush(events, (end_ms[number], number))
        if not events:
            break
        touched = set()
        now_ms = events[0][0]
        while events and events[0][0] == now_ms:
            _, number = heapq.heappop(events)
            done += 1
            is_busy[tasks[number].resource] = False
            touched.add(tasks[number].resource)
            for after in following[number]:
                waiting[after] -= 1
                if not waiting[after]:
                    heapq.heappush(ready[tasks[after].resource], (tasks[after].rank, after))
                    touched.add(tasks[after].resource)
    if done < len(tasks):
        stuck = next(task.name for task, count in zip(tasks, waiting, strict=True) if count)
        raise RotaError(f"the order of the plan contradicts itself: {stuck!r} never becomes ready")
    return start_ms, end_ms


def _memory(
    tasks: Sequence[SimTask], start_ms: Sequence[float], end_ms: Sequence[float], resident: dict[str, int]
) -> dict[str, tuple[tuple[float, int], ...]]:
    changes: dict[str, list[tuple[float, int, int]]] = {device: [] for device in resident}
    for number, task in enumerate(tasks):
        for device, count in task.at_end:
            changes.setdefault(device, []).append((end_ms[number], 0 if count < 0 else 1, count))
        for device, count in task.at_start:
            changes.setdefault(device, []).append((start_ms[number], 1, count))
    found = {}
    for device, steps in sorted(changes.items()):
        held = resident.get(device, 0)
        curve = [(0.0, held)]
        for moment_ms, _, count in sorted(steps):
            held += count
            curve.append((moment_ms, held))
        found[device] = tuple(curve)
    return found
