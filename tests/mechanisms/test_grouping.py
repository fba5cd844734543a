"""Layouts of batches: the search against every layout there is and against a program of whole numbers."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import replace

import pytest
from exact_layout import optimum

from builders import cluster, job, node
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job, Role
from rota.core.model.placement import Slot
from rota.core.state.inventory import Inventory
from rota.mechanisms.network.genetic import SearchBudget, _parent, improve
from rota.mechanisms.network.layout import (
    BatchLayout,
    Opening,
    PlacementBatch,
    best_fit,
    free_on,
    interleaved,
    nodes_for,
)
from rota.perf.speed.network import LEVELS, NODE_COUNTS, Distances, Weighting, network_cost

SMALL = cluster(*(node(f"n{i}", 2, rack=f"r{i // 2}", domain=f"d{i // 3}") for i in (0, 1, 3, 4)))
LARGE = cluster(*(node(f"n{i}", 4, rack=f"r{i // 4}", domain=f"d{i // 8}") for i in range(16)))
QUICK = SearchBudget(work=8_000)
GBIT = 1_000_000_000


def some_jobs(chance: random.Random, tasks: int) -> list[Job]:
    """Rings and jobs with servers, of so many tasks together."""
    jobs: list[Job] = []
    while tasks:
        size = min(tasks, chance.randint(2, 5))
        network_bps = chance.randint(1, 4) * GBIT
        roles: tuple[Role, ...] = (Role(count=size, network_bps=network_bps),)
        if size > 2 and chance.random() < 0.5:
            servers = Role(name="ps", count=size // 2, device_milli=0)
            roles = (servers, Role(count=size - size // 2, network_bps=network_bps))
        jobs.append(job(f"j{len(jobs)}", roles=roles))
        tasks -= size
    return jobs


def batch_of(of: Cluster, jobs: list[Job], seed: int = 0, busy: float = 0.0, by: Weighting = LEVELS) -> PlacementBatch:
    inventory, chance = Inventory(of), random.Random(seed)
    for index, each in enumerate(of.nodes):
        taken = sum(chance.random() < busy for _ in range(each.devices))
        if taken:
            inventory.take((Slot(index, (1 << taken) - 1, taken),), (Role(),))
    nodes = [[nodes_for(inventory, role, 0, -1) for role in each.roles] for each in jobs]
    return PlacementBatch(
        jobs=jobs,
        tasks=interleaved(jobs, nodes),
        free=[free_on(account) for account in inventory.nodes],
        devices=[each.devices for each in of.nodes],
        distances=Distances(of.nodes, by),
    )


def exhaustive(batch: PlacementBatch) -> float:
    """The least score of all layouts."""
    scores = []
    for where in itertools.product(*(task.nodes for task in batch.tasks)):
        layout = BatchLayout(batch)
        for number, at in enumerate(where):
            if not layout.fits(number, at):
                break
            layout.assign(number, at)
        else:
            scores.append(layout.score)
    return min(scores)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_program_and_search_find_the_least_of_all_layouts(seed: int) -> None:
    batch = batch_of(SMALL, some_jobs(random.Random(seed), 5), seed, busy=0.2)
    least = exhaustive(batch)
    first = best_fit(batch)
    assert first is not None

    assert optimum(batch, SMALL.nodes, LEVELS) == pytest.approx(least)
    assert improve(first, QUICK, random.Random(0)).score == pytest.approx(least)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_search_is_within_three_per_cent_of_the_optimum(seed: int) -> None:
    batch = batch_of(LARGE, some_jobs(random.Random(seed), 12), seed, busy=0.6)
    first = best_fit(batch)
    best = optimum(batch, LARGE.nodes, LEVELS)
    assert first is not None
    assert best is not None

    found = improve(first, SearchBudget(work=60_000), random.Random(0)).score
    assert best - 1e-6 <= found <= 1.03 * best


def test_no_layout_is_said_by_all() -> None:
    batch = batch_of(SMALL, [job(workers=9)])

    assert best_fit(batch) is None
    assert optimum(batch, SMALL.nodes, LEVELS) is None


@pytest.mark.slow
def test_search_is_never_worse_and_the_same_again_for_a_seed() -> None:
    for seed in range(3):
        batch = batch_of(LARGE, some_jobs(random.Random(seed), 20), seed, busy=0.3)
        first = best_fit(batch)
        assert first is not None
        one, other = (improve(first, QUICK, random.Random(seed)) for _ in range(2))

        assert one.where == other.where
        assert one.score <= first.score


@pytest.mark.slow
def test_the_cost_kept_along_the_way_is_that_of_the_placements() -> None:
    batch = batch_of(LARGE, some_jobs(random.Random(1), 20), 1, busy=0.3)
    first = best_fit(batch)
    assert first is not None
    found = improve(first, QUICK, random.Random(0))

    total = 0.0
    for index, asked in enumerate(batch.jobs):
        placement = tuple(Slot(at, 0, tasks, role) for role, at, tasks in found.pieces(index))
        total += network_cost(asked, placement, batch.distances)
    assert found.network_cost == pytest.approx(total)


def test_nobody_is_put_across_domains_where_that_is_barred() -> None:
    batch = batch_of(LARGE, some_jobs(random.Random(2), 24), 2, busy=0.2, by=NODE_COUNTS)
    first = best_fit(batch)
    assert first is not None

    assert improve(first, QUICK, random.Random(0)).network_cost < float("inf")


def test_search_needs_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_clock() -> float:
        raise AssertionError("a simulated search must not read the clock")

    for name in ("monotonic", "perf_counter", "time", "process_time"):
        monkeypatch.setattr(time, name, no_clock)
    first = best_fit(batch_of(LARGE, some_jobs(random.Random(3), 40), 3))
    assert first is not None

    assert improve(first, QUICK, random.Random(0)).score <= first.score


@pytest.mark.parametrize(
    ("tasks", "nodes", "offspring"), [(10, 1, 640), (10, 64, 640), (10, 128, 320), (20, 64, 320), (0, 64, 6400)]
)
def test_budget_counts_tasks_of_offspring_and_nodes_beyond_the_usual(tasks: int, nodes: int, offspring: int) -> None:
    assert SearchBudget(work=6400).offspring(tasks, nodes) == offspring


class CountingRandom(random.Random):
    """Counts how often a layout of a population is selected."""

    selections = 0

    def randrange(self, *limits: int) -> int:  # type: ignore[override] # the search passes one limit
        self.selections += limits[0] > len(Opening)
        return super().randrange(*limits)


def test_budget_ends_the_search() -> None:
    batch = batch_of(LARGE, some_jobs(random.Random(3), 40), 3)
    first = best_fit(batch)
    assert first is not None
    chance = CountingRandom(0)

    improve(first, SearchBudget(work=50 * len(batch.tasks)), chance)

    assert chance.selections == 50 * 4, "two tournaments of two for each layout that the budget pays for"


def test_budget_is_not_negative() -> None:
    with pytest.raises(RotaError, match="work is -1"):
        SearchBudget(work=-1)


@pytest.mark.parametrize(
    ("opening", "expected"), [(Opening.PUBLISHED, 0), (Opening.ROOMY, 1), (Opening.SNUG, 0)], ids=lambda case: str(case)
)
def test_openings_break_ties_by_load(opening: Opening, expected: int) -> None:
    """Of two nodes at equal network cost, the first has two of four devices free, the second all."""
    of = cluster(node("full", 4), node("empty", 4))
    batch = batch_of(of, [job()])
    free = [(2, *batch.free[0][1:]), batch.free[1]]

    assert BatchLayout(replace(batch, free=free)).best_node(0, opening, left=1) == expected


def test_better_of_two_random_layouts_becomes_a_parent() -> None:
    batch = batch_of(SMALL, [job()])
    better, worse = BatchLayout(batch), BatchLayout(batch)

    for seed in range(20):
        draws = random.Random(seed)
        both = draws.randrange(2), draws.randrange(2)
        expected = worse if both == (1, 1) else better
        assert _parent([(1.0, better), (2.0, worse)], random.Random(seed)) is expected
