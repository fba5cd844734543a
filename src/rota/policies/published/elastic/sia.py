"""Sia (Jayaram Subramanya et al., SOSP 2023): one size and device type for each job, by an integer program.

A configuration is a fraction of a node by powers of two, or whole nodes, of one type. Goodputs of a job are normalised
by its smallest; the program minimises the sum of goodput^p (p = -0.5) over chosen configurations, with 1.1 for a job
without one. A configuration that needs a restart is discounted by what the restart costs a job of its age. Goodput is
learned while jobs run, scaled between types by a short profile, and a job at most doubles its size. A job whose speed
is known at each size, as by its plans, has nothing to learn and may get any size.
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
from rota.mechanisms.elastic.rule import Candidate, SizePlan, SizeQuestion, Target, even_sizes
from rota.mechanisms.solvers.lp import NoSolution, Program
from rota.mechanisms.solvers.set_packing import best_choices

_GAP = 2e-3
"""Relative optimality gap at which the solver may stop."""
_MOST_FACTOR = 0.99
"""Largest restart factor: below 1, or equivalent jobs would swap placements for no gain."""
_LEAST_FACTOR = 0.05
"""Smallest restart factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiaParams:
    """Seconds between plans, the power of goodput, and the cost of a job without devices."""

    round_s: float = 60.0
    power: float = -0.5
    idle: float = 1.1

    def __post_init__(self) -> None:
        if not 0 < self.round_s < math.inf:
            raise RotaError(f"round_s is {self.round_s:g}; it must be above 0 and not endless")
        if not -5 <= self.power < 0:
            raise RotaError(f"power is {self.power:g}; it must be below 0 and at least -5")
        if not self.idle > 1:
            raise RotaError(f"idle is {self.idle:g}; it must be above 1, otherwise some jobs never run")


class SiaConfiguration(NamedTuple):
    """A configuration of a job and its goodput."""

    at: int
    target: Target
    pool: int
    milli: int
    goodput: float


class Sia(GoodputRule):
    """Rule that solves an integer program whenever anything has changed."""

    def __init__(self, params: SiaParams, knowledge: Knowledge) -> None:
        super().__init__(params.round_s, knowledge.reports)
        self._params = params
        self._speed = knowledge.speed
        self._restart_s = knowledge.restart_s
        self._solved: tuple[float, SizePlan] = (-math.inf, SizePlan({}))

    def choose(self, jobs: list[Candidate], question: SizeQuestion, mark: int) -> SizePlan:
        """Solve the integer program; at the same moment again, complete its plan.

        Jobs whose speeds are known have the same gain where they have the same model: solved again, equal jobs could
        alternate without end.
        """
        solved_s, plan = self._solved
        if solved_s == question.now_s and any(self._speed.knows_sizes(found.live.job) for found in jobs):
            present = {found.seq: found for found in jobs}
            kept = {seq: target for seq, target in plan.targets.items() if seq in present}
            started = [found for found in jobs if found.tasks and found.seq not in kept]
            return SizePlan({**kept, **{found.seq: Target(found.tasks) for found in started}})
        self._solved = (question.now_s, self._solution(jobs, question))
        return self._solved[1]

    def _solution(self, jobs: list[Candidate], question: SizeQuestion) -> SizePlan:
        """Solve the integer program over the configurations of these jobs."""
        choices = [choice for at, found in enumerate(jobs) for choice in self._choices(at, found, question)]
        if not choices:
            return SizePlan({})
        program = self._program(jobs, choices, question)
        holds = [
            bool(jobs[choice.at].tasks) and self._is_present(jobs[choice.at], choice, question) for choice in choices
        ]
        owner = np.array([choice.at for choice in choices], dtype=np.int64)
        best = best_choices(program, np.array(holds, dtype=np.float64), owner)
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
        stays = np.array([self._is_present(jobs[choice.at], choice, question) for choice in choices])
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
        is_known = found.is_elastic and self._speed.knows_sizes(found.live.job)
        allowed = set(found.sizes if is_known else self._observations.allowed(found))
        for index, pool in enumerate(question.pools):
            ratio = 1.0 if is_known else self._type_ratio(found, pool.device_type)
            if not ratio or not pool.usable:
                continue
            per_node = _node_devices(pool)
            shapes = [tasks for tasks in even_sizes(found, per_node) if tasks in allowed]
            sizes = tuple(tasks for tasks in shapes if tasks * found.per_task_milli <= pool.usable * WHOLE)
            if not sizes:
                continue
            if is_known:
                goodput = [self._planned(found, tasks, pool.device_type, per_node) for tasks in sizes]
            else:
                goodput = self._observations.goodput(found, sizes, per_node).tolist()
            for tasks, rate in zip(sizes, goodput, strict=True):
                target = Target(tasks, pool.device_type if len(found.live.job.roles) == 1 else None)
                if rate > 0:
                    choices.append(SiaConfiguration(at, target, index, tasks * found.per_task_milli, rate * ratio))
        return choices

    def _planned(self, found: Candidate, tasks: int, kind: DeviceType, per_node: int) -> float:
        """Return the speed at a size on a type of a job whose speed is known at each size."""
        several = found.gpus(tasks) > per_node
        return self._speed.at_size(found.live.job, kind, tasks, several_nodes=several)

    def _type_ratio(self, found: Candidate, kind: DeviceType) -> float:
        """Return the relative speed of a job on a type, by a short profile at its smallest size."""
        job = found.live.job
        return self._speed.at_size(job, kind, found.sizes[0]) if found.is_elastic else self._speed.on_type(job, kind)

    def _is_present(self, found: Candidate, choice: SiaConfiguration, question: SizeQuestion) -> bool:
        """Return whether a configuration is the present one; a waiting job has none."""
        if not found.tasks:
            return True
        return found.tasks == choice.target.tasks and found.device_type == question.pools[choice.pool].device_type

    def _restart_factor(self, found: Candidate, now_s: float) -> float:
        """Return (T - N S) / (T + S): the goodput kept by a job of age T after N restarts of S seconds each."""
        age_s, cost_s = now_s - found.live.submitted_s, self._restart_s
        if age_s + cost_s <= 0:
            return _MOST_FACTOR
        restarts = found.live.preemptions + found.live.restarts
        return min(max((age_s - restarts * cost_s) / (age_s + cost_s), _LEAST_FACTOR), _MOST_FACTOR)


def _node_devices(pool: Pool) -> int:
    return max(len(pool.by_free) - 1, 1)


def _room(question: SizeQuestion) -> list[int]:
    """Return the thousandths of each pool to allocate: what is free and what candidates hold."""
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
    summary="Device type and size of each job by an integer program over goodput, learned online.",
    differs=(
        "goodput on a type where a job has not run yet is scaled from a profile at its smallest size. The program is "
        "solved to within 0.2% of its optimum; present configurations win ties. With hundreds of jobs of many shapes "
        "that takes hundredths of a second for most rounds; with a restart cost, by which running jobs of different "
        "ages differ, a tenth of a second or more, and a few seconds for some."
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
