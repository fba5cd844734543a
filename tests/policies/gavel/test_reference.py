"""The published simulator's own numbers, where the data is at selector."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rota.core.engine.engine import Engine
from rota.core.engine.invariants import check
from rota.core.model.job import DeviceType
from rota.core.state.state import State
from rota.drivers.simulator.run import run
from rota.drivers.simulator.study import Setting, scheduler, simulate
from rota.drivers.simulator.world import World
from rota.files.cluster import read_cluster
from rota.perf.profiles.profile_files import read_profiles
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import SpeedModel
from rota.report.metrics import Metrics, measure
from rota.traces.formats import read_trace

DATA = os.environ.get("ROTA_DATA")
pytestmark = [
    pytest.mark.skipif(DATA is None, reason="ROTA_DATA names no folder with the published data"),
    pytest.mark.slow,
]
FOLDER = Path(DATA or ".") / "gavel"
CLUSTERS = {"A": "v100=8/4,p100=16/4,k80=24/4", "D": "v100=12/1,p100=12/1,k80=12/1"}
TRACES = {"A": "max_min_fairness.trace", "D": "gen_single_120.trace"}


@cache
def reference() -> dict[tuple[str, str], dict[str, Any]]:
    rows = json.loads((FOLDER / "reference_results.json").read_text())["results"]
    return {(row["set"], row["policy"]): row for row in rows}


@cache
def setting(name: str) -> Setting:
    speed = SpeedModel(profiles=read_profiles(FOLDER / "simulation_throughputs.json"))
    return Setting(cluster=read_cluster(CLUSTERS[name]), speed=speed)


def measured(name: str, policy: str) -> Metrics:
    workload = read_trace(FOLDER / TRACES[name], format="gavel")
    return measure(simulate(workload, f"gavel/{policy}", setting(name)).history)


EXACT = [
    ("A", "fifo"),
    ("A", "fifo_perf"),
    ("A", "fifo_packed"),
    ("A", "isolated"),
    ("A", "gandiva"),
    ("D", "fifo"),
    ("D", "fifo_perf"),
    ("D", "isolated"),
    ("D", "gandiva"),
    ("D", "allox"),
]


@pytest.mark.parametrize(("name", "policy"), EXACT)
def test_policies_without_a_solver_agree_to_three_decimals(name: str, policy: str) -> None:
    expected = reference()[name, "fifo_fixed" if policy == "fifo" else policy]

    found = measured(name, policy)

    assert found.avg_jct_s is not None
    assert (round(found.avg_jct_s, 3), round(found.makespan_s, 3)) == (expected["avg_jct_s"], expected["makespan_s"])


@pytest.mark.parametrize(
    ("policy", "limit"),
    [("max_min_fairness_perf", 1.05), ("max_min_fairness_packed", 1.05), ("max_min_fairness", 1.15)],
)
@pytest.mark.parametrize("name", ["A", "D"])
def test_completion_times_of_programs_are_near(name: str, policy: str, limit: float) -> None:
    found = measured(name, policy)

    assert found.avg_jct_s is not None
    assert found.avg_jct_s <= limit * reference()[name, policy]["avg_jct_s"]


@pytest.mark.parametrize("name", ["A", "D"])
def test_makespan_of_least_total_duration_is_near(name: str) -> None:
    policy = "min_total_duration_perf"

    assert measured(name, policy).makespan_s <= 1.06 * reference()[name, policy]["makespan_s"]


@pytest.mark.parametrize("policy", ["gandiva", "max_min_fairness_packed:compat=none", "hierarchical:inside=fifo"])
def test_state_holds_together_at_every_step(policy: str) -> None:
    class Watch:
        def append(self, *step: object) -> None:
            check(engine.state)

    workload = read_trace(FOLDER / TRACES["A"], format="gavel")
    built, alloc, _ = scheduler(f"gavel/{policy}", setting("A"))
    engine = Engine(State(setting("A").cluster), built, alloc, journal=Watch())
    run(engine, World(setting("A").cluster, setting("A").speed, setting("A").costs), workload.submissions[:40])

    assert all(live.state.is_final for live in engine.state.jobs.values())


def test_scattered_speeds_are_read() -> None:
    profiles = setting("A").speed.profiles
    assert isinstance(profiles, Profiles)

    assert profiles.scattered
    assert not any(str(kind).endswith("unconsolidated") for kind, _, _ in profiles.steps_per_s)
    assert profiles.rate(DeviceType("k80"), "ResNet-50 (batch size 128)", 2) == 0.0
