"""The list scheduler: strict queues, backfill, reservations, pre-emption that moves only who must."""

from __future__ import annotations

from builders import World, cluster, job, node, on, stop
from rota.core.decisions import Cause
from rota.core.events import NodeDrained
from rota.core.model import DeviceType, Locality, NodeId, Role

A, B = DeviceType("a"), DeviceType("b")


def test_strict_queue_keeps_its_order_when_localities_differ() -> None:
    """A job that insists on one node and one that does not stand in the same queue."""
    world = World(gpus=2, nodes=2, policy="fifo")
    world.running("x", gpus=1, at=on("n1", 1)).running("y", gpus=1, at=on("n2", 1))
    assert world.submit("insists", gpus=1, workers=2, locality=Locality(hard=True)) == []

    assert world.submit("later", gpus=1) == []


def test_strict_queue_keeps_its_order_when_the_first_has_relaxed() -> None:
    world = World(gpus=2, policy="fifo", placement="consolidate:relax_after=100").running("x", gpus=1)
    world.submit("first", gpus=2)
    world.timer(200.0)

    assert world.submit("later", gpus=1) == []


def test_job_that_need_not_yield_stays_on_a_drained_node() -> None:
    """Making room looks at the last in order first; one who can't help keeps its devices."""
    world = World(gpus=2, nodes=2, policy="priority")
    world.running("first", gpus=2, at=on("n1", 2)).running("last", gpus=2, at=on("n2", 2))
    world.step(NodeDrained(NodeId("n2")))

    assert world.submit("high", gpus=2, priority=5) == [stop("first")]


def test_whole_device_is_taken_from_one_who_holds_half_of_it() -> None:
    world = World(gpus=1, policy="priority").running("half", gpus=0.5)

    assert world.submit("high", gpus=1, priority=5) == [stop("half")]


def test_whole_node_is_taken_from_one_who_holds_it_alone() -> None:
    world = World(gpus=4, policy="priority").running("alone", gpus=1, exclusive=True)

    assert world.submit("high", gpus=4, priority=5) == [stop("alone")]


def test_devices_of_the_second_role_are_taken_too() -> None:
    two = cluster(node("n1", 2, device_type=A), node("n2", 2, device_type=B))
    world = World(of=two, policy="priority").running("x", gpus=2, at=on("n2", 2))
    roles = (Role(name="ps", device_milli=0, device_types=(A,)), Role(device_milli=2000, device_types=(B,)))

    assert world.submit(job=job("high", roles=roles, priority=5)) == [stop("x", Cause.MOVED)]
    assert world.live("x").placement == on("n1", 2)


def test_exclusive_job_of_two_roles_goes_back_to_its_own_devices() -> None:
    """`pair` is the last in order and of no use to `high`: it is put back as it was."""
    roles = (Role(name="a", count=1), Role(name="b", count=1))
    two = cluster(node("n1", 2, device_type=A), node("n2", 2, device_type=B))
    world = World(of=two, policy="priority").running("low", gpus=2, device_types=(A,))
    world.running(
        "pair", job=job("pair", roles=roles, exclusive=True), at=on("n2", 1) + on("n2", [1], role=1)
    )

    decisions = world.submit("high", gpus=2, priority=5, device_types=(A,))

    assert decisions == [stop("low")]
