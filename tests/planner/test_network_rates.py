"""Rates of planners from links: those of one switch, of oversubscription, of islands, and of measured tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.errors import RotaError
from rota.network.calibration import fit_table
from rota.network.fabrics import IslandSpec, fat_tree, rail_optimised
from rota.network.model import NetworkModel
from rota.planner.parallel.collectives import BusRate, Interconnect
from rota.planner.parallel.network_rates import interconnect_on

USUAL = Interconnect(
    intra=(BusRate(ranks=2, latency_s=1e-5, bytes_per_s=1e11),), p2p_bytes_per_s=1e11, node_bytes_per_s=1e10
)


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


@given(rate=st.floats(1e8, 1e11), over=st.floats(1, 8), latency_s=st.floats(0, 1e-4))
def test_one_switch_gives_its_links_and_leaves_what_it_does_not_say(rate: float, over: float, latency_s: float) -> None:
    tree = fat_tree(names(4), per_leaf=4, spines=1, link_bytes_per_s=rate, oversubscription=over, latency_s=latency_s)

    found = interconnect_on(USUAL, NetworkModel(topology=tree), 4, 8)

    assert found.node_bytes_per_s == pytest.approx(rate)
    assert found.device_bytes_per_s == pytest.approx(rate)
    assert found.hop_latency_s == pytest.approx(2 * latency_s)
    assert found.intra == USUAL.intra


def test_each_rail_adds_its_rate_and_islands_give_theirs() -> None:
    island = IslandSpec(devices=4, bytes_per_s=3e11, latency_s=0.0)
    rails = rail_optimised(names(4), rails=4, link_bytes_per_s=1e10, island=island)

    found = interconnect_on(USUAL, NetworkModel(topology=rails), 4, 4)

    assert found.node_bytes_per_s == pytest.approx(4e10)
    assert found.device_bytes_per_s == pytest.approx(1e10)
    assert [bus.ranks for bus in found.intra] == [2, 4]
    assert found.intra[-1].bytes_per_s == pytest.approx(3e11)


def test_measured_tables_give_the_rates_inside() -> None:
    table = fit_table({2: [(size, 2e-5 + size / 5e10) for size in (1e6, 1e7, 1e8, 1e9)]})
    tree = fat_tree(names(2), per_leaf=2, spines=1, link_bytes_per_s=1e10)

    found = interconnect_on(USUAL, NetworkModel(topology=tree, inside=table), 2, 2)

    assert found.intra[0].bytes_per_s == pytest.approx(5e10, rel=0.02)
    assert found.intra[0].latency_s == pytest.approx(2e-5, rel=0.1)


def test_too_few_nodes_are_refused() -> None:
    tree = fat_tree(names(2), per_leaf=2, spines=1, link_bytes_per_s=1e10)
    with pytest.raises(RotaError, match="has 2 nodes, and the plan needs 3"):
        interconnect_on(USUAL, NetworkModel(topology=tree), 3, 8)
