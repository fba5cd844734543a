"""Stages that need several resources, by hand: Ursa's scores, and Perotin's sizes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from builders import World, job, node
from elastic_jobs import elastic, ends, rigid
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import JobId
from rota.policies import find_policy

ROOT2 = math.sqrt(2)


def after(name: str) -> dict[str, Any]:
    return {"depends_on": (JobId(name),)}


# -- Ursa ----------------------------------------------------------------------------------------


def test_the_stage_that_uses_most_of_what_is_idle_goes_first() -> None:
    """Four devices and eight CPUs are held by `first`; when it ends, three stages of one age are ready.

    a: half of the devices + a quarter of the CPUs = 0.75. b: six of eight CPUs = 0.75. c: all devices = 1.
    c starts; then no device is idle, which forbids a; b has the CPUs.
    """
    world = World(of=Cluster(nodes=(node("n1", 4, cpu_milli=8000),)), policy="ursa")
    world.settle(world.submit("first", gpus=4, cpu_milli=8000))
    for name, needs in (("a", (2, 2000)), ("b", (0, 6000)), ("c", (4, 0))):
        world.settle(world.submit(name, gpus=needs[0], cpu_milli=needs[1]))

    world.settle(world.ended("first"))

    assert world.states() == {"first": "succeeded", "a": "waiting", "b": "running", "c": "running"}


def test_network_and_disk_are_resources_like_others() -> None:
    """When `first` ends, all of the node's network and disk is idle. `load` uses 0.75 of the disk, `shuffle` 0.6 of the
    network, `sort` half of both, 1 in all: it starts. Half of each is left, too little for the other two."""
    world = World(of=Cluster(nodes=(node("n1", 1, network_bps=100, disk_bps=100),)), policy="ursa")
    world.settle(world.submit("first", gpus=0, network_bps=100, disk_bps=100))
    for name, network, disk in (("load", 0, 75), ("shuffle", 60, 0), ("sort", 50, 50)):
        world.settle(world.submit(name, gpus=0, network_bps=network, disk_bps=disk))

    world.settle(world.ended("first"))

    assert world.states() == {"first": "succeeded", "load": "waiting", "shuffle": "waiting", "sort": "running"}


STAGES = (
    rigid("x1", 10.0),
    rigid("y1", 10.0, at_s=1.0),
    rigid("x2", 100.0, at_s=2.0, **after("x1")),
    rigid("y2", 10.0, at_s=2.0, **after("y1")),
)


def test_the_whole_that_came_first_goes_first() -> None:
    """One device. At 10 both x2 and y1 are ready; x is there since 0, y since 1."""
    assert ends("ursa", *STAGES, gpus=1) == {"x1": 10.0, "x2": 110.0, "y1": 120.0, "y2": 130.0}


def test_the_whole_with_least_left_goes_first() -> None:
    """At 10, x has 100 left and y 20: y1 and y2 go before x2."""
    assert ends("ursa:order=srjf", *STAGES, gpus=1) == {"x1": 10.0, "y1": 20.0, "y2": 30.0, "x2": 130.0}


# -- Perotin -------------------------------------------------------------------------------------


def test_chains_are_weighed_against_what_all_use_up() -> None:
    """Sizes s take 100/sqrt(s) seconds and 100 sqrt(s) device-seconds. Two stages at once on four devices: the longest
    takes 100/sqrt(s), and both use up 200 sqrt(s)/4; equal at s = 2. Both end at 70.7."""
    found = ends("perotin:rho=1,mu=1", elastic("a", 100.0), elastic("b", 100.0))

    assert found == {"a": round(100 / ROOT2, 2), "b": round(100 / ROOT2, 2)}


def test_a_chain_alone_gets_all_that_a_stage_may_have() -> None:
    """a, then b: 200/sqrt(s) against 200 sqrt(s)/4: s = 4, which mu = 1/2 cuts down to 2."""
    jobs = (elastic("a", 100.0), elastic("b", 100.0, **after("a")))

    assert ends("perotin:rho=1,mu=1", *jobs) == {"a": 50.0, "b": 100.0}
    assert ends("perotin:rho=1,mu=0.5", *jobs) == {"a": round(100 / ROOT2, 2), "b": round(200 / ROOT2, 2)}


def test_the_paper_rounds_to_sizes_up_to_rho_slower() -> None:
    """One resource: rho = 1/(sqrt(1.618) + 1) = 0.44. The program wants 50 s; one device takes 100 <= 50/0.44."""
    assert ends("perotin:mu=1", elastic("a", 100.0)) == {"a": 100.0}


def test_the_longest_chain_goes_first() -> None:
    """One device: short would be done at 10, but a chain of 60 waits behind `head`."""
    jobs = (rigid("short", 10.0), rigid("head", 20.0), rigid("tail", 40.0, **after("head")))

    assert ends("perotin", *jobs, gpus=1) == {"head": 20.0, "tail": 60.0, "short": 70.0}


@pytest.mark.parametrize("spec", ["perotin:mu=0", "perotin:rho=2", "ursa:weight=-1", "ursa:order=fifo"])
def test_parameters_that_make_no_sense_are_refused(spec: str) -> None:
    policy, options = find_policy(spec)

    with pytest.raises(RotaError, match=options.partition("=")[0]):
        policy.read(options)


def test_stages_of_one_whole_are_told_from_others_by_their_dependencies() -> None:
    """j depends on two that had nothing to do with each other: from then on all three are one, as old as the oldest."""
    world = World(gpus=1, policy="ursa:order=ejf")
    world.settle(world.submit(job=job("running", work=5.0)))
    for name, needs in (("p", ()), ("q", ()), ("j", (JobId("p"), JobId("q")))):
        world.pass_s(1.0)
        world.settle(world.submit(job=job(name, work=10.0, depends_on=needs)))
    world.settle(world.ended("running"))
    assert world.states()["p"] == "running"
    world.settle(world.ended("p"))
    assert (world.states()["q"], world.states()["j"]) == ("running", "waiting")
