"""Placements of all jobs, ranked by Cassini's score."""

from __future__ import annotations

import pytest

from rota.network.demand import IterationDemand
from rota.network.fabrics import fat_tree
from rota.network.model import LinkMechanism, NetworkModel
from rota.network.routing import Router
from rota.network.traffic import JobTraffic, RankPlace, traffic_of
from rota.network.turns import compatibility, most_compatible

TOPOLOGY = fat_tree(["n1", "n2", "n3", "n4"], per_leaf=2, spines=1, link_bytes_per_s=1e9, oversubscription=2)
MODEL = NetworkModel(topology=TOPOLOGY, mechanism=LinkMechanism.CASSINI)
APART, TOGETHER = ((0, 2), (1, 3)), ((0, 1), (2, 3))


def traffics(compute_s: float, places: tuple[tuple[int, int], ...]) -> list[JobTraffic]:
    demand = IterationDemand(compute_s=compute_s, bytes=1e9, overlap=0.0)
    router = Router(TOPOLOGY)
    return [traffic_of(demand, [RankPlace(node=n) for n in some], MODEL, router, 0) for some in places]


def test_jobs_that_fill_a_link_together_are_placed_apart_from_each_other() -> None:
    crossing, local = traffics(0.1, APART), traffics(0.1, TOGETHER)

    assert compatibility(local, MODEL) == pytest.approx(1.0)
    assert compatibility(crossing, MODEL) < 0.7
    assert most_compatible([crossing, local], MODEL) == 1
    assert most_compatible([local, crossing], MODEL) == 0


def test_jobs_that_can_take_turns_are_compatible_on_a_shared_link() -> None:
    assert compatibility(traffics(3.0, APART), MODEL) == pytest.approx(1.0)
