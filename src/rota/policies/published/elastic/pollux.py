"""Pollux (Qiao et al., OSDI 2021): sizes that maximise goodput, found by a genetic search.

A job's speedup is its goodput relative to that with an equal share of the cluster. The search maximises the power mean
(p = -1) of all speedups, less a penalty for each job that is restarted. Goodput is learned while jobs run, and a job is
tried at no more than twice its largest size so far. The search is over numbers of tasks; the elastic scheduler places
them. One initial individual is a greedy allocation, so that few generations suffice.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import RotaError
from rota.mechanisms.declare import Knowledge, Traits
from rota.mechanisms.elastic.declare import elastic
from rota.mechanisms.elastic.goodput import GoodputRule
from rota.mechanisms.elastic.rule import Candidate, SizePlan, SizeQuestion, Target

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_STARVED = 0.01
"""Speedup that counts for a job without devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolluxParams:
    """Plans every `round_s` seconds by the mean of power `power`; a restart costs `restart_penalty` in speedup.

    The search has `population` individuals and ends after `generations`, or after `patience` without a gain.
    """

    round_s: float = 60.0
    power: float = -1.0
    restart_penalty: float = 0.1
    population: int = 32
    generations: int = 30
    patience: int = 6

    def __post_init__(self) -> None:
        if not 0 < self.round_s < math.inf:
            raise RotaError(f"round_s is {self.round_s:g}; it must be above 0 and not endless")
        if not self.power or self.power > 1:
            raise RotaError(f"power is {self.power:g}; it must be at most 1, and not 0")
        if self.population < 4 or self.generations < 0:
            raise RotaError("population must be at least 4 and generations at least 0")


class GeneticSearch:
    """Genetic search over sizes. An individual has a level for each job: 0 for none, n for the n-th of its sizes."""

    def __init__(
        self, jobs: list[Candidate], speedups: list[Floats], sizes: list[tuple[int, ...]], free_milli: int
    ) -> None:
        deepest = max(len(own) for own in sizes)
        self.count = len(jobs)
        self.free_milli = free_milli
        self.levels = np.array([len(own) for own in sizes], dtype=np.int64)
        self.milli = np.zeros((self.count, deepest + 1), dtype=np.int64)
        self.speedup = np.full((self.count, deepest + 1), _STARVED)
        self.now = np.zeros(self.count, dtype=np.int64)
        for at, (found, own, gain) in enumerate(zip(jobs, sizes, speedups, strict=True)):
            self.milli[at, 1 : len(own) + 1] = np.array(own) * found.per_task_milli
            self.speedup[at, 1 : len(own) + 1] = np.maximum(gain, _STARVED)
            self.now[at] = own.index(found.tasks) + 1 if found.tasks in own else 0
        self.runs = np.array([found.tasks > 0 for found in jobs])
        self.rows = np.arange(self.count)

    def fitness(self, individuals: Ints, power: float, penalty: float) -> Floats:
        """Return the power mean of speedups of each individual, less restart penalties."""
        gained = self.speedup[self.rows, individuals]
        gained = np.maximum(gained - penalty * ((individuals != self.now) & self.runs & (individuals > 0)), _STARVED)
        mean: Floats = (gained**power).mean(axis=1) ** (1.0 / power)
        return mean

    def greedy(self, power: float) -> Ints:
        """Allocate every job its smallest size in order, then repeat the step that raises the mean most per device."""
        levels = np.zeros(self.count, dtype=np.int64)
        left = self.free_milli
        for at in np.argsort(self.milli[:, 1], kind="stable").tolist():
            if self.levels[at] and self.milli[at, 1] <= left:
                levels[at] = 1
                left -= int(self.milli[at, 1])
        worth = np.sign(power) * self.speedup**power
        heap: list[tuple[float, int]] = []

        def offer(at: int) -> None:
            level = int(levels[at])
            if 0 < level < self.levels[at]:
                more = max(int(self.milli[at, level + 1] - self.milli[at, level]), 1)
                gain = float(worth[at, level + 1] - worth[at, level]) / more
                if gain > 0:
                    heapq.heappush(heap, (-gain, at))

        for at in range(self.count):
            offer(at)
        while heap:
            _, at = heapq.heappop(heap)
            more = int(self.milli[at, levels[at] + 1] - self.milli[at, levels[at]])
            if more <= left:
                left -= more
                levels[at] += 1
                offer(at)
        return levels

    def repaired(self, individuals: Ints, rng: np.random.Generator) -> Ints:
        """Fit individuals to the free devices: smallest sizes in random order first, then larger ones."""
        order = np.argsort(rng.random(individuals.shape), axis=1)
        wanted = np.take_along_axis(individuals, order, axis=1)
        jobs = self.rows[order]
        least = np.where(wanted > 0, self.milli[jobs, np.minimum(wanted, 1)], 0)
        has = np.cumsum(least, axis=1) <= self.free_milli
        wanted = np.where(has, wanted, 0)
        left = self.free_milli - (least * has).sum(axis=1, keepdims=True)
        extra = self.milli[jobs, wanted] - np.where(wanted > 0, self.milli[jobs, np.minimum(wanted, 1)], 0)
        wanted = np.where(np.cumsum(extra, axis=1) <= left, wanted, np.minimum(wanted, 1))
        fixed = np.zeros_like(individuals)
        np.put_along_axis(fixed, order, wanted, axis=1)
        return fixed

    def run(self, params: PolluxParams, rng: np.random.Generator) -> Ints:
        """Return the fittest individual after the configured number of generations."""
        individuals = rng.integers(0, self.levels + 1, size=(params.population, self.count))
        individuals[0], individuals[1] = self.now, self.greedy(params.power)
        individuals = self.repaired(individuals, rng)
        half = params.population // 2
        best_fit, stalled = -np.inf, 0
        for _ in range(params.generations):
            fit = self.fitness(individuals, params.power, params.restart_penalty)
            stalled = 0 if fit.max() > best_fit else stalled + 1
            if stalled > params.patience:
                break
            best_fit = fit.max()
            individuals = individuals[np.argsort(-fit, kind="stable")[:half]]
            pairs = rng.integers(0, half, size=(2, params.population - half))
            mixed = np.where(
                rng.random((params.population - half, self.count)) < 0.5, individuals[pairs[0]], individuals[pairs[1]]
            )
            change = rng.random(mixed.shape) < 2.0 / self.count
            mixed = np.where(change, rng.integers(0, self.levels + 1, size=mixed.shape), mixed)
            individuals = np.concatenate([individuals, self.repaired(mixed, rng)])
        fit = self.fitness(individuals, params.power, params.restart_penalty)
        best: Ints = individuals[int(np.argmax(fit))]
        return best


class Pollux(GoodputRule):
    """Rule whose random choices depend on the question and the seed alone, so that it needs no memory for them."""

    def __init__(self, params: PolluxParams, knowledge: Knowledge) -> None:
        super().__init__(params.round_s, knowledge.reports)
        self._params = params
        self._seed = knowledge.seed

    def choose(self, jobs: list[Candidate], question: SizeQuestion, mark: int) -> SizePlan:
        """Search for the best sizes of these jobs."""
        if not jobs:
            return SizePlan({})
        rng = np.random.default_rng([self._seed, mark])
        sizes = [self._observations.allowed(found) for found in jobs]
        speedups = [self._speedup(found, own, question, len(jobs)) for found, own in zip(jobs, sizes, strict=True)]
        levels = GeneticSearch(jobs, speedups, sizes, question.free_milli).run(self._params, rng).tolist()
        chosen = [(found, own[level - 1]) for found, own, level in zip(jobs, sizes, levels, strict=True) if level]
        chosen.sort(key=lambda pair: (-pair[0].gpus(pair[1]), pair[0].seq))
        return SizePlan({found.seq: Target(tasks) for found, tasks in chosen})

    def _speedup(self, found: Candidate, own: tuple[int, ...], question: SizeQuestion, jobs: int) -> Floats:
        """Return goodput at each size relative to that with an equal share of the cluster."""
        share = question.free_milli / jobs / max(found.per_task_milli, 1)
        fair = max((tasks for tasks in found.sizes if tasks <= share), default=found.sizes[0])
        asked = tuple(sorted({*own, fair}))
        goodput = self._observations.goodput(found, asked, question.node_devices)
        base = float(goodput[asked.index(fair)]) or 1.0
        return goodput[[asked.index(tasks) for tasks in own]] / base


pollux = elastic(
    "pollux",
    Pollux,
    draws=True,
    cites="Qiao et al., OSDI 2021",
    summary="Sizes with the best mean speedup of all jobs, by goodput learned online.",
    differs=(
        "the search is over the number of tasks of each job, not over jobs by nodes; placement "
        "consolidates afterwards, and goodput assumes a job to be on as few nodes as possible. Adapting the batch "
        "size is left to the job."
    ),
    params=PolluxParams,
    plans_in_rounds=True,
    traits=Traits(
        prior_knowledge="none",
        scheduling_input="step times, gradient noise",
        dimensions="time and space",
        priority="power mean of speedups",
        preemption="at intervals, and resizing",
        starvation="no",
        placement="consolidated",
        intrusiveness="elastic training, batch size tuned",
    ),
)
