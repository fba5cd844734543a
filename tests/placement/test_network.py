"""Placement by network cost: near, packed, servers apart from load, and nobody across domains where that is barred."""

from __future__ import annotations

import pytest

from builders import cluster, job, node, on
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, Job, Locality, Role
from rota.core.model.placement import Placement, Slot, fault_in
from rota.core.state.inventory import Inventory
from rota.perf.speed.network import LEVELS, Distances, network_cost
from rota.placement import style

FOUR_RACKS = cluster(*(node(f"n{i}", 4, rack=f"r{(i - 1) // 2}", domain=f"d{(i - 1) // 4}") for i in range(1, 9)))


def books(of: Cluster, *taken: Placement) -> Inventory:
    inventory = Inventory(of)
    for placement in taken:
        inventory.take(placement, (Role(),))
    return inventory


def nodes_of(placement: Placement | None) -> list[tuple[int, int, int]] | None:
    return None if placement is None else [(slot.role, slot.node + 1, slot.tasks) for slot in placement]


def find(inventory: Inventory, asked: Job, spec: str = "liquid") -> list[tuple[int, int, int]] | None:
    before = [node.free_mask for node in inventory.nodes]
    placement = style(spec).find(inventory, asked, None)
    assert [node.free_mask for node in inventory.nodes] == before
    if placement is not None:
        assert fault_in(placement, asked) is None
        assert inventory.is_free(placement, asked.roles)
    return nodes_of(placement)


def test_one_task_goes_to_the_fullest_node() -> None:
    assert find(books(FOUR_RACKS, on("n5", 3)), job()) == [(0, 5, 1)]


def test_a_ring_stays_on_the_node_then_in_the_rack() -> None:
    assert find(books(FOUR_RACKS, on("n4", 1)), job(workers=5)) == [(0, 3, 2), (0, 4, 3)]


def test_a_server_goes_beside_its_workers_in_spite_of_load() -> None:
    served = job(roles=(Role(name="ps", device_milli=0), Role(count=3)))

    assert find(books(FOUR_RACKS, on("n1", 2)), served) == [(0, 2, 1), (1, 2, 3)]


def test_a_ring_is_not_split_to_fill_the_fullest_node() -> None:
    inventory = books(FOUR_RACKS, on("n2", 2), on("n7", 3), on("n8", 3))

    assert find(inventory, job()) == [(0, 7, 1)]
    assert find(inventory, job(workers=2)) == [(0, 2, 2)]
    assert find(inventory, job(workers=2, gpus=2)) == [(0, 1, 2)]


def test_a_ring_of_several_nodes_takes_the_rack_with_room_and_few_nodes_of_it() -> None:
    inventory = books(FOUR_RACKS, on("n1", 3), on("n2", 1), on("n3", 2), on("n4", 2), on("n5", 3), on("n6", 3))

    assert find(inventory, job(workers=4)) == [(0, 7, 4)]
    assert find(inventory, job(workers=6)) == [(0, 7, 4), (0, 8, 2)]


def test_node_counts_bar_other_domains() -> None:
    full = [on(f"n{i}", 4) for i in (1, 2, 3, 6, 7, 8)]
    inventory = books(FOUR_RACKS, *full)

    assert find(inventory, job(workers=5)) == [(0, 4, 4), (0, 5, 1)]
    assert find(inventory, job(workers=5), "liquid:h=nodes") is None
    assert find(inventory, job(workers=4), "liquid:h=nodes") == [(0, 4, 4)]


def test_node_counts_go_to_the_domain_with_room() -> None:
    inventory = books(FOUR_RACKS, on("n1", 3), on("n2", 3), on("n3", 3), on("n4", 3))

    assert find(inventory, job(workers=5), "liquid:h=nodes") == [(0, 5, 4), (0, 6, 1)]


def test_all_workers_are_of_one_type_and_host_resources_count() -> None:
    of = cluster(
        node("n1", 2, device_type=DeviceType("a")),
        node("n2", 4, device_type=DeviceType("b"), cpu_milli=2000),
        node("n3", 4, device_type=DeviceType("b"), cpu_milli=8000),
    )

    assert find(books(of), job(workers=3)) == [(0, 2, 3)]
    assert find(books(of), job(workers=3, cpu_milli=1000)) == [(0, 2, 2), (0, 3, 1)]
    assert find(books(of), job(workers=3, cpu_milli=3000)) is None


def test_exclusive_jobs_get_idle_nodes_and_wishes_hold() -> None:
    inventory = books(FOUR_RACKS, on("n1", 1))

    assert find(inventory, job(workers=2, exclusive=True)) == [(0, 2, 2)]
    hard = style("liquid").find(inventory, job(workers=4), Locality(hard=True))
    assert hard == (Slot(1, 0b1111, 4),)


def test_cost_is_below_that_of_spreading() -> None:
    distances = Distances(FOUR_RACKS.nodes, LEVELS)
    inventory = books(FOUR_RACKS, on("n1", 2), on("n4", 1), on("n6", 3))
    asked = job(roles=(Role(name="ps", count=2), Role(count=6)))
    near, far = (style(name).find(inventory, asked, None) for name in ("liquid", "spread"))

    assert near is not None
    assert far is not None
    assert network_cost(asked, near, distances) < 0.2 * network_cost(asked, far, distances)


@pytest.mark.parametrize("spec", ["liquid:h=", "liquid:h=1/2", "liquid:x=1", "liquid:h=9/4/40"])
def test_mistakes_in_the_spec_are_named(spec: str) -> None:
    with pytest.raises(RotaError, match=r"h is|no parameter 'x'"):
        style(spec)
