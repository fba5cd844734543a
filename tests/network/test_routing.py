"""Topologies and their routes: paths are connected and shortest, and oversubscription is what was asked for."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.errors import RotaError
from rota.network.fabrics import IslandSpec, bigraph, fat_tree, rail_optimised, torus
from rota.network.routing import Router
from rota.network.topology import NetworkLink, NetworkTopology, duplex, joined


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(1, count + 1)]


TOPOLOGIES = {
    "fat tree": fat_tree(names(24), per_leaf=4, spines=3, oversubscription=2),
    "fat tree of pods": fat_tree(names(24), per_leaf=4, spines=2, leaves_per_pod=2, cores=3),
    "fat tree of islands": fat_tree(names(6), per_leaf=2, spines=2, island=IslandSpec(devices=4, bytes_per_s=3e11)),
    "rails": rail_optimised(names(6), rails=4, per_leaf=3, spines=2, island=IslandSpec(devices=4, bytes_per_s=3e11)),
    "bigraph": bigraph(names(16), switches=4),
    "torus": torus(names(24), shape=(2, 3, 4)),
}


def distance(topology: NetworkTopology, source: int, target: int) -> int:
    found, queue = {source: 0}, deque([source])
    while queue:
        here = queue.popleft()
        for link in topology.out_links[here]:
            if topology.head[link] not in found:
                found[topology.head[link]] = found[here] + 1
                queue.append(topology.head[link])
    return found[target]


@pytest.mark.parametrize("name", TOPOLOGIES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_routes_are_connected_and_shortest(name: str, data: st.DataObject) -> None:
    topology = TOPOLOGIES[name]
    ends = [topology.index[vertex] for some in topology.endpoints for vertex in some]
    source, target = data.draw(st.sampled_from(ends)), data.draw(st.sampled_from(ends))
    router = Router(topology, ecmp=data.draw(st.booleans()), seed=data.draw(st.integers(0, 9)))

    path = router.route(source, target, data.draw(st.integers(0, 99)))

    here = source
    for link in path:
        assert topology.tail[link] == here
        here = topology.head[link]
    assert here == target
    assert len(path) == distance(topology, source, target)
    assert source == target or path in router.paths(source, target)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_single_path_is_the_same_for_all_flows(name: str) -> None:
    topology = TOPOLOGIES[name]
    router = Router(topology, ecmp=False)

    assert len({router.route(topology.vertex(0), topology.vertex(5), key) for key in range(20)}) == 1


def test_ecmp_uses_all_spines_and_depends_on_the_seed() -> None:
    topology = TOPOLOGIES["fat tree"]
    source, target = topology.vertex(0), topology.vertex(20)

    by_seed = [tuple(Router(topology, seed=seed).route(source, target, key) for key in range(40)) for seed in (1, 2)]

    assert {len(set(paths)) for paths in by_seed} == {3}
    assert by_seed[0] != by_seed[1]
    assert by_seed[0] == tuple(Router(topology, seed=1).route(source, target, key) for key in range(40))


@settings(max_examples=15, deadline=None)
@given(spines=st.integers(2, 8), seed=st.integers(0, 2**31), pair=st.tuples(st.integers(0, 3), st.integers(4, 15)))
def test_ecmp_spreads_jobs_evenly_over_equal_paths(spines: int, seed: int, pair: tuple[int, int]) -> None:
    topology = fat_tree(names(16), per_leaf=4, spines=spines, link_bytes_per_s=1e9)
    router = Router(topology, seed=seed)
    taken: dict[int, int] = {}
    for key in range(2000):
        _, up, *_ = router.route(topology.vertex(pair[0]), topology.vertex(pair[1]), key)
        taken[up] = taken.get(up, 0) + 1

    assert len(taken) == spines
    assert max(taken.values()) < 1.35 * 2000 / spines
    assert min(taken.values()) > 0.65 * 2000 / spines


@pytest.mark.parametrize("oversubscription", [1.0, 2.5, 8.0])
def test_a_leaf_sends_up_what_oversubscription_leaves(oversubscription: float) -> None:
    topology = fat_tree(names(32), per_leaf=8, spines=4, link_bytes_per_s=1e9, oversubscription=oversubscription)
    leaf = topology.index["leaf0"]
    up = sum(topology.links[n].bytes_per_s for n in topology.out_links[leaf] if "spine" in topology.links[n].target)

    assert up == pytest.approx(8e9 / oversubscription)


def test_bigraph_has_one_path_of_three_links_between_opposite_sides() -> None:
    topology = TOPOLOGIES["bigraph"]
    paths = Router(topology).paths(topology.vertex(0), topology.vertex(15))

    assert [len(path) for path in paths] == [3]


def test_a_node_of_two_cables_forwards_nothing() -> None:
    cables = [duplex("a", "s1", 1e9), duplex("m", "s1", 1e9), duplex("m", "s2", 1e9), duplex("b", "s2", 1e9)]
    topology = NetworkTopology(nodes=("a", "m", "b"), links=joined(cables))

    with pytest.raises(RotaError, match="no route from 'a' to 'b'"):
        Router(topology).route(topology.vertex(0), topology.vertex(2))
    assert len(Router(topology).route(topology.vertex(1), topology.vertex(2))) == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NetworkLink(source="a", target="b", bytes_per_s=0), "its rate is 0"),
        (lambda: NetworkLink(source="a", target="a", bytes_per_s=1), "with itself"),
        (lambda: torus(names(6), shape=(2, 2)), "4 places for 6 nodes"),
        (lambda: fat_tree(names(2), per_leaf=0), "per_leaf is 0"),
        (lambda: NetworkTopology(nodes=(), links=()), "no nodes"),
    ],
    ids=["rate", "loop", "torus", "leaf", "empty"],
)
def test_wrong_networks_are_refused(make: object, message: str) -> None:
    with pytest.raises(RotaError, match=message):
        make()  # type: ignore[operator]
