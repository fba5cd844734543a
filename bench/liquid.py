"""Network cost of placements on 64 nodes in 4 racks and 2 domains, partly occupied, for a mix of rings and servers.

Batches of 100 tasks: random, `liquid` one by one, and `liquid-batch` with its default search budget and CPU seconds.
Then batches of up to 12 tasks against the optimum of an integer program.
"""

from __future__ import annotations

import random
import statistics
import time

from exact_layout import optimum

from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import Job, JobId, NodeId, Role
from rota.core.model.placement import Slot
from rota.core.state.inventory import Inventory
from rota.mechanisms.network.genetic import SearchBudget, improve
from rota.mechanisms.network.layout import BatchLayout, PlacementBatch, best_fit, free_on, interleaved, nodes_for
from rota.perf.speed.network import LEVELS, Distances

CLUSTER = Cluster(
    nodes=tuple(Node(id=NodeId(f"n{i}"), devices=4, rack=f"r{i // 16}", domain=f"d{i // 32}") for i in range(64))
)
SIZES = (2, 3, 4, 4, 6, 8, 8, 12)
GBIT = 1_000_000_000
BATCHES, BUSY = 5, 0.5
SMALL, SMALL_BUSY, SMALL_BATCHES = (6, 8, 10, 12), 0.8, 5


def jobs(chance: random.Random, tasks: int) -> list[Job]:
    """Return jobs, half of them rings and half with servers on CPUs, with that many tasks in total."""
    made: list[Job] = []
    while tasks:
        size = min(tasks, chance.choice(SIZES))
        network_bps = chance.choice((1, 2, 4)) * GBIT
        servers = (size >= 3) * (1 + (size >= 6)) if chance.random() < 0.5 else 0
        roles: tuple[Role, ...] = (Role(count=size - servers, network_bps=network_bps),)
        if servers:
            roles = (Role(name="ps", count=servers, device_milli=0), *roles)
        made.append(Job(id=JobId(f"j{len(made)}"), roles=roles))
        tasks -= size
    return made


def batch(seed: int, tasks: int, busy: float) -> PlacementBatch:
    """Return a batch on a cluster of which a fraction of the devices is allocated."""
    chance, inventory = random.Random(seed), Inventory(CLUSTER)
    for index, node in enumerate(CLUSTER.nodes):
        taken = sum(chance.random() < busy for _ in range(node.devices))
        if taken:
            inventory.take((Slot(index, (1 << taken) - 1, taken),), (Role(),))
    asked = jobs(chance, tasks)
    return PlacementBatch(
        jobs=asked,
        tasks=interleaved(asked, [[nodes_for(inventory, role, 0, -1) for role in job.roles] for job in asked]),
        free=[free_on(books) for books in inventory.nodes],
        devices=[node.devices for node in CLUSTER.nodes],
        distances=Distances(CLUSTER.nodes, LEVELS),
    )


def at_random(of: PlacementBatch, chance: random.Random) -> BatchLayout:
    """Place every task on a random node with room."""
    layout = BatchLayout(of)
    for number, task in enumerate(of.tasks):
        layout.assign(number, chance.choice([node for node in task.nodes if layout.fits(number, node)]))
    return layout


def one_by_one(of: PlacementBatch) -> BatchLayout:
    """Place the tasks one by one, each where it adds the least cost."""
    layout = best_fit(of)
    assert layout is not None
    return layout


def main() -> None:
    heads = ("random", "liquid", "batch", "/liquid", "/random", "CPU", "wall")
    print(f"{'100 tasks':12} {' '.join(f'{head:>8}' for head in heads)}")
    ratios = []
    for seed in range(BATCHES):
        of = batch(seed, 100, BUSY)
        any_way, greedy = at_random(of, random.Random(seed)).network_cost, one_by_one(of)
        began, cpu = time.perf_counter(), time.process_time()
        cost = improve(greedy, SearchBudget(), random.Random(seed)).network_cost
        cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - began
        first = greedy.network_cost
        ratios.append((cost / first, cost / any_way))
        print(
            f"batch {seed:<6} {any_way:8.0f} {first:8.0f} {cost:8.0f} {cost / first:8.2f} {cost / any_way:8.2f} "
            f"{cpu_s:6.2f} s {wall_s:6.2f} s",
            flush=True,
        )
    to_liquid, to_random = (statistics.mean(column) for column in zip(*ratios, strict=True))
    print(f"mean of the ratios: {to_liquid:.2f} of liquid, {to_random:.3f} of random")

    gaps = []
    for tasks in SMALL:
        for seed in range(SMALL_BATCHES):
            of = batch(seed, tasks, SMALL_BUSY)
            best = optimum(of, CLUSTER.nodes, LEVELS)
            assert best is not None
            gaps.append(improve(one_by_one(of), SearchBudget(), random.Random(seed)).score / best - 1.0)
    print(
        f"{len(gaps)} batches of {SMALL[0]} to {SMALL[-1]} tasks: {max(gaps):.1%} above the optimum at most, "
        f"{sum(gap < 1e-6 for gap in gaps)} of them optimal"
    )


if __name__ == "__main__":
    main()
