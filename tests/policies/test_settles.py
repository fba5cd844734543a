"""Every policy lets time pass and ends every job, with fractional, elastic and heterogeneous jobs together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rota.core.model.job import DeviceType
from rota.drivers.simulator.load import load
from rota.drivers.simulator.study import simulate
from rota.perf.speed.model import Costs, SpeedModel
from rota.policies import names
from rota.scenario import Scenario
from rota.traces.generators import generate
from rota.traces.transform import merged_with
from rota.traces.workload import Submission, Workload

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
