"""Collectives as flows: what each rank sends, and the textbook's times on a network without contention."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.errors import RotaError
from rota.network.collectives import CollectiveKind, phases_of
from rota.network.demand import IterationDemand
from rota.network.fabrics import fat_tree
from rota.network.model import NetworkModel
from rota.network.routing import Router
from rota.network.traffic import RankPlace, traffic_of

SIZE, RATE, LATENCY = 1e9, 1e10, 1e-5


def time_of(kind: CollectiveKind, ranks: int, servers: int = 0) -> float:
    """The time between nodes below one switch."""
    topology = fat_tree([f"n{n}" for n in range(ranks)], per_leaf=ranks, spines=1, link_bytes_per_s=RATE)
    model = NetworkModel(topology=topology, message_s=LATENCY)
    places = [RankPlace(node=n, serves=n >= ranks - servers) for n in range(ranks)]
    demand = IterationDemand(compute_s=0.0, bytes=SIZE, collective=kind)
    return traffic_of(demand, places, model, Router(topology), 0).comm_s


@pytest.mark.parametrize("n", [2, 4, 8, 16, 64])
def test_times_are_the_formulae(n: int) -> None:
    part, steps = (n - 1) / n * SIZE / RATE, math.log2(n)

    assert time_of(CollectiveKind.RING, n) == pytest.approx(2 * (n - 1) * LATENCY + 2 * part)
    assert time_of(CollectiveKind.ALL_GATHER, n) == pytest.approx((n - 1) * LATENCY + part)
    assert time_of(CollectiveKind.HALVING_DOUBLING, n) == pytest.approx(2 * steps * LATENCY + 2 * part)
    assert time_of(CollectiveKind.BINOMIAL_TREE, n) == pytest.approx(2 * steps * (LATENCY + SIZE / RATE))
    assert time_of(CollectiveKind.ALL_TO_ALL, n) == pytest.approx((n - 1) * LATENCY + part)
    tree_s = time_of(CollectiveKind.DOUBLE_TREE, n)
    assert tree_s <= 2 * steps * LATENCY + 2.0001 * SIZE / RATE


@pytest.mark.parametrize(("workers", "servers"), [(2, 1), (4, 2), (8, 3)])
def test_parameter_servers_are_limited_by_their_own_link(workers: int, servers: int) -> None:
    found = time_of(CollectiveKind.RING, workers + servers, servers)

    at_server, at_worker = workers / servers * SIZE / RATE, SIZE / RATE
    assert found == pytest.approx(2 * LATENCY + 2 * max(at_server, at_worker))


REDUCING = [kind for kind in CollectiveKind if kind not in (CollectiveKind.ALL_TO_ALL, CollectiveKind.ALL_GATHER)]


@pytest.mark.parametrize("kind", [k for k in REDUCING if k is not CollectiveKind.REDUCE_SCATTER])
@settings(max_examples=25, deadline=None)
@given(nodes=st.lists(st.integers(0, 5), min_size=2, max_size=17))
def test_every_rank_hears_of_every_other(kind: CollectiveKind, nodes: list[int]) -> None:
    """An all-reduce must let the data of each rank reach each rank, phase by phase."""
    nodes = sorted(nodes)
    known = [{rank} for rank in range(len(nodes))]
    for phase in phases_of(kind, nodes, 1.0):
        for _ in range(phase.steps):
            before = [set(some) for some in known]
            for source, target, size in phase.transfers:
                assert source != target
                assert size > 0
                known[target] |= before[source]

    if kind is CollectiveKind.HIERARCHICAL and len({nodes.count(node) for node in nodes}) > 1:
        return  # groups of unequal size reduce fewer shares than they have ranks
    assert all(len(some) == len(nodes) for some in known)


@settings(max_examples=60, deadline=None)
@given(ranks=st.integers(2, 70), size=st.floats(1.0, 1e12))
def test_ranks_send_the_volumes_of_the_textbook(ranks: int, size: float) -> None:
    """Bytes that each rank sends, in units of the size; those of trees in all, as inner ranks send more than leaves."""

    def sent(kind: CollectiveKind, servers: tuple[int, ...] = ()) -> list[float]:
        amounts = [0.0] * ranks
        for phase in phases_of(kind, list(range(ranks)), size, servers):
            for source, _, amount in phase.transfers:
                amounts[source] += amount / size
        return amounts

    once = (ranks - 1) / ranks
    for kind in (CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL):
        assert sent(kind) == pytest.approx([once] * ranks)
    assert sent(CollectiveKind.RING) == pytest.approx([2 * once] * ranks)
    for kind in (CollectiveKind.DOUBLE_TREE, CollectiveKind.BINOMIAL_TREE):
        assert sum(sent(kind)) == pytest.approx(2 * (ranks - 1))
    core = 2 ** int(math.log2(ranks))
    folded = ranks - core
    halves = [2 * (core - 1) / core + (rank < folded) for rank in range(core)]
    assert sent(CollectiveKind.HALVING_DOUBLING) == pytest.approx([*halves, *[1.0] * folded])
    served = sent(CollectiveKind.PARAMETER_SERVER, (0,))
    assert served == pytest.approx([ranks - 1, *[1.0] * (ranks - 1)])


@settings(max_examples=40, deadline=None)
@given(groups=st.integers(1, 6), per_group=st.integers(1, 8))
def test_a_hierarchy_sends_least_between_nodes(groups: int, per_group: int) -> None:
    """Each node sends 2 (N-1)/N of the data once to other nodes, however many ranks it has."""
    nodes = [group for group in range(groups) for _ in range(per_group)]
    out = [0.0] * groups
    for phase in phases_of(CollectiveKind.HIERARCHICAL, nodes, 1.0) if len(nodes) > 1 else []:
        for source, target, amount in phase.transfers:
            if nodes[source] != nodes[target]:
                out[nodes[source]] += amount

    assert out == pytest.approx([2 * (groups - 1) / groups] * groups)


@pytest.mark.parametrize("kind", CollectiveKind)
def test_one_rank_sends_nothing(kind: CollectiveKind) -> None:
    assert phases_of(kind, [0], 1e9) == []


def test_a_size_below_zero_is_refused() -> None:
    with pytest.raises(RotaError, match="-1 bytes"):
        phases_of(CollectiveKind.RING, [0, 1], -1.0)
