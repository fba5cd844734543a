"""What holds for every policy that has a name."""

from __future__ import annotations

import pytest

from builders import World, at_once, in_rounds, on
from rota.core.decisions import Start


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
