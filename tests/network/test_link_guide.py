"""What drivers tell jobs about links: orders of ranks, variables, and turns that fit beside those of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.model.cluster import Node
from rota.core.model.job import WHOLE, Job, JobId, NodeId, Role
from rota.core.model.placement import Placement, Slot, device_indexes
from rota.core.model.ranks import task_ranks
from rota.network.cassini import JobCircle, score_of
from rota.network.collectives import CollectiveKind
from rota.network.fabrics import bigraph, fat_tree, rail_optimised
from rota.network.link_guide import LinkGuide, LinkTerms, in_order
from rota.network.model import LinkMechanism, NetworkModel
from rota.network.rank_order import link_flows
from rota.network.routing import Path, Router, mixed
from rota.network.topology import NetworkTopology, duplex
from rota.network.traffic import RankPlace

RATE = 1e9
ONE_LINK = NetworkTopology(nodes=("n0", "n1"), links=duplex("n0", "n1", RATE))


def nodes(count: int) -> list[Node]:
    return [Node(id=NodeId(f"n{number}"), devices=8) for number in range(count)]


def job(name: str, tasks: int, **labels: object) -> Job:
    return Job(
        id=JobId(name),
        roles=(Role(count=tasks, device_milli=WHOLE),),
        labels=tuple((key, str(value)) for key, value in labels.items()),
    )


def guide(topology: NetworkTopology, **fields: Any) -> LinkGuide:
    return LinkGuide(NetworkModel(topology=topology, **fields))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_order_moves_tasks_and_nothing_else(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    per_task = data.draw(st.integers(1, 2))
    placement: Placement = tuple(
        Slot(number, (1 << tasks * per_task) - 1, tasks=tasks) for number, tasks in enumerate(sizes)
    )
    order = data.draw(st.permutations(range(sum(sizes))))
    there = nodes(len(sizes))

    before = task_ranks(placement, there)
    after = task_ranks(in_order(placement, order), there)

    assert [(task.node, task.devices) for task in after] == [
        (before[number].node, before[number].devices) for number in order
    ]
    assert [task.rank for task in after] == list(range(len(before)))


def test_wrong_order_is_left_alone() -> None:
    placement = (Slot(0, 1), Slot(1, 1))
    for order in ((), (0,), (0, 0), (1, 2), (0, 1, 2)):
        assert in_order(placement, order) == placement


def test_ring_enters_each_switch_once() -> None:
    topology = fat_tree([f"n{n}" for n in range(8)], per_leaf=4, spines=1, link_bytes_per_s=RATE, oversubscription=4)
    placement = tuple(Slot(node, 1) for node in (0, 4, 1, 5, 2, 6))
    wanted = job("a", 6, compute_s=1, comm_bytes=1e9)

    terms = guide(topology).begin(wanted, placement, nodes(8).__getitem__, {wanted.id})

    assert [slot.node for slot in in_order(placement, terms.order)] == [0, 1, 2, 4, 5, 6]


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_halving_and_doubling_has_links_of_its_own_on_a_bigraph(devices: int) -> None:
    topology = bigraph([f"n{n}" for n in range(16)], switches=2, link_bytes_per_s=RATE)
    placement = tuple(Slot(node, (1 << devices) - 1) for node in range(16))
    wanted = Job(
        id=JobId("a"),
        roles=(Role(count=16, device_milli=devices * WHOLE),),
        labels=(("compute_s", "1"), ("comm_bytes", "1e9"), ("collective", "halving-doubling")),
    )
    made = guide(topology)
    router = Router(topology)

    def busiest(order: Sequence[int]) -> float:
        slots = in_order(placement, order)
        ranks = [RankPlace(node=slot.node, device=d) for slot in slots for d in device_indexes(slot.devices)]

        def path(one: int, other: int) -> Path:
            return router.route(one, other, mixed(*b"a"))

        flows = link_flows(CollectiveKind.HALVING_DOUBLING, ranks, topology, path)
        return max(count * RATE / float(topology.capacity[link]) for some in flows for link, count in some.items())

    terms = made.begin(wanted, placement, nodes(16).__getitem__, {wanted.id})

    assert sorted(terms.order) == list(range(16))
    assert busiest(terms.order) == pytest.approx(devices)  # the devices of a node share its link
    assert busiest(range(16)) > devices


@settings(max_examples=40, deadline=None)
@given(
    period_s=st.floats(0.05, 20),
    shares=st.lists(st.floats(0.05, 0.9), min_size=2, max_size=4),
    stretch=st.floats(1.0, 1.04),
)
def test_later_jobs_take_turns_that_fit(period_s: float, shares: list[float], stretch: float) -> None:
    shares = [share * 0.93 / sum(shares) for share in shares]
    made = guide(ONE_LINK, mechanism=LinkMechanism.CASSINI)
    placement = (Slot(0, 1), Slot(1, 1))
    circles: list[JobCircle] = []
    alive: set[JobId] = set()
    for number, share in enumerate(shares):
        own_s = period_s * stretch if number == 0 else period_s  # the first is at most a twentieth longer
        wanted = job(f"j{number}", 2, compute_s=(1 - share) * own_s, comm_bytes=share * own_s * RATE)
        alive.add(wanted.id)
        terms = made.begin(wanted, placement, nodes(2).__getitem__, alive)
        assert 0 <= terms.shift_s < terms.period_s <= own_s * 1.05 * (1 + 1e-9)
        start_s = (1 - share) * own_s + terms.shift_s
        circles.append(JobCircle(period_s=terms.period_s, start_s=start_s, length_s=share * own_s, demand=RATE))
    if len(shares) == 2:
        assert score_of(circles, RATE) > 1 - 5e-3
    aligned = [replace(circle, start_s=0.0) for circle in circles]
    assert score_of(circles, RATE) >= score_of(aligned, RATE) - 5e-3


def test_jobs_that_ended_or_are_elsewhere_keep_no_turn() -> None:
    topology = fat_tree(["n0", "n1", "n2", "n3"], per_leaf=4, spines=1, link_bytes_per_s=RATE)
    made = guide(topology, mechanism=LinkMechanism.CASSINI)
    labels = {"compute_s": 0.6, "comm_bytes": 0.4e9}
    alive = {JobId("a"), JobId("b"), JobId("c")}
    here, there = (Slot(0, 1), Slot(1, 1)), (Slot(2, 1), Slot(3, 1))
    at = nodes(4).__getitem__

    first = made.begin(job("a", 2, **labels), here, at, alive)
    elsewhere = made.begin(job("b", 2, **labels), there, at, alive)
    beside = made.begin(job("c", 2, **labels), here, at, alive)
    alone = made.begin(job("d", 2, **labels), here, at, {JobId("d")})

    assert (first.shift_s, elsewhere.shift_s, alone.shift_s) == (0.0, 0.0, 0.0)
    assert beside.shift_s == pytest.approx(0.5, abs=0.11)
    assert first.environment["ROTA_PERIOD_S"] == "1.000000"


def test_found_jobs_keep_their_turns() -> None:
    labels = {"compute_s": 0.6, "comm_bytes": 0.4e9}
    placement, at = (Slot(0, 1), Slot(1, 1)), nodes(2).__getitem__
    made = guide(ONE_LINK, mechanism=LinkMechanism.CASSINI)
    made.found(job("a", 2, **labels), placement, LinkTerms(shift_s=0.3, period_s=1.0), at)

    terms = made.begin(job("b", 2, **labels), placement, at, {JobId("a"), JobId("b")})

    assert terms.shift_s == pytest.approx(0.8, abs=0.11)


def test_variables_name_interfaces_and_algorithms() -> None:
    rails = rail_optimised(["n0", "n1"], rails=2, link_bytes_per_s=RATE)
    made = guide(rails, interface="eth1", adapters="mlx5_0")
    at = nodes(2).__getitem__

    told = made.begin(
        job("a", 2, collective="double-tree", compute_s=1, comm_bytes=1), (Slot(0, 1), Slot(1, 1)), at, ()
    )
    alone = made.begin(job("b", 1), (Slot(0, 1),), at, ())

    assert told.environment == {
        "NCCL_ALGO": "Tree",
        "GLOO_SOCKET_IFNAME": "eth1",
        "NCCL_SOCKET_IFNAME": "eth1",
        "NCCL_IB_HCA": "mlx5_0",
        "NCCL_CROSS_NIC": "0",
    }
    assert alone.environment == {}


def test_nodes_outside_the_network_get_no_order() -> None:
    made = guide(ONE_LINK)

    terms = made.begin(job("a", 3), (Slot(1, 1), Slot(2, 1), Slot(0, 1)), nodes(3).__getitem__, ())

    assert terms.order == ()
