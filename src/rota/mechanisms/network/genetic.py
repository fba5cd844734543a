"""A grouping genetic algorithm over the layouts of a batch: what lies on one node is passed on together.

Population and patience are those of Gu et al. (TPDS 2022): 30 and half a layout for each task; the end after 30
generations and one for each task without gain. A child takes the tasks of one node as its other parent has them,
or has a node emptied or a job moved, and settles again whoever lost their place.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.mechanisms.network.layout import NOWHERE, BatchLayout, Opening, PlacementBatch

_GAIN = 1e-6
"""What counts as getting better."""
_OPENINGS = tuple(Opening)
USUAL_NODES = 64
FEWEST = 20
"""Layouts to begin with, however little may be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """When to stop: after so many seconds, and after so many tasks were touched in all children together, fewer where
    there are more nodes than `USUAL_NODES` to look at for each.

    The first depends on the machine, so that a run that it cuts short can't be repeated; the second does not.
    """

    limit_s: float = 30.0
    work: int = 90_000

    def __post_init__(self) -> None:
        if not self.limit_s > 0 or self.work < 0:
            raise RotaError(f"limit_s is {self.limit_s:g} and work {self.work}; they must be above 0 and not negative")


def improve(first: BatchLayout, effort: Effort, chance: random.Random) -> BatchLayout:
    """The best layout that is found; never worse than the first."""
    batch = first.batch
    tasks = len(batch.tasks)
    until_s = time.monotonic() + effort.limit_s
    size, patience = 30 + tasks // 2, 30 + tasks
    children = effort.work * USUAL_NODES // (max(tasks, 1) * max(len(batch.free), USUAL_NODES))
    strangers = min(size - 1, max(FEWEST, children // 2))
    population = _ranked([first, *_strangers(batch, strangers, chance, until_s)])
    if not population:
        return first
    best, stalled = population[0][0], 0
    while stalled < patience and children > 0 and time.monotonic() < until_s:
        born = []
        for _ in range(min(size, children)):
            child = _child(population, chance)
            if child is not None:
                born.append(child)
        children -= size
        population = _fittest(population + _ranked(born), size)
        stalled = 0 if population[0][0] < best - _GAIN else stalled + 1
        best = population[0][0]
    return population[0][1]


_Scored = tuple[float, BatchLayout]


def _ranked(layouts: list[BatchLayout]) -> list[_Scored]:
    scored = ((layout.score, layout) for layout in layouts)
    return sorted((entry for entry in scored if entry[0] < math.inf), key=lambda entry: entry[0])


def _fittest(scored: list[_Scored], size: int) -> list[_Scored]:
    """The best, those first that differ."""
    scored.sort(key=lambda entry: entry[0])
    seen: set[tuple[int, ...]] = set()
    fresh = []
    for score, layout in scored:
        key = tuple(layout.where)
        if key not in seen:
            seen.add(key)
            fresh.append((score, layout))
            if len(fresh) == size:
                break
    return fresh


def _strangers(batch: PlacementBatch, count: int, chance: random.Random, until_s: float) -> list[BatchLayout]:
    """Layouts to begin with: jobs in any order by best fit, every second one from any node on; fewer if time is up."""
    found = []
    for number in range(count):
        if time.monotonic() >= until_s:
            break
        layout = BatchLayout(batch)
        order = list(range(len(batch.jobs)))
        chance.shuffle(order)
        placed = all(
            _rehome(layout, job, chance) if number % 2 else layout.settle(batch.by_job[job], _OPENINGS[number // 2 % 3])
            for job in order
        )
        if placed:
            found.append(layout)
    return found


def _child(population: list[_Scored], chance: random.Random) -> BatchLayout | None:
    mother, father = _parent(population, chance), _parent(population, chance)
    child = mother.copy()
    if mother is not father and _tossed(chance) and not _inherit(child, father, chance):
        return None
    return child if _mutate(child, chance) else None


def _parent(population: list[_Scored], chance: random.Random) -> BatchLayout:
    """The better of two; the population is in order."""
    return population[min(chance.randrange(len(population)), chance.randrange(len(population)))][1]


def _inherit(child: BatchLayout, father: BatchLayout, chance: random.Random) -> bool:
    """Lay the tasks of one node as the other parent has them, and settle those again who were there."""
    node = chance.choice(father.where)
    group = [number for number, at in enumerate(father.where) if at == node]
    evicted = [number for number, at in enumerate(child.where) if at == node and father.where[number] != node]
    for number in (*group, *evicted):
        child.remove(number)
    for number in group:
        child.put(number, node)
    return child.settle(evicted, _opening(chance))


def _mutate(child: BatchLayout, chance: random.Random) -> bool:
    """Empty a node, move a job from any node on, or take jobs out and place them again in another order."""
    kind = chance.randrange(3)
    if kind == 0:
        node = chance.choice(child.where)
        numbers = [number for number, at in enumerate(child.where) if at == node]
        for number in numbers:
            child.remove(number)
        chance.shuffle(numbers)
        return child.settle(numbers, _opening(chance), avoid=node if _tossed(chance) else NOWHERE)
    jobs = chance.sample(range(len(child.batch.jobs)), k=min(1 if kind == 1 else 3, len(child.batch.jobs)))
    for number in (number for job in jobs for number in child.batch.by_job[job]):
        child.remove(number)
    return _rehome(child, jobs[0], chance) if kind == 1 else all(map(child.settle_job, jobs))


def _rehome(layout: BatchLayout, job: int, chance: random.Random) -> bool:
    """Place a job that is nowhere: one task on any node with room, the others by best fit."""
    numbers = list(layout.batch.by_job[job])
    chance.shuffle(numbers)
    room = [node for node in layout.batch.tasks[numbers[0]].nodes if layout.fits(numbers[0], node)]
    if not room:
        return False
    layout.put(numbers[0], chance.choice(room))
    return layout.settle(numbers[1:], _opening(chance))


def _tossed(chance: random.Random) -> bool:
    return chance.random() < 0.5


def _opening(chance: random.Random) -> Opening:
    return _OPENINGS[chance.randrange(len(_OPENINGS))]
