"""The resizing mechanism: few changes, in an order that never takes devices from under a running job."""

from __future__ import annotations

from builders import World, job, node, on, start
from rota.core.messages.decisions import Resize
from rota.core.messages.events import Started
from rota.core.model.cluster import Cluster
from rota.core.model.job import Elastic, Job, JobId
from rota.core.model.placement import Placement, Slot
from rota.mechanisms.elastic.resize import fewer
from rota.placement import style
from rota.policies import find_policy
from rota.tenancy import allocator


def growing(name: str, work: float, *, gpus: int = 1, least: int = 1, most: int = 4) -> Job:
    return job(name, gpus=gpus, workers=least, work=work, elastic=Elastic(min_tasks=least, max_tasks=most))


def resize(name: str, *placements: Placement) -> Resize:
    return Resize(JobId(name), tuple(slot for placement in placements for slot in placement))


def test_who_shrinks_goes_first_and_who_comes_waits_for_the_devices() -> None:
    world = World(gpus=4, policy="afs-l")
    world.settle(world.submit(job=growing("a", 100.0)))
    assert world.live("a").placement == on("n1", 4, tasks=4)

    assert world.submit(job=growing("b", 1000.0)) == [resize("a", on("n1", 2, tasks=2))]
    assert world.resized("a") == [start("b", on("n1", [2, 3], tasks=2))]


def test_who_grows_runs_on_until_the_devices_are_free() -> None:
    world = World(gpus=4, policy="afs-l")
    world.settle(world.submit(job=growing("a", 100.0, most=2)))
    world.settle(world.submit(job=growing("b", 1000.0, most=4)))
    assert world.live("b").placement == on("n1", [2, 3], tasks=2)

    assert world.ended("a") == [resize("b", on("n1", 4, tasks=4))]


def test_a_job_grows_on_its_own_node_if_there_is_room() -> None:
    world = World(of=Cluster(nodes=(node("n1", 4), node("n2", 4))), policy="afs-l")
    world.settle(world.submit("left", gpus=2, work=1.0))
    world.settle(world.submit("right", gpus=2, work=2.0))
    world.settle(world.submit(job=growing("b", 1000.0, most=2)))
    assert world.live("b").placement == on("n2", [0, 1], tasks=2)


def test_tasks_leave_the_node_where_the_job_has_fewest() -> None:
    held = (Slot(0, 0b0001, 1), Slot(1, 0b1111, 4))

    assert fewer(held, 3, 1) == (Slot(1, 0b0111, 3),)


def test_scattered_devices_are_brought_together_for_a_job_that_needs_them_on_one_node() -> None:
    """Two nodes of two devices with one job each: `wide` is as long as they and needs a whole node."""
    world = World(gpus=2, nodes=2, policy="afs-l").running("x", at=on("n1", 1), work=9.0)
    world.running("y", at=on("n2", 1), work=9.0)

    world.settle(world.submit("wide", gpus=2, work=10.0))

    assert world.states() == {"x": "running", "y": "running", "wide": "running"}


def test_what_the_rule_can_not_use_goes_to_whoever_fits() -> None:
    """The shorter job wants two devices of one node; only the longer one can have one of each."""
    world = World(of=Cluster(nodes=(node("n1", 1), node("n2", 1))), policy="afs-l")
    world.settle(world.submit("short", gpus=2, work=1.0))
    world.settle(world.submit("long", gpus=1, work=100.0))

    assert world.states() == {"short": "waiting", "long": "running"}


def test_a_fork_goes_on_where_the_policy_stood() -> None:
    """`a` is still starting on all devices when `b` comes: who adopts this state has to act once `a` runs."""
    world = World(gpus=4, policy="afs-l")
    world.submit(job=growing("a", 100.0))
    assert world.submit(job=growing("b", 1000.0)) == []
    alloc = allocator("none", style("consolidate"), world.cluster)

    fork = world.engine.fork(find_policy("afs-l")[0].build("", alloc), allocator=alloc)

    assert fork.step(0.0, [Started(JobId("a"), 4.0, 0.0)]) == [resize("a", on("n1", 2, tasks=2))]
