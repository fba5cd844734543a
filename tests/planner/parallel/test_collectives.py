"""Collectives: the formulae's known values, and how groups share a network."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rota.planner.parallel.collectives import (
    BusRate,
    Interconnect,
    Ring,
    all_gather_s,
    all_reduce_s,
    fitted_bus_rate,
    halving_doubling_s,
    ring_all_reduce_s,
    send_s,
    tree_all_reduce_s,
)

MB = 1e6
INTERCONNECT = Interconnect(
    intra=(
        BusRate(ranks=2, latency_s=1e-5, bytes_per_s=100e9),
        BusRate(ranks=8, latency_s=3e-5, bytes_per_s=200e9),
    ),
    p2p_bytes_per_s=50e9,
    node_bytes_per_s=100e9,
    hop_latency_s=1e-6,
)


@pytest.mark.parametrize(
    ("algorithm", "latencies", "share"),
    [
        pytest.param(ring_all_reduce_s, 14, 1.75, id="ring"),
        pytest.param(tree_all_reduce_s, 6, 2.0, id="tree"),
        pytest.param(halving_doubling_s, 6, 1.75, id="halving-doubling"),
    ],
)
def test_all_reduce_over_eight(algorithm: object, latencies: int, share: float) -> None:
    assert callable(algorithm)
    assert algorithm(8, 80 * MB, 1e-6, 10e9) == pytest.approx(latencies * 1e-6 + share * 80 * MB / 10e9)


def test_ranks_that_are_no_power_of_two_fold() -> None:
    assert halving_doubling_s(6, 60 * MB, 1e-6, 10e9) == pytest.approx(6e-6 + (1.5 + 2) * 60 * MB / 10e9)


def test_one_rank_needs_nothing() -> None:
    assert all_reduce_s(INTERCONNECT, Ring(ranks=1, per_node=1), MB) == 0
    assert halving_doubling_s(1, MB, 1e-6, 1e9) == tree_all_reduce_s(1, MB, 1e-6, 1e9) == 0


def test_inside_a_node_rates_are_interpolated_over_doublings() -> None:
    assert INTERCONNECT.bus(4).bytes_per_s == pytest.approx(150e9)
    assert INTERCONNECT.bus(1) == INTERCONNECT.bus(2)
    assert INTERCONNECT.bus(64).latency_s == pytest.approx(6e-5)


def test_groups_of_a_node_share_its_network() -> None:
    alone = all_reduce_s(INTERCONNECT, Ring(ranks=16, per_node=1, groups_per_node=1), 1000 * MB)
    eight = all_reduce_s(INTERCONNECT, Ring(ranks=16, per_node=1, groups_per_node=8), 1000 * MB)

    assert eight / alone == pytest.approx(8, rel=0.05)


def test_lone_device_of_a_node_has_its_own_link_only() -> None:
    narrow = replace(INTERCONNECT, device_bytes_per_s=10e9)

    assert all_reduce_s(narrow, Ring(ranks=2, per_node=1), 1000 * MB) == pytest.approx(0.1, rel=1e-3)
    assert send_s(narrow, 100 * MB, crosses_nodes=True) == pytest.approx(1e-2, rel=1e-3)


def test_gathering_is_half_of_reducing() -> None:
    ring = Ring(ranks=8, per_node=8)
    assert 2 * all_gather_s(INTERCONNECT, ring, MB) == pytest.approx(all_reduce_s(INTERCONNECT, ring, MB))


def test_message_between_nodes_waits_for_the_other_senders() -> None:
    inside = send_s(INTERCONNECT, 100 * MB, crosses_nodes=False)
    between = send_s(INTERCONNECT, 100 * MB, crosses_nodes=True, senders_per_node=8)

    assert inside == pytest.approx(0.5e-5 + 100 * MB / 50e9)
    assert between == pytest.approx(1e-6 + 8 * 100 * MB / 100e9)


def test_fit_recovers_the_rate_that_made_a_table() -> None:
    sizes = [MB * 2**power for power in range(10)]
    times = [4e-5 + 1.5 * size / 123e9 for size in sizes]

    rate = fitted_bus_rate(4, sizes, times)

    assert rate.latency_s == pytest.approx(4e-5)
    assert rate.bytes_per_s == pytest.approx(123e9)
