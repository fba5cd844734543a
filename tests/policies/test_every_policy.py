"""What holds for every policy that has a name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from builders import World, at_once, in_rounds, on
from rota.core.codec import snapshot
from rota.core.messages.decisions import Start


@pytest.mark.parametrize("policy", [*at_once(), *in_rounds()])
def test_job_without_devices_runs(policy: str) -> None:
    world = World(gpus=1, policy=policy)

    world.settle(world.submit("cpus", gpus=0, cpu_milli=1000))
    world.pass_s(10.0)

    assert world.states() == {"cpus": "running"}
    (decision,) = world.submit("gpu", gpus=1)
    assert isinstance(decision, Start)
    assert (decision.job_id, decision.placement) == ("gpu", on("n1", 1))


@pytest.mark.parametrize("policy", [*at_once(), *in_rounds()])
def test_jobs_of_unknown_length_are_served(policy: str) -> None:
    world = World(gpus=1, policy=policy)

    world.settle(world.submit("a", gpus=0, cpu_milli=1000))
    world.settle(world.submit("b", gpus=1))
    world.settle(world.submit("c", gpus=1))
    world.settle(world.ended("b"))

    assert world.states() == {"a": "running", "b": "succeeded", "c": "running"}


def _busy(policy: str) -> World:
    """A world in which jobs run, wait and have ended, so that a policy has something to remember."""
    world = World(gpus=2, policy=policy)
    for name, gpus in (("a", 1), ("b", 1), ("c", 2), ("d", 1)):
        world.settle(world.submit(name, gpus=gpus, work=9000.0))
    world.pass_s(400.0)
    world.settle(world.ended(next(name for name, state in world.states().items() if state == "running")))
    world.pass_s(400.0)
    world.settle(world.timer())
    return world


@pytest.mark.slow
@pytest.mark.parametrize("policy", [*at_once(), *in_rounds()])
def test_policy_goes_on_from_what_was_written_down(policy: str) -> None:
    world = _busy(policy)
    taken = snapshot.take(world.state, world.engine.memory)
    written = json.loads(json.dumps({"jobs": taken.jobs, "memory": taken.memory, "past": taken.past}))
    again = World(of=world.cluster, policy=policy)
    again.state = snapshot.restore(world.cluster, replace(taken, **written))
    again.now_s = world.now_s
    again.settle(again.timer())

    for each in (world, again):
        each.pass_s(30.0)
        each.settle(each.submit("e", gpus=1, work=9000.0))
        each.pass_s(600.0)
        each.settle(each.timer())

    assert again.states() == {name: state for name, state in world.states().items() if state != "succeeded"}
