"""Moldable stages on several resources (Perotin, Sun, Raghavan; ICPP 2021): sizes by LP, then list scheduling.

The size of each stage is chosen once, before it starts. A linear program weighs the critical path against the total use
of resources. It is rounded: a stage gets its smallest size that is at most 1/rho as slow as in the program. No stage
takes more than the fraction mu of any resource. Then stages start by longest path to the end, whichever fits. With d
resources the makespan is at most 1.619 d + 2.545 sqrt(d) + 1 times the optimum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.core.state.job_record import LiveJob
from rota.mechanisms.declare import Knowledge, Traits
from rota.mechanisms.elastic.dags import Dags
from rota.mechanisms.elastic.declare import elastic
from rota.mechanisms.elastic.resources import Floats, free, need, totals
from rota.mechanisms.elastic.rule import Candidate, DefaultSizeRule, SizePlan, SizeQuestion, Target, candidate
from rota.mechanisms.elastic.scaling import Curve, ScalingCurves
from rota.mechanisms.solvers.lp import NoSolution, Program, Solver

GOLDEN = (1 + math.sqrt(5)) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PerotinParams:
    """Limits on the sizes of stages.

    `mu` is the largest fraction of a resource for one stage. A size may be 1/`rho` times slower than in the program,
    with `rho` = 1 / (sqrt(1.618 d) + 1) for d resources by default.
    """

    mu: float = 1 - 1 / GOLDEN
    rho: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.mu <= 1:
            raise RotaError(f"mu is {self.mu:g}; it must be above 0 and at most 1")
        if self.rho is not None and not 0 < self.rho <= 1:
            raise RotaError(f"rho is {self.rho:g}; it must be above 0 and at most 1")


@dataclass(slots=True)
class _Stage:
    """A stage that has not ended: its sizes, the remaining time at each, and the resources each uses."""

    live: LiveJob
    sizes: list[int]
    times: Floats
    areas: Floats


class Perotin(DefaultSizeRule):
    """Rule that remembers the chosen sizes."""

    plans_cpu_jobs = True

    def __init__(self, params: PerotinParams, knowledge: Knowledge) -> None:
        self._params = params
        self._curves = ScalingCurves(knowledge.speed, compact=False)
        self._dags = Dags()
        self._sizes: dict[int, int] = {}
        self._behind: dict[int, float] = {}

    @property
    def memory(self) -> Any:
        """Sizes and path lengths by stage."""
        return [[seq, tasks, self._behind[seq]] for seq, tasks in self._sizes.items()]

    def recall(self, memory: Any) -> None:
        """Restore the chosen sizes."""
        self._sizes = {seq: tasks for seq, tasks, _ in memory}
        self._behind = {seq: behind for seq, _, behind in memory}

    def attach(self, jobs: dict[JobId, LiveJob]) -> None:
        """Attach all jobs, since stages with unmet dependencies are sized too."""
        self._dags.attach(jobs)

    def forget(self, live: LiveJob) -> None:
        """Drop the size of a stage that has ended."""
        self._sizes.pop(live.seq, None)
        self._behind.pop(live.seq, None)
        self._dags.forget(live)

    def plan(self, question: SizeQuestion) -> SizePlan:
        """Choose sizes for new stages; running stages stay, the others start in order while there is room."""
        if any(found.seq not in self._sizes for found in question.candidates if found.sizes):
            self._choose(question)
        targets = {found.seq: Target(found.tasks) for found in question.candidates if found.tasks}
        ready = [found for found in question.candidates if not found.tasks and found.sizes]
        ready.sort(key=lambda found: (-self._behind.get(found.seq, 0.0), found.seq))
        left = free(question.inventory)
        for found in ready:
            tasks = min(self._sizes.get(found.seq, found.sizes[0]), found.sizes[-1])
            wanted = need(found, tasks)
            if (wanted <= left).all():
                left -= wanted
                targets[found.seq] = Target(tasks)
        return SizePlan(targets)

    def _choose(self, question: SizeQuestion) -> None:
        """Solve for all stages that have not ended; stages with a size keep it."""
        total = totals(question.inventory)
        stages = [
            stage
            for live in self._dags.unfinished()
            if (stage := self._stage(candidate(live, question.inventory), question, total)) is not None
        ]
        if any(len(stage.sizes) > 1 for stage in stages):
            times = self._program(stages, total)
        else:
            times = [float(stage.times[0]) for stage in stages]
        counted = sum(any(stage.areas[0, kind] > 0 for stage in stages) for kind in range(len(total)))
        rho = self._params.rho or 1 / (math.sqrt(GOLDEN * max(counted, 1)) + 1)
        for stage, time_s in zip(stages, times, strict=True):
            if stage.live.seq not in self._sizes:
                slow_enough = stage.times <= time_s / rho * (1 + 1e-9)
                at = int(np.argmax(slow_enough)) if slow_enough.any() else int(np.argmin(stage.times))
                self._sizes[stage.live.seq] = stage.sizes[at]
        self._measure_chains(stages)

    def _stage(self, found: Candidate, question: SizeQuestion, total: Floats) -> _Stage | None:
        curve: Curve = self._curves.of(found, question)
        if not curve:
            return None
        fixed = self._sizes.get(found.seq, found.tasks or None)
        kept = [pair for pair in curve if fixed is None or pair[0] == fixed] or [curve[0]]
        needs = np.array([need(found, tasks) for tasks, _ in kept])
        small = (needs <= np.maximum(self._params.mu * total, needs[0])).all(axis=1)
        kept = [pair for pair, fits in zip(kept, small.tolist(), strict=True) if fits]
        left = found.remaining_work(question.now_s)
        times = np.array([left / speed for _, speed in kept])
        return _Stage(found.live, [tasks for tasks, _ in kept], times, needs[small] * times[:, None])

    def _program(self, stages: list[_Stage], total: Floats) -> list[float]:
        """Return the stage times that balance critical path and resource use; the fastest ones if unsolved."""
        starts = np.cumsum([0, *(len(stage.sizes) for stage in stages)])
        size, count = int(starts[-1]), len(stages)
        chain, last = size, size + count
        program = Program(gain=np.zeros(last + 1), lower=np.zeros(last + 1), upper=np.full(last + 1, np.inf))
        program.gain[last] = -1.0
        at = {stage.live.job.id: index for index, stage in enumerate(stages)}
        for index, stage in enumerate(stages):
            own = np.arange(starts[index], starts[index + 1])
            program.add_row(own, np.ones(len(own)), low=1.0, high=1.0)
            ends = np.append(own, [chain + index])
            before = [at[name] for name in stage.live.job.depends_on if name in at]
            for other in before:
                program.add_row(np.append(ends, chain + other), np.append(-stage.times, [1.0, -1.0]), low=0.0)
            if not before:
                program.add_row(ends, np.append(-stage.times, [1.0]), low=0.0)
            program.add_row(np.array([last, chain + index]), np.array([1.0, -1.0]), low=0.0)
        areas = np.concatenate([stage.areas for stage in stages]) if stages else np.zeros((0, len(total)))
        for kind in np.flatnonzero(np.isfinite(total) & (total > 0)).tolist():
            columns = np.flatnonzero(areas[:, kind] > 0)
            if columns.size:
                row = np.append(-areas[columns, kind] / total[kind], [1.0])
                program.add_row(np.append(columns, [last]), row, low=0.0)
        best = Solver().solve(program)
        if isinstance(best, NoSolution):
            return [float(stage.times.min()) for stage in stages]
        return [float(best.x[starts[index] : starts[index + 1]] @ stage.times) for index, stage in enumerate(stages)]

    def _measure_chains(self, stages: list[_Stage]) -> None:
        """Compute the longest path that begins with each stage, at the chosen sizes."""
        behind: dict[JobId, float] = {}
        for stage in reversed(stages):
            tasks = self._sizes[stage.live.seq]
            time_s = float(stage.times[stage.sizes.index(tasks)]) if tasks in stage.sizes else float(stage.times[0])
            length = self._behind[stage.live.seq] = time_s + behind.get(stage.live.job.id, 0.0)
            for name in stage.live.job.depends_on:
                behind[name] = max(behind.get(name, 0.0), length)


perotin = elastic(
    "perotin",
    Perotin,
    cites="Perotin et al., ICPP 2021",
    summary="Sizes of stages by a linear program over critical path and resource use; then longest path first.",
    differs="the paper plans all jobs before any starts; here new stages are planned on arrival.",
    params=PerotinParams,
    traits=Traits(
        prior_knowledge="run time, speed by size, dependencies",
        scheduling_input="dependencies, demand for every resource",
        dimensions="time and space",
        priority="longest path",
        preemption="no",
        placement="consolidated",
        intrusiveness="size chosen at start",
    ),
)
