"""The network cost of placements, by hand: two domains with two racks of two nodes each."""

from __future__ import annotations

import math

import pytest

from builders import job, node
from rota.core.errors import RotaError
from rota.core.model.job import Job, Role
from rota.core.model.placement import Placement, Slot
from rota.perf.speed.network import LEVELS, NODE_COUNTS, Distances, Weighting, network_cost, weighting

NODES = [node(f"n{i}", 8, rack=f"r{i // 2}", domain=f"d{i // 4}") for i in range(8)]
GBIT = 1_000_000_000


def served(servers: int, workers: int, gbit: int = 0) -> Job:
    ps = Role(name="ps", count=servers, device_milli=0)
    return job(roles=(ps, Role(count=workers, network_bps=gbit * GBIT)))


def ring(workers: int, gbit: int = 0) -> Job:
    return job(workers=workers, network_bps=gbit * GBIT)


def at(*tasks_by_node: tuple[int, int], role: int = 0) -> Placement:
    return tuple(Slot(node, (1 << tasks) - 1, tasks, role) for node, tasks in tasks_by_node)


@pytest.mark.parametrize(
    ("asked", "placement", "levels", "node_counts"),
    [
        pytest.param(ring(4), at((0, 4)), 0, 0, id="ring within a node"),
        pytest.param(ring(4), at((0, 2), (1, 2)), 2 * 1, 2 * 2, id="ring within a rack: there and back"),
        pytest.param(ring(4), at((0, 1), (2, 1), (1, 1), (3, 1)), 1 + 4 + 1 + 4, 2 + 4 + 2 + 4, id="ring over racks"),
        pytest.param(ring(3), at((0, 1), (2, 1), (4, 1)), 4 + 40 + 40, math.inf, id="ring over domains"),
        pytest.param(ring(4, gbit=5), at((0, 2), (1, 2)), 5 * 2, 5 * 4, id="a ring that sends more"),
        pytest.param(served(1, 2), at((0, 1)) + at((0, 2), role=1), 0, 0, id="servers beside workers"),
        pytest.param(
            served(2, 3), at((0, 1), (1, 1)) + at((0, 2), (3, 1), role=1), 4 + 2 * 1 + 4, 4 + 2 * 2 + 4, id="pairs"
        ),
        pytest.param(served(1, 2, gbit=3), at((0, 1)) + at((2, 1), (7, 1), role=1), 3 * 44, math.inf, id="pairs far"),
        pytest.param(ring(1), at((5, 1)), 0, 0, id="one task"),
    ],
)
def test_cost_by_hand(asked: Job, placement: Placement, levels: float, node_counts: float) -> None:
    assert network_cost(asked, placement, Distances(NODES, LEVELS)) == levels
    assert network_cost(asked, placement, Distances(NODES, NODE_COUNTS)) == node_counts


def test_counts_are_of_the_rack_and_domain_themselves() -> None:
    nodes = [*NODES, node("n8", 8, rack="r3", domain="d1")]
    distances = Distances(nodes, NODE_COUNTS)

    assert [distances.between(0, 1), distances.between(6, 8), distances.between(4, 8)] == [2, 3, 5]


def test_a_server_alone_is_a_ring() -> None:
    alone = job(roles=(Role(name="ps", count=2, network_bps=2 * GBIT),))

    assert network_cost(alone, at((0, 1), (1, 1)), Distances(NODES, LEVELS)) == 2 * 2


def test_weightings_by_name_and_by_number() -> None:
    assert weighting("levels") == LEVELS
    assert weighting("nodes") == NODE_COUNTS
    assert weighting("2/3/5") == Weighting(rack=2, domain=3, cluster=5)
    for wrong in ("", "1/2", "near", "4/1/40", "-1/2/3"):
        with pytest.raises(RotaError, match="h is"):
            weighting(wrong)
