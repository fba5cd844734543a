"""The inventory: what take and give do to its indexes, devices in part, exclusive nodes, nodes out of use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import GIB, cluster, node, on
from rota.core.engine.invariants import check
from rota.core.errors import InvariantBroken
from rota.core.model.job import Role
from rota.core.model.placement import Placement, Slot, device_indexes, lowest
from rota.core.state.inventory import Inventory
from rota.core.state.state import State

WHOLE_DEVICE = (Role(),)
HALF = (Role(device_milli=500, device_memory_bytes=6 * GIB),)


def books(*devices: int) -> Inventory:
    return Inventory(cluster(*(node(f"n{i}", count) for i, count in enumerate(devices, start=1))))


def picture(inventory: Inventory) -> tuple[object, ...]:
    """Everything that planning reads."""
    return (
        [(p.usable, p.free, list(p.by_free), list(p.partial)) for p in inventory.pools],
        [(b.free_mask, b.free, b.users, b.locked, dict(b.shares), b.cpu_milli) for b in inventory.nodes],
        inventory.free,
        inventory.idle_free,
    )


def test_taken_devices_are_not_free_and_come_back() -> None:
    inventory = books(4, 2)
    fresh = picture(inventory)

    inventory.take(on("n1", [1, 2]), WHOLE_DEVICE)
    assert (inventory.free, inventory.idle_free) == (4, 2)
    assert inventory.pools[0].by_free == [0, 0, 0b11, 0, 0]
    assert device_indexes(inventory.nodes[0].free_mask) == [0, 3]
    inventory.give(on("n1", [1, 2]), WHOLE_DEVICE)

    assert picture(inventory) == fresh


def test_device_is_not_taken_or_given_twice() -> None:
    inventory = books(2)
    inventory.take(on("n1", 1), WHOLE_DEVICE)

    with pytest.raises(InvariantBroken, match="not all free"):
        inventory.take(on("n1", 2), WHOLE_DEVICE)
    with pytest.raises(InvariantBroken, match="were free already"):
        inventory.give(on("n1", [1]), WHOLE_DEVICE)
    with pytest.raises(InvariantBroken, match="no 500 thousandths free"):
        inventory.take(on("n1", 1, milli=500), HALF)


def test_host_is_not_oversubscribed() -> None:
    inventory = Inventory(cluster(node("n1", 4, cpu_milli=3000, memory_bytes=GIB)))
    greedy = (Role(cpu_milli=2000),)
    inventory.take(on("n1", 1), greedy)

    assert inventory.nodes[0].cpu_milli == 1000
    assert not inventory.is_free(on("n1", [1]), greedy)
    with pytest.raises(InvariantBroken, match="host resources are oversubscribed"):
        inventory.take(on("n1", [1]), greedy)


def test_parts_of_a_device_add_up_to_one() -> None:
    inventory = Inventory(cluster(node("n1", 2, device_memory_bytes=12 * GIB)))
    fresh = picture(inventory)
    half = on("n1", [0], milli=500)

    inventory.take(half, HALF)
    assert inventory.pools[0].partial == [(500, 0, 0)]
    assert (inventory.free, inventory.idle_free) == (1, 0)
    inventory.take(half, HALF)
    assert inventory.pools[0].partial == [(0, 0, 0)]
    assert not inventory.is_free(half, HALF)
    inventory.give(half, HALF)
    inventory.give(half, HALF)

    assert picture(inventory) == fresh


def test_memory_of_a_device_limits_its_parts() -> None:
    inventory = Inventory(cluster(node("n1", 1, device_memory_bytes=10 * GIB)))
    tenth = (Role(device_milli=100, device_memory_bytes=6 * GIB),)
    inventory.take(on("n1", 1, milli=100), tenth)

    assert not inventory.is_free(on("n1", 1, milli=100), tenth)
    assert inventory.is_free(on("n1", 1, milli=100), (Role(device_milli=100, device_memory_bytes=4 * GIB),))


def test_part_of_a_whole_held_device_is_not_free() -> None:
    inventory = books(1)
    inventory.take(on("n1", 1), WHOLE_DEVICE)

    assert not inventory.is_free(on("n1", 1, milli=500), HALF)


def test_exclusive_job_closes_its_nodes_to_others() -> None:
    inventory = books(4, 4)
    fresh = picture(inventory)

    inventory.take(on("n1", 1), WHOLE_DEVICE, exclusive=True)
    assert inventory.free == 4
    assert inventory.pools[0].usable == 4
    assert not inventory.is_free(on("n1", [1]), WHOLE_DEVICE)
    inventory.give(on("n1", 1), WHOLE_DEVICE, exclusive=True)

    assert picture(inventory) == fresh


def test_exclusive_job_needs_empty_nodes() -> None:
    inventory = books(4)
    roles = (Role(), Role(name="b"))
    both = on("n1", [0]) + on("n1", [1], role=1)
    assert inventory.is_free(both, roles, exclusive=True)

    inventory.take(on("n1", [3]), WHOLE_DEVICE)

    assert inventory.is_free(both, roles)
    assert not inventory.is_free(both, roles, exclusive=True)


@pytest.mark.parametrize("way", ["down", "drained"])
def test_node_out_of_use_offers_nothing_but_keeps_its_books(way: str) -> None:
    inventory = books(2, 2)
    inventory.take(on("n1", 1), WHOLE_DEVICE)
    inventory.take(on("n1", [1], milli=500), HALF)
    fresh = picture(inventory)
    switch = inventory.set_drained if way == "drained" else inventory.set_up
    out = way == "drained"

    switch(0, out)
    assert (inventory.free, inventory.pools[0].usable, inventory.pools[0].partial) == (2, 2, [])
    assert not inventory.is_free(on("n1", [1], milli=500), HALF)
    assert inventory.is_free(on("n1", [1], milli=500), HALF, back=True)
    inventory.give(on("n1", 1), WHOLE_DEVICE)
    inventory.give(on("n1", [1], milli=500), HALF)
    inventory.take(on("n1", [1], milli=500), HALF)
    inventory.take(on("n1", 1), WHOLE_DEVICE)
    switch(0, not out)

    assert picture(inventory) == fresh


def test_is_free_leaves_no_trace() -> None:
    inventory = Inventory(cluster(node("n1", 4, cpu_milli=2000)))
    roles = (Role(cpu_milli=1000), Role(name="half", device_milli=500))
    fresh = picture(inventory)
    fits = on("n1", [0]) + on("n1", [1], role=1, milli=500) + on("n1", [1], role=1, milli=500)

    assert inventory.is_free(fits, roles)
    assert not inventory.is_free(fits + on("n1", [1], role=1, milli=500), roles)
    assert picture(inventory) == fresh


def test_fork_is_independent() -> None:
    inventory = books(4)
    inventory.take(on("n1", [0], milli=500), HALF)
    before = picture(inventory)
    fork = inventory.fork()
    assert picture(fork) == before

    fork.take(on("n1", [1]), WHOLE_DEVICE)
    fork.give(on("n1", [0], milli=500), HALF)
    fork.set_up(0, False)
    fork.add(node("n2", 4))

    assert picture(inventory) == before
    assert (len(inventory.nodes), len(inventory.racks)) == (1, 1)


def test_totals_count_the_nodes_that_count() -> None:
    inventory = Inventory(cluster(node("n1", 1, cpu_milli=2000, memory_bytes=GIB), node("n2", 3)))

    assert (inventory.devices, inventory.cpu_total, inventory.memory_total) == (4, 2000, GIB)


@pytest.mark.parametrize(("mask", "count", "expected"), [(0b1011, 2, 0b11), (0b1010, 5, 0b1010), (0, 1, 0)])
def test_lowest_bits(mask: int, count: int, expected: int) -> None:
    assert lowest(mask, count) == expected


@pytest.mark.slow
@given(data=st.data())
def test_any_order_of_claims_keeps_the_indexes_true(data: st.DataObject) -> None:
    """Random claims and their return; the recount of `check` sees none of them, so it works on an empty state."""
    of = cluster(node("n1", 4, sockets=(2, 2)), node("n2", 2, device_memory_bytes=8 * GIB), node("n3", 3))
    state = State(of)
    inventory = state.inventory
    fresh = picture(inventory)
    held: list[tuple[Placement, tuple[Role, ...], bool]] = []
    for _ in range(data.draw(st.integers(1, 25))):
        if data.draw(st.booleans()) and held:
            inventory.give(*held.pop(data.draw(st.integers(0, len(held) - 1))))
            continue
        index = data.draw(st.integers(0, 2))
        part = data.draw(st.booleans())
        roles = (Role(device_milli=300, device_memory_bytes=GIB),) if part else WHOLE_DEVICE
        devices = 1 << data.draw(st.integers(0, 3)) if part else data.draw(st.integers(1, 15))
        placement = (Slot(index, devices, 1, 0, 300 if part else 1000),)
        exclusive = data.draw(st.booleans())
        if inventory.is_free(placement, roles, exclusive):
            inventory.take(placement, roles, exclusive)
            held.append((placement, roles, exclusive))
        if data.draw(st.booleans()):
            inventory.set_drained(index, data.draw(st.booleans()))
    for claim in reversed(held):
        inventory.give(*claim)
    for index in range(3):
        inventory.set_drained(index, False)
    check(state)

    assert picture(inventory) == fresh
