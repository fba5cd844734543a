"""Every policy lets time pass and ends every job, with fractional, elastic and heterogeneous jobs together."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import WHOLE, DeviceType, Job, JobId, NodeId, Role
from rota.core.model.labels import Requirement
from rota.drivers.simulator.load import load
from rota.drivers.simulator.study import Setting, simulate
from rota.perf.speed.model import Costs, SpeedModel
from rota.policies import names
from rota.scenario import Scenario
from rota.traces.generators import generate
from rota.traces.transform import merged_with
from rota.traces.workload import Submission, Workload

GIB = 2**30
CLUSTER = "fast=8/4,slow=8/4"
SMALL = Path(__file__).parents[2] / "docs" / "policies" / "standard.csv"
SPEED = SpeedModel(type_speed={DeviceType("slow"): 0.5})


def _mixed(seed: int) -> Workload:
    """Gangs and parts of devices, half of them elastic, a third of them for one type only."""
    gangs = generate("gavel-like", jobs=12, seed=seed, gpus=16, load=1.3, elastic=0.5)
    parts = generate("alibaba-like", jobs=14, seed=seed, gpus=16, load=1.3, elastic=0.5)
    both = merged_with(gangs, [parts])
    return replace(both, submissions=tuple(_typed(number, each) for number, each in enumerate(both.submissions)))


def _typed(number: int, each: Submission) -> Submission:
    kinds = {0: ("fast",), 1: ("slow", "fast")}.get(number % 3, ())
    roles = tuple(replace(role, device_types=tuple(map(DeviceType, kinds))) for role in each.job.roles)
    model = each.job.model if each.job.elastic is not None else None
    return replace(each, job=replace(each.job, roles=roles, model=model))


HOSTS = Cluster(
    nodes=tuple(
        Node(
            id=NodeId(f"n{number}"),
            device_type=DeviceType("gpu"),
            devices=4,
            cpu_milli=9000,
            memory_bytes=20 * GIB,
            labels=(("disk", "ssd"),) if number < 2 else (),
        )
        for number in range(4)
    )
)


def _crowded(seed: int) -> Workload:
    """Jobs for hosts where CPUs and memory are scarce; some for labelled nodes only."""
    rng, made = random.Random(seed), []
    for number in range(50):
        devices = rng.choice((1, 1, 1, 2))
        role = Role(
            device_milli=rng.choice((WHOLE // 4, WHOLE // 2)) if rng.random() < 0.2 else devices * WHOLE,
            cpu_milli=rng.choice((500, 1500, 4000)) * devices,
            memory_bytes=rng.choice((1, 4, 8)) * GIB,
            requires=((Requirement("disk", "In", ("ssd",)),),) if rng.random() < 0.2 else (),
        )
        job = Job(id=JobId(str(number)), roles=(role,), work=rng.choice((600.0, 3000.0, 9000.0)))
        made.append(Submission(job=job, submit_s=number * 60.0))
    return Workload(submissions=tuple(made), source="crowded", format="rota")


@pytest.mark.slow
@pytest.mark.parametrize("policy", [name for name in names() if name != "gavel/allox"])
def test_policy_asks_for_no_more_than_hosts_have_and_for_no_node_that_does_not_suit(policy: str) -> None:
    """The engine refuses such a plan, which ends the run; the world lets no job run on a node that it may not use."""
    unsuitable: list[str] = []

    class Watch:
        """A journal that looks where jobs are started."""

        def append(self, now_s: float, events: Any, decisions: Any, *more: Any) -> None:
            for each in decisions:
                where = {slot.node for slot in getattr(each, "placement", None) or ()}
                if each.job_id in picky and where - {0, 1}:
                    unsuitable.append(each.job_id)

    for seed in (1, 2):
        workload = _crowded(seed)
        picky = {each.job.id for each in workload.submissions if each.job.roles[0].requires}
        history = simulate(
            workload, policy, Setting(cluster=HOSTS, costs=Costs(restart_s=30.0)), journal=Watch()
        ).history
        assert all(row.end_s is not None for row in history.jobs)
    assert unsuitable == []


@pytest.mark.slow
@pytest.mark.parametrize("policy", [name for name in names() if name != "gavel/allox"])  # jobs of one device only
def test_policy_settles_at_every_moment_and_ends_every_job(policy: str) -> None:
    for seed in (1, 2):
        scenario = Scenario(
            policies=(policy,), cluster=CLUSTER, speed=SPEED, costs=Costs(restart_s=30.0), skip_oversized=True
        )
        loaded = load(scenario, _mixed(seed))

        history = simulate(loaded.workload, policy, loaded.setting).history

        assert len(history.jobs) > 20
        assert all(row.end_s is not None for row in history.jobs)


class Limited:
    """A journal that fails the test when a run takes too many steps."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def append(self, *step: Any) -> None:
        """Count a step of the engine."""
        self._left -= 1
        if not self._left:
            pytest.fail(f"the run is still not over at {step[0]:g} s")


@pytest.mark.slow
@pytest.mark.parametrize("policy", [name for name in names() if name != "gavel/allox"])
@pytest.mark.parametrize("restart_s", [60.0, 900.0])
def test_jobs_end_although_a_restart_takes_as_long_as_a_round(policy: str, restart_s: float) -> None:
    """Rounds last one to six minutes: a lease that ends before the restart does would end in nothing, for ever."""
    scenario = Scenario(policies=(policy,), cluster="v100=8/4", trace=str(SMALL), costs=Costs(restart_s=restart_s))
    loaded = load(scenario, None)

    history = simulate(loaded.workload, policy, loaded.setting, journal=Limited(20_000)).history

    assert [row.id for row in history.jobs if row.end_s is None] == []
