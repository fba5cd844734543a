"""Sia (Jayaram Subramanya et al., SOSP 2023): one size and device type for each job, by an integer program.

A configuration is a part of a node by powers of two, or whole nodes, of one type. Each job's goodputs are divided
by its least; the program minimises the sum of goodput^p (p = -0.5) over chosen configurations, with 1.1 for a job
that gets none. A configuration other than the present one counts for less, by what the restart costs a job of its age.
Goodput is learned while jobs run, scaled between types by a short profile, and a job at most doubles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rota.core.errors import RotaError
from rota.core.model.job import WHOLE, DeviceType
from rota.core.state.node_accounts import Pool
from rota.mechanisms.declare import Knowledge, Traits
from rota.mechanisms.elastic.declare import elastic
from rota.mechanisms.elastic.goodput import GoodputRule
from rota.mechanisms.elastic.rule import Candidate, SizePlan, SizeQuestion, Target, whole_shapes
from rota.mechanisms.solvers.lp import NoSolution, Program
from rota.mechanisms.solvers.set_packing import best_choices

_GAP = 2e-3
"""How far from the optimum the program may stop, as a part of it."""
_MOST_FACTOR = 0.99
"""Another configuration is always worth a little less than the present one, or jobs would change places for nothing."""
_LEAST_FACTOR = 0.05
"""A restart never makes a configuration worth less than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiaParams:
    """Seconds between plans, the power of goodput, and what a job that gets nothing costs."""

    round_s: float = 60.0
    power: float = -0.5
    idle: float = 1.1

    def __post_init__(self) -> None:
        if not 0 < self.round_s < math.inf:
            raise RotaError(f"round_s is {self.round_s:g}; it must be above 0 and not endless")
        if not -5 <= self.power < 0:
            raise RotaError(f"power is {self.power:g}; it must be below 0 and at least -5")
        if not self.idle > 1:
            raise RotaError(f"idle is {self.idle:g}; it must be above 1, or some jobs never run")


class SiaConfiguration(NamedTuple):
    """A configuration of a job, with the goodput that it would have there."""

    at: int
    target: Target
    pool: int
    milli: int
    goodput: float


class Sia(GoodputRule):
    """An integer program whenever anything has changed."""

    def __init__(self, params: SiaParams, knowledge: Knowledge) -> None:
        super().__init__(params.round_s, knowledge.reports)
        self._params = params
        self._speed = knowledge.speed
        self._restart_s = knowledge.restart_s

    def choose(self, jobs: list[Candidate], question: SizeQuestion, mark: int) -> SizePlan:
        """Solve anew."""
        choices = [choice for at, found in enumerate(jobs) for choice in self._choices(at, found, question)]
        if not choices:
            return SizePlan({})
        program = self._program(jobs, choices, question)
        holds = [bool(jobs[choice.at].tasks) and self._stays(jobs[choice.at], choice, question) for choice in choices]
        best = best_choices(program, np.array(holds, dtype=np.float64))
        if isinstance(best, NoSolution):
            return SizePlan({found.seq: Target(found.tasks) for found in jobs if found.tasks})
        chosen = [choices[index] for index in np.flatnonzero(best).tolist()]
        chosen.sort(key=lambda choice: (-choice.milli, choice.at))
        return SizePlan({jobs[choice.at].seq: choice.target for choice in chosen})

    def _program(self, jobs: list[Candidate], choices: list[SiaConfiguration], question: SizeQuestion) -> Program:
        owner = np.array([choice.at for choice in choices], dtype=np.int64)
        goodput = np.array([choice.goodput for choice in choices])
        least = np.full(len(jobs), np.inf)
        np.minimum.at(least, owner, goodput)
        stays = np.array([self._stays(jobs[choice.at], choice, question) for choice in choices])
        factor = np.array([self._restart_factor(found, question.now_s) for found in jobs])[owner]
        worth = goodput / least[owner] * np.where(stays, 1.0, factor)
        size = len(choices)
        program = Program(
            gain=self._params.idle - worth**self._params.power,
            lower=np.zeros(size),
            upper=np.ones(size),
            whole=np.ones(size, dtype=np.bool_),
            gap=_GAP,
        )
        rows = len(jobs)
        program.add_rows(owner, np.arange(size), np.ones(size), np.full(rows, -np.inf), np.ones(rows))
        pool_of = np.array([choice.pool for choice in choices], dtype=np.int64)
        milli = np.array([choice.milli for choice in choices], dtype=np.float64)
        for index, room in enumerate(_room(question)):
            mine = np.flatnonzero(pool_of == index)
            if mine.size:
                program.add_row(mine, milli[mine], high=float(room))
        return program

    def _choices(self, at: int, found: Candidate, question: SizeQuestion) -> list[SiaConfiguration]:
        choices: list[SiaConfiguration] = []
        allowed = set(self._book.allowed(found))
        for index, pool in enumerate(question.pools):
            ratio = self._type_ratio(found, pool.device_type)
            if not ratio or not pool.usable:
                continue
            per_node = _node_devices(pool)
            shapes = [tasks for tasks in whole_shapes(found, per_node) if tasks in allowed]
            sizes = tuple(tasks for tasks in shapes if tasks * found.per_task_milli <= pool.usable * WHOLE)
            if not sizes:
                continue
            goodput = self._book.goodput(found, sizes, per_node)
            for tasks, rate in zip(sizes, goodput.tolist(), strict=True):
                target = Target(tasks, pool.device_type if len(found.live.job.roles) == 1 else None)
                if rate > 0:
                    choices.append(SiaConfiguration(at, target, index, tasks * found.per_task_milli, rate * ratio))
        return choices

    def _type_ratio(self, found: Candidate, kind: DeviceType) -> float:
        """How fast the job is on a type, by a short profile at its smallest size."""
        job = found.live.job
        return self._speed.at_size(job, kind, found.sizes[0]) if found.is_elastic else self._speed.on_type(job, kind)

    def _stays(self, found: Candidate, choice: SiaConfiguration, question: SizeQuestion) -> bool:
        """Whether a configuration is what the job has; one that waits has nothing to lose."""
        if not found.tasks:
            return True
        return found.tasks == choice.target.tasks and found.device_type == question.pools[choice.pool].device_type

    def _restart_factor(self, found: Candidate, now_s: float) -> float:
        """(T - N S) / (T + S): what a job of age T, restarted N times at S seconds each, keeps of its goodput."""
        age_s, cost_s = now_s - found.live.submitted_s, self._restart_s
        if age_s + cost_s <= 0:
            return _MOST_FACTOR
        restarts = found.live.preemptions + found.live.restarts
        return min(max((age_s - restarts * cost_s) / (age_s + cost_s), _LEAST_FACTOR), _MOST_FACTOR)


def _node_devices(pool: Pool) -> int:
    return max(len(pool.by_free) - 1, 1)


def _room(question: SizeQuestion) -> list[int]:
    """Thousandths by pool that candidates may share out: what is free there, and what they hold there themselves."""
    held = dict.fromkeys(range(len(question.pools)), 0)
    index = {pool.device_type: at for at, pool in enumerate(question.pools)}
    for found in question.candidates:
        if found.tasks and found.device_type is not None:
            held[index[found.device_type]] += found.live.gpu_milli
    return [pool.free * WHOLE + held[at] for at, pool in enumerate(question.pools)]


sia = elastic(
    "sia",
    Sia,
    cites="Jayaram Subramanya et al., SOSP 2023",
    summary="The device type and size for each job by an integer program over goodput, learned while jobs run.",
    differs=(
        "goodput on a type where a job has not run yet is scaled from a profile at its smallest size. The program is "
        "solved to within 0.2% of its optimum; what jobs have is kept where that is as good."
    ),
    params=SiaParams,
    plans_in_rounds=True,
    traits=Traits(
        prior_knowledge="speed by type, profiled",
        scheduling_input="step times, gradient noise, types",
        dimensions="time and space",
        priority="sum of normalised goodput",
        preemption="at intervals, and resizing",
        starvation="no",
        placement="consolidated",
        intrusiveness="elastic training, batch size tuned",
    ),
)
