"""Grouping genetic algorithm over the layouts of a batch: the tasks of one node are inherited as a group.

Population size and patience follow Gu et al. (TPDS 2022): 30 layouts plus half a layout per task; the search ends
after 30 generations plus one per task without a gain. Crossover copies the tasks of one node from the second parent.
Mutation empties a node or moves jobs. Tasks that lose their node are placed again by best fit.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from rota.core.errors import RotaError
from rota.mechanisms.network.layout import UNASSIGNED, BatchLayout, Opening, PlacementBatch

_GAIN = 1e-6
"""Smallest decrease of the score that counts as an improvement."""
_OPENINGS = tuple(Opening)
USUAL_NODES = 64
"""Cluster size up to which the budget buys the same number of layouts."""
MIN_INITIAL = 20
"""Initial layouts that are generated however small the budget is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBudget:
    """Limit of a search, counted in task placements so that the result does not depend on the machine's speed.

    `work` is the total number of tasks in all offspring. On clusters of more than `USUAL_NODES` nodes, where each
    placement scans more nodes, the number of offspring is reduced in proportion.
    """

    work: int = 90_000

    def __post_init__(self) -> None:
        if self.work < 0:
            raise RotaError(f"work is {self.work}; it must be 0 or more")

    def offspring(self, tasks: int, nodes: int) -> int:
        """Return how many layouts may be derived for a batch of that many tasks on that many nodes."""
        return self.work * USUAL_NODES // (max(tasks, 1) * max(nodes, USUAL_NODES))


def improve(first: BatchLayout, budget: SearchBudget, chance: random.Random) -> BatchLayout:
    """Return the best layout found within the budget; its score is never above that of `first`."""
    batch = first.batch
    tasks = len(batch.tasks)
    size, patience = 30 + tasks // 2, 30 + tasks
    children = budget.offspring(tasks, len(batch.free))
    initial = min(size - 1, max(MIN_INITIAL, children // 2))
    population = _ranked([first, *_initial_layouts(batch, initial, chance)])
    if not population:
        return first
    best, stalled = population[0][0], 0
    while stalled < patience and children > 0:
        offspring = [_child(population, chance) for _ in range(min(size, children))]
        children -= size
        population = _fittest(population + _ranked([child for child in offspring if child is not None]), size)
        stalled = 0 if population[0][0] < best - _GAIN else stalled + 1
        best = population[0][0]
    return population[0][1]


_Scored = tuple[float, BatchLayout]


def _ranked(layouts: list[BatchLayout]) -> list[_Scored]:
    scored = ((layout.score, layout) for layout in layouts)
    return sorted((entry for entry in scored if entry[0] < math.inf), key=lambda entry: entry[0])


def _fittest(scored: list[_Scored], size: int) -> list[_Scored]:
    """Return the best `size` distinct layouts."""
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


def _initial_layouts(batch: PlacementBatch, count: int, chance: random.Random) -> list[BatchLayout]:
    """Generate layouts by best fit over shuffled jobs; every second one starts each job on a random node."""
    found = []
    for number in range(count):
        layout = BatchLayout(batch)
        order = list(range(len(batch.jobs)))
        chance.shuffle(order)
        placed = all(
            _place_at_random(layout, job, chance)
            if number % 2
            else layout.assign_best(batch.by_job[job], _OPENINGS[number // 2 % 3])
            for job in order
        )
        if placed:
            found.append(layout)
    return found


def _child(population: list[_Scored], chance: random.Random) -> BatchLayout | None:
    first, second = _parent(population, chance), _parent(population, chance)
    child = first.copy()
    if first is not second and _coin_flip(chance) and not _inherit(child, second, chance):
        return None
    return child if _mutate(child, chance) else None


def _parent(population: list[_Scored], chance: random.Random) -> BatchLayout:
    """Select a parent by binary tournament; the population is sorted by score."""
    return population[min(chance.randrange(len(population)), chance.randrange(len(population)))][1]


def _inherit(child: BatchLayout, donor: BatchLayout, chance: random.Random) -> bool:
    """Copy the tasks of one node from the second parent and place the tasks they evict again."""
    node = chance.choice(donor.where)
    group = [number for number, at in enumerate(donor.where) if at == node]
    evicted = [number for number, at in enumerate(child.where) if at == node and donor.where[number] != node]
    for number in (*group, *evicted):
        child.unassign(number)
    for number in group:
        child.assign(number, node)
    return child.assign_best(evicted, _opening(chance))


def _mutate(child: BatchLayout, chance: random.Random) -> bool:
    """Empty a node, move one job to start on a random node, or place up to three jobs again in random order."""
    kind = chance.randrange(3)
    if kind == 0:
        node = chance.choice(child.where)
        numbers = [number for number, at in enumerate(child.where) if at == node]
        for number in numbers:
            child.unassign(number)
        chance.shuffle(numbers)
        return child.assign_best(numbers, _opening(chance), avoid=node if _coin_flip(chance) else UNASSIGNED)
    jobs = chance.sample(range(len(child.batch.jobs)), k=min(1 if kind == 1 else 3, len(child.batch.jobs)))
    for number in (number for job in jobs for number in child.batch.by_job[job]):
        child.unassign(number)
    return _place_at_random(child, jobs[0], chance) if kind == 1 else all(map(child.assign_job, jobs))


def _place_at_random(layout: BatchLayout, job: int, chance: random.Random) -> bool:
    """Place an unplaced job: one task on a random node with room, the others by best fit."""
    numbers = list(layout.batch.by_job[job])
    chance.shuffle(numbers)
    room = [node for node in layout.batch.tasks[numbers[0]].nodes if layout.fits(numbers[0], node)]
    if not room:
        return False
    layout.assign(numbers[0], chance.choice(room))
    return layout.assign_best(numbers[1:], _opening(chance))


def _coin_flip(chance: random.Random) -> bool:
    return chance.random() < 0.5


def _opening(chance: random.Random) -> Opening:
    return _OPENINGS[chance.randrange(len(_OPENINGS))]
