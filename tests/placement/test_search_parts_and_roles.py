"""Which devices a job gets: parts of devices, several roles, host resources of each."""

from __future__ import annotations

import pytest

from builders import GIB, cluster, job, node, on
from placement.searches import ANY_DEVICE, HARD, inventory, nodes, place, within
from rota.core.model.job import DeviceType, Level, Role
from rota.core.model.placement import Slot

A, B = DeviceType("a"), DeviceType("b")


# -- parts of devices ----------------------------------------------------------------------------


def test_parts_of_one_gang_are_on_one_type() -> None:
    books = inventory(cluster(node("n1", 1, device_type=A), node("n2", 2, device_type=B)))

    found = place(books, job(gpus=0.6, workers=2))

    assert found == on("n2", [0], milli=600) + on("n2", [1], milli=600)


@pytest.mark.parametrize("level", [Level.NODE, Level.RACK, Level.DOMAIN])
def test_parts_keep_to_the_locality_that_is_insisted_on(level: Level) -> None:
    books = inventory(
        cluster(node("n1", 1, rack="r1", domain="d1"), node("n2", 2, rack="r2", domain="d2")),
    )

    found = place(books, job(gpus=0.6, workers=2), insist=within(level))

    assert found == on("n2", [0], milli=600) + on("n2", [1], milli=600)


def test_parts_that_keep_to_one_node_go_to_the_fullest_with_room() -> None:
    books = inventory(nodes(4, 4, 4), on("n2", 3), on("n3", 2))

    assert place(books, job(gpus=0.5, workers=2), insist=HARD) == on("n2", [3], milli=500) * 2
    assert place(books, job(gpus=0.5, workers=3), insist=HARD) == on("n3", [2], milli=500) * 2 + on(
        "n3", [3], milli=500
    )


def test_more_parts_than_a_node_has_room_for_need_not_be_on_one() -> None:
    books = inventory(nodes(1, 1))

    found = place(books, job(gpus=0.6, workers=2), insist=HARD)

    assert found == on("n1", 1, milli=600) + on("n2", 1, milli=600)


def test_part_goes_to_the_fullest_device_that_has_it() -> None:
    books = inventory(nodes(2))
    half, third = (Role(device_milli=500),), (Role(device_milli=300),)
    books.take(on("n1", [0], milli=300), third)
    books.take(on("n1", [1], milli=500), half)

    assert place(books, job(gpus=0.5)) == on("n1", [1], milli=500)
    assert place(books, job(gpus=0.7)) == on("n1", [0], milli=700)
    assert place(books, job(gpus=0.8)) is None


def test_part_looks_at_the_memory_of_the_device() -> None:
    books = inventory(cluster(node("n1", 2, device_memory_bytes=10 * GIB)))
    big = Role(device_milli=100, device_memory_bytes=8 * GIB)
    books.take(on("n1", 1, milli=100), (big,))

    assert place(books, job(gpus=0.1, device_memory_bytes=2 * GIB)) == on("n1", 1, milli=100)
    assert place(books, job(gpus=0.1, device_memory_bytes=3 * GIB)) == on("n1", [1], milli=100)
    assert place(books, job(gpus=0.1, device_memory_bytes=11 * GIB)) is None


def test_part_looks_at_the_cpus_of_the_node() -> None:
    books = inventory(cluster(node("n1", 1, cpu_milli=1000), node("n2", 1, cpu_milli=4000)))

    found = place(books, job(gpus=0.5, workers=2, cpu_milli=1000))
    other = place(books, job(gpus=0.5, cpu_milli=2000))

    assert found == on("n1", 1, milli=500) + on("n2", 1, milli=500)
    assert other == on("n2", 1, milli=500)


# -- roles and exclusive nodes -------------------------------------------------------------------

PAIR = (Role(name="a"), Role(name="b"))


def test_roles_of_an_exclusive_job_may_share_its_node() -> None:
    found = place(inventory(nodes(2)), job(roles=PAIR, exclusive=True))

    assert found == on("n1", [0]) + on("n1", [1], role=1)


def test_parts_of_an_exclusive_job_may_share_its_node() -> None:
    found = place(inventory(nodes(1)), job(gpus=0.5, workers=2, exclusive=True))

    assert found == on("n1", 1, milli=500) + on("n1", 1, milli=500)


@pytest.mark.parametrize("gpus", [0, 0.5, 1])
def test_exclusive_job_avoids_nodes_in_use(gpus: float) -> None:
    books = inventory(nodes(4, 1), on("n1", 1))

    found = place(books, job(gpus=gpus, exclusive=True))

    assert found is not None
    assert [slot.node for slot in found] == [1]


@pytest.mark.parametrize("level", [Level.RACK, Level.DOMAIN])
def test_roles_keep_together_within_the_locality_that_is_insisted_on(level: Level) -> None:
    """Rack r1 is the tighter one for each role alone, but has no room for both."""
    books = inventory(
        cluster(node("n1", 1, rack="r1", domain="d1"), node("n2", 2, rack="r2", domain="d2")),
    )

    found = place(books, job(roles=PAIR), insist=within(level))

    assert found == on("n2", [0]) + on("n2", [1], role=1)


def test_roles_that_fit_on_one_node_insist_on_one_node() -> None:
    books = inventory(nodes(2, 2), on("n1", 1))

    assert place(books, job(roles=PAIR), insist=HARD) == on("n2", [0]) + on("n2", [1], role=1)
    books.take(on("n2", 1), ANY_DEVICE)
    assert place(books, job(roles=PAIR), insist=HARD) is None
    assert place(books, job(roles=PAIR)) == on("n1", [1]) + on("n2", [1], role=1)


@pytest.mark.parametrize("style", ["any", "consolidate", "spread"])
def test_roles_that_need_most_come_first_where_their_order_fails(style: str) -> None:
    roles = (Role(name="worker"), Role(name="ps", device_milli=2000))

    assert place(inventory(nodes(2, 1)), job(roles=roles), style) == on("n2", 1) + on("n1", 2, role=1)


def test_roles_that_need_most_cpus_come_first_where_their_order_fails() -> None:
    roles = (Role(name="small", device_milli=0, cpu_milli=1000), Role(name="large", device_milli=0, cpu_milli=8000))
    books = inventory(cluster(node("n1", 0, cpu_milli=8000), node("n2", 0, cpu_milli=1000)))

    assert place(books, job(roles=roles), "any") == on("n2", []) + on("n1", [], role=1)


def test_roles_of_different_types_need_not_be_on_one_node() -> None:
    books = inventory(cluster(node("n1", 1, device_type=A), node("n2", 1, device_type=B)))
    roles = (Role(name="a", device_types=(A,)), Role(name="b", device_types=(B,)))

    assert place(books, job(roles=roles), insist=HARD) == on("n1", 1) + on("n2", 1, role=1)


def test_second_role_sees_what_the_first_took() -> None:
    books = inventory(cluster(node("n1", 2, cpu_milli=3000)))
    roles = (Role(name="a", cpu_milli=2000), Role(name="b", cpu_milli=2000))

    assert place(books, job(roles=roles)) is None
    assert books.nodes[0].free == 2
    assert books.nodes[0].cpu_milli == 3000


def test_role_without_devices_takes_a_node_that_has_the_cpus() -> None:
    books = inventory(cluster(node("n1", 1, cpu_milli=1000), node("n2", 0, cpu_milli=8000)))

    assert place(books, job(gpus=0, cpu_milli=4000)) == (Slot(1, 0),)
    assert place(books, job(gpus=0, workers=3, cpu_milli=3000)) is None
