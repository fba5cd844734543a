"""Tasks of several processes on fewer cores: each slows down as more of them are active at once.

Devices of a pipeline are usually their own. Where they are processes on one machine, they share its cores and caches,
and copies between processes need cores as well. Processes that are pinned share the core that they are pinned to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.planner.simulate.tasks import SimTask

_DONE = 1e-9


def speed_of(speeds: Sequence[float], active: int) -> float:
    """The speed of a task beside others: measured for up to as many as cores, then a share of the cores."""
    if active <= len(speeds):
        return speeds[max(active, 1) - 1]
    return speeds[-1] * len(speeds) / active


def _pinned_paces(
    resource_of: Mapping[int, str], speeds: Sequence[float], core_of: Mapping[str, int]
) -> dict[int, float]:
    """Paces of the tasks that are pinned: tasks of one core divide it evenly."""
    cores = {number: core_of[resource] for number, resource in resource_of.items() if resource in core_of}
    loads = Counter(cores.values())
    pace = speed_of(speeds, len(loads))
    return {number: pace / loads[core] for number, core in cores.items()}


def run_on_cores(
    tasks: Sequence[SimTask],
    speeds: Sequence[float],
    sharing: frozenset[str],
    core_of: Mapping[str, int],
) -> tuple[list[float], list[float]]:
    """Starts and ends of all tasks; those of the kinds `sharing` slow each other down, others do not.

    `core_of` has the cores of resources that are pinned to one. Where it is not empty, tasks of other resources do not
    compete for cores.
    """
    waiting = [len(task.after) for task in tasks]
    following: list[list[int]] = [[] for _ in tasks]
    for number, task in enumerate(tasks):
        for before in task.after:
            following[before].append(number)
    ready = {number for number, count in enumerate(waiting) if not count}
    start_ms, end_ms = [0.0] * len(tasks), [0.0] * len(tasks)
    left_ms: dict[int, float] = {}
    now_ms = 0.0
    while ready or left_ms:
        busy = {tasks[number].resource for number in left_ms}
        for number in sorted(ready, key=lambda each: (tasks[each].rank, each)):
            if tasks[number].resource not in busy:
                busy.add(tasks[number].resource)
                ready.remove(number)
                start_ms[number] = now_ms
                left_ms[number] = tasks[number].duration_ms
        shared = {number: tasks[number].resource for number in left_ms if tasks[number].kind in sharing}
        paces = dict.fromkeys(left_ms, 1.0) | (
            _pinned_paces(shared, speeds, core_of) if core_of else dict.fromkeys(shared, speed_of(speeds, len(shared)))
        )
        passed_ms = min(left_ms[number] / paces[number] for number in left_ms)
        now_ms += passed_ms
        for number in list(left_ms):
            left_ms[number] -= passed_ms * paces[number]
            if left_ms[number] <= _DONE * (1 + tasks[number].duration_ms):
                del left_ms[number]
                end_ms[number] = now_ms
                for after in following[number]:
                    waiting[after] -= 1
                    if not waiting[after]:
                        ready.add(after)
    if any(waiting):
        stuck = next(task.name for task, count in zip(tasks, waiting, strict=True) if count)
        raise RotaError(f"the order of the plan contradicts itself: {stuck!r} never becomes ready")
    return start_ms, end_ms
