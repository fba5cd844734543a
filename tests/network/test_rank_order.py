"""The order of ranks: EFLOPS' mapping uses no link twice in an exchange, link by link."""

from __future__ import annotations

import random

import pytest

from rota.network.collectives import CollectiveKind
from rota.network.fabrics import bigraph, fat_tree
from rota.network.rank_order import alternating_order, best_order, link_flows, worst_contention
from rota.network.routing import Path, Router
from rota.network.traffic import RankPlace

EXCHANGE = CollectiveKind.HALVING_DOUBLING


@pytest.mark.parametrize(("switches", "per_switch"), [(2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (4, 2), (8, 2), (8, 4)])
@pytest.mark.parametrize("seed", [1, 2])
def test_halving_doubling_is_free_of_contention_on_a_bigraph(switches: int, per_switch: int, seed: int) -> None:
    nodes = [f"n{n}" for n in range(2 * switches * per_switch)]
    topology = bigraph(nodes, switches=switches, link_bytes_per_s=1e9)
    router = Router(topology, seed=seed)
    ranks = [RankPlace(node=n) for n in range(len(nodes))]
    random.Random(seed).shuffle(ranks)

    def path(one: int, other: int) -> Path:
        return router.route(one, other, seed)

    order = alternating_order(ranks, topology)
    thin = max(switches // per_switch, 1)  # a trunk has less than the rate of a node where switches outnumber nodes

    assert sorted(order) == list(range(len(ranks)))
    for flows in link_flows(EXCHANGE, [ranks[rank] for rank in order], topology, path):
        for link, count in flows.items():
            assert count * 1e9 <= thin * topology.links[link].bytes_per_s * (1 + 1e-9), topology.links[link]
    shuffled = [
        max(n * 1e9 / float(topology.capacity[k]) for k, n in f.items())
        for f in link_flows(EXCHANGE, ranks, topology, path)
    ]
    assert max(shuffled) > thin


@pytest.mark.parametrize("seed", range(3))
def test_the_best_order_is_never_worse_than_the_given_one(seed: int) -> None:
    topology = fat_tree([f"n{n}" for n in range(16)], per_leaf=4, spines=2, oversubscription=2)
    ranks = [RankPlace(node=n) for n in range(0, 16, 2)]
    random.Random(seed).shuffle(ranks)
    router = Router(topology, seed=seed)
    for kind in (CollectiveKind.RING, EXCHANGE):
        found = best_order(kind, ranks, topology, router.route)
        before = worst_contention(kind, ranks, topology, router.route)
        after = worst_contention(kind, [ranks[rank] for rank in found], topology, router.route)

        assert sorted(found) == list(range(len(ranks)))
        assert after <= before
