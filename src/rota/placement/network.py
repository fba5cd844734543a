"""Devices close to each other: each task of a job where it adds least network cost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from rota.core.model.job import Job, Locality
from rota.core.model.placement import Placement
from rota.core.state.inventory import Inventory
from rota.mechanisms.network.layout import PlacementBatch, best_fit, free_on, interleaved, nodes_for, placed
from rota.perf.speed.network import Distances, Weighting
from rota.placement.patterns import Pattern
from rota.placement.search import find

_EVERY_NODE = -1


def find_near(inventory: Inventory, job: Job, weighting: Weighting, insist: Locality | None) -> Placement | None:
    """Devices for all tasks of a job, or None.

    Jobs that insist on a locality, that share devices or change their size are placed on as few nodes as possible.
    """
    if insist is not None or job.elastic is not None or any(role.is_fraction for role in job.roles):
        return find(inventory, job, Pattern.FEWEST_NODES, insist)
    distances = Distances([account.node for account in inventory.nodes], weighting)
    for among in _cells(inventory, weighting):
        placement = _near_in(inventory, job, distances, among)
        if placement is not None:
            return placement
    return None if weighting.cluster == math.inf else find(inventory, job, Pattern.FEWEST_NODES, None)


def _cells(inventory: Inventory, weighting: Weighting) -> list[int]:
    """The sets of nodes to try: all at once, or each domain if no job may span several, the fullest first."""
    if weighting.cluster < math.inf:
        return [_EVERY_NODE]

    def free(domain: int) -> int:
        return sum(each.free for index, each in enumerate(inventory.nodes) if each.usable and domain >> index & 1)

    return sorted(inventory.domains.values(), key=free)


def _near_in(inventory: Inventory, job: Job, distances: Distances, among: int) -> Placement | None:
    """By best fit, all tasks of a role on one type."""
    if job.exclusive:
        among &= sum(1 << node for node, account in enumerate(inventory.nodes) if not account.users)
    free = [free_on(account) for account in inventory.nodes]
    devices = [account.node.devices for account in inventory.nodes]
    for nodes in _choices(inventory, job, among):
        tasks = interleaved([job], [nodes])
        batch = PlacementBatch(jobs=[job], tasks=tasks, free=free, devices=devices, distances=distances)
        layout = best_fit(batch)
        if layout is not None:
            return placed(inventory, layout, 0)
    return None


def _choices(inventory: Inventory, job: Job, among: int) -> Iterator[Sequence[tuple[int, ...]]]:
    """The nodes for each role: of each type that it accepts, the best first; of any type for tasks without devices."""
    by_role = []
    for role in job.roles:
        pools = [inventory.pool_by_type[pool.device_type] for pool in inventory.eligible(role)]
        found = [nodes_for(inventory, role, pool, among) for pool in pools]
        by_role.append(found if role.device_milli else [tuple(sorted(itertools.chain(*found)))])
    yield from itertools.product(*by_role)
