"""Speeds observed on this machine: by device type, by size of elastic jobs, and beside a job on the same devices.

Runs of the same user, name and requested size are compared with each other; what differs is where they ran. Only runs
that were on one placement from start to end count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rota.core.model.job import WHOLE, DeviceType, Job
from rota.forecast.past import PastRun, RanOn, ended
from rota.perf.speed.model import SpeedModel

FEWEST = 3
"""Runs of each kind from which on a speed is known."""
SLOWEST = 0.05
DOUBT = 0.25
"""How far the power of its size by which a job's speed grows is expected from the usual one (standard deviation)."""
LEAST_SCATTER = 0.01


class PlacementLearner:
    """Takes the steps of a journal in order, as JSON values, and knows where jobs ran that stayed in one place."""

    def __init__(self) -> None:
        self._now: dict[str, RanOn | None] = {}

    def take(self, step: Mapping[str, Any]) -> None:
        """Take one step."""
        for decision in step.get("out", ()):
            job_id, order = decision["job_id"], decision["order"]
            if order == "start":
                self._now[job_id] = _ran_on(decision["on"]) if job_id not in self._now else None
            elif order in ("resize", "move", "stop", "suspend"):
                self._now[job_id] = None

    def where(self, job_id: str) -> RanOn | None:
        """Return where a job ran all the time; None if it was moved, or nothing is known."""
        return self._now.get(job_id)

    def forget(self, job_id: str) -> None:
        """Drop a job that has ended."""
        self._now.pop(job_id, None)


def _ran_on(slots: Sequence[Sequence[Any]]) -> RanOn:
    shared = any(slot[4] != WHOLE and slot[1] for slot in slots)
    return RanOn(node=slots[0][0], tasks=sum(slot[2] for slot in slots), shared=shared)


def observed_speeds(past: Sequence[PastRun], type_of: Mapping[str, DeviceType]) -> SpeedModel:
    """Return the speeds that past runs show; 1 where they do not."""
    runs = [run for run in ended(past) if run.ran_on is not None and not run.restarts]
    alone = [run for run in runs if run.ran_on is not None and not run.ran_on.shared]
    types = _factors(alone, lambda run: type_of.get(_on(run).node))
    sharing = _factors([run for run in runs if not _is_fraction(run.job)], lambda run: _on(run).shared)
    beside = sharing.get(True, 1.0) / sharing.get(False, 1.0) if len(sharing) > 1 else 1.0
    fastest = max(types.values(), default=1.0)
    return SpeedModel(
        type_speed={DeviceType(str(kind)): max(speed / fastest, SLOWEST) for kind, speed in types.items()},
        scaling=_scaling([run for run in alone if run.job.elastic is not None]),
        device_neighbour=min(max(beside, SLOWEST), 1.0),
    )


def at_reference(run: PastRun, speed: SpeedModel, type_of: Mapping[str, DeviceType]) -> PastRun:
    """Return a run with the work that it did, counted in seconds on the fastest type, at full size, alone."""
    if run.work_s is None or run.ran_on is None:
        return run
    on = run.ran_on
    factor = speed.type_speed.get(type_of.get(on.node, DeviceType("")), 1.0)
    if run.job.elastic is not None:
        factor *= _size(run) ** (speed.scaling - 1.0)  # drivers count work in proportion to the size
    if on.shared and not _is_fraction(run.job):
        factor *= speed.device_neighbour
    return replace(run, work_s=run.work_s * factor)


def _factors(runs: Sequence[PastRun], kind_of_run: Callable[[PastRun], Hashable | None]) -> dict[Hashable, float]:
    """Return the speed of each kind of run relative to like runs of other kinds; empty with fewer than two kinds."""
    groups: dict[Hashable, list[tuple[Hashable, float]]] = {}
    for run in runs:
        kind = kind_of_run(run)
        if kind is not None:
            tasks = _on(run).tasks if run.job.elastic is not None else 0
            key = (run.job.user, run.job.name, run.job.gpu_milli, tasks)
            groups.setdefault(key, []).append((kind, math.log(max(run.work_s or 0.0, 1e-3))))
    apart: dict[Hashable, list[float]] = {}
    for members in groups.values():
        means = {
            kind: _mean([log_s for other, log_s in members if other == kind])
            for kind in dict.fromkeys(kind for kind, _ in members)
        }
        if len(means) > 1:
            middle = _mean(list(means.values()))
            for kind, _ in members:
                apart.setdefault(kind, []).append(middle - means[kind])
    known = {kind: math.exp(_mean(each)) for kind, each in apart.items() if len(each) >= FEWEST}
    return known if len(known) > 1 else {}


def _scaling(runs: Sequence[PastRun]) -> float:
    """Return the power of its size by which an elastic job's speed grows: a line through logarithms of like runs.

    Sizes are relative to what each job asks for, since like jobs that ask for more need not do more work. A line that
    few runs tell, or that scatter, counts little against the usual power.
    """
    groups: dict[Hashable, list[tuple[float, float]]] = {}
    for run in runs:
        seconds = (run.work_s or 0.0) / _size(run)
        point = (math.log(_size(run)), math.log(max(seconds, 1e-3)))
        groups.setdefault((run.job.user, run.job.name), []).append(point)
    across = squares = height = 0.0
    count = freedom = 0
    for points in groups.values():
        middle_x, middle_y = _mean([x for x, _ in points]), _mean([y for _, y in points])
        across += math.fsum((x - middle_x) * (y - middle_y) for x, y in points)
        squares += math.fsum((x - middle_x) ** 2 for x, _ in points)
        height += math.fsum((y - middle_y) ** 2 for _, y in points)
        freedom += len(points) - 1
        count += len(points) if any(x != middle_x for x, _ in points) else 0
    usual = SpeedModel().scaling
    if count < 2 * FEWEST or not squares:
        return usual
    slope = -across / squares
    scatter = max(height - slope * slope * squares, 0.0) / max(freedom - 1, 1) + LEAST_SCATTER**2
    held = scatter / (DOUBT * DOUBT * squares)
    return min(max((slope + held * usual) / (1.0 + held), 0.0), 1.0)


def _size(run: PastRun) -> float:
    """Return the size of a run, relative to what its job asks for."""
    return _on(run).tasks / run.job.roles[0].count


def _on(run: PastRun) -> RanOn:
    assert run.ran_on is not None
    return run.ran_on


def _is_fraction(job: Job) -> bool:
    return job.roles[0].is_fraction


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
