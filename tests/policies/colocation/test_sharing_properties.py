"""What must hold under every policy that shares devices, whatever the jobs: memory, work, guarantees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import GIB, cluster, job, node
from rota.core.engine.engine import Engine
from rota.core.model.job import OPPORTUNISTIC, WHOLE, DeviceType, Job, Role
from rota.core.state.state import State
from rota.drivers.simulator.run import run
from rota.drivers.simulator.study import Setting, scheduler
from rota.drivers.simulator.world import World
from rota.perf.profiles.partial_profiles import EstimateSpec, SpeedEstimate
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import Costs, SpeedModel
from rota.traces.workload import Submission
from watches import Bound, Watch

GPU = DeviceType("gpu")
LIGHT, HEAVY = MODELS = ("resnet152", "alexnet")
PAIRS = {(LIGHT, LIGHT): (9.0, 9.0), (LIGHT, HEAVY): (7.0, 6.0), (HEAVY, HEAVY): (5.0, 5.0)}
PROFILES = Profiles(
    steps_per_s={(GPU, model, devices): 10.0 for model in MODELS for devices in (1, 2)},
    pairs={
        (GPU, *names, devices): rates
        for (one, other), (first, second) in PAIRS.items()
        for names, rates in (((one, other), (first, second)), ((other, one), (second, first)))
        for devices in (1, 2)
    },
    source="test",
)
SHARING = (
    "gandiva:quantum_s=20",
    "antman",
    "antman:patience_s=30",
    "kubeshare",
    "salus:persistent=0.3",
    "salus:order=fair,migrate=true,persistent=0.5",
    "olympian",
    "lucid",
    "muri",
    "horus",
    "rota:sharing=true",
)
Asked = dict[str, Any]
asked_for: st.SearchStrategy[list[Asked]] = st.lists(
    st.fixed_dictionaries(
        {
            "gpus": st.sampled_from([0.1, 0.25, 0.5, 1, 1, 1, 2]),
            "tasks": st.sampled_from([1, 1, 2]),
            "served": st.sampled_from([False, False, False, True]),
            "work": st.integers(100, 2000),
            "model": st.sampled_from(MODELS),
            "memory": st.integers(1, 16),
            "priority": st.sampled_from([0, OPPORTUNISTIC]),
            "submit_s": st.integers(0, 60),
        }
    ),
    min_size=2,
    max_size=7,
)


def _jobs(asked: list[Asked]) -> list[Submission]:
    made = [
        Submission(job=_job(f"j{number}", **each), submit_s=float(each["submit_s"]))
        for number, each in enumerate(asked)
    ]
    return sorted(made, key=lambda each: each.submit_s)


def _job(
    name: str, *, gpus: float, tasks: int, served: bool, work: int, memory: int, submit_s: int, **said: Any
) -> Job:
    """A job of some tasks, some of those with whole devices with a parameter server that holds none."""
    workers = tasks if gpus <= 1 else 1
    made = job(name, gpus=gpus, workers=workers, work=float(work), device_memory_bytes=memory * GIB, **said)
    server = Role(name="server", device_milli=0, cpu_milli=WHOLE)
    return replace(made, roles=(server, *made.roles)) if served and gpus >= 1 else made


def course(
    policy: str,
    submissions: Sequence[Submission],
    watch: Watch,
    speed: SpeedModel,
    costs: Costs,
    estimate: SpeedEstimate | None = None,
) -> State:
    """Run jobs to their end on two nodes of two devices of 16 GiB and four cores, watched."""
    nodes = [node(name, 2, device_memory_bytes=16 * GIB, cpu_milli=4000) for name in ("n1", "n2")]
    setting = Setting(cluster=cluster(*nodes), speed=speed, costs=costs, estimate=estimate)
    built, alloc, _ = scheduler(policy, setting)
    watch.engine = Engine(State(setting.cluster), built, alloc, journal=watch)
    run(watch.engine, World(setting.cluster, speed, costs), submissions)
    return watch.engine.state


@pytest.mark.slow
@pytest.mark.parametrize("policy", SHARING)
@given(asked=asked_for)
@settings(max_examples=8)
def test_memory_is_never_exceeded_and_all_work_is_done_once(policy: str, asked: list[Asked]) -> None:
    submissions = _jobs(asked)

    state = course(policy, submissions, Watch(), SpeedModel(profiles=PROFILES), Costs(resume_s=0.5, move_s=2.0))

    for each in submissions:
        live = state.live(each.job.id)
        assert live.state.value == "succeeded"
        assert live.work == each.job.work
        assert live.lost_work == pytest.approx(0.0, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("gaps", [0.0, 1.0])
@pytest.mark.parametrize("guard", [0.95, 0.7])
@given(asked=asked_for)
@settings(max_examples=8)
def test_guaranteed_job_is_never_slower_than_its_bound(gaps: float, guard: float, asked: list[Asked]) -> None:
    speed = SpeedModel(profiles=PROFILES, gaps=gaps)
    watch = Bound(speed, against_each_other=False)

    course(f"antman:guard={guard}", _jobs(asked), watch, speed, Costs())

    assert watch.least >= guard - 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    "speed",
    [
        SpeedModel(profiles=PROFILES, node_neighbour=0.8),
        SpeedModel(device_neighbour=0.7, node_neighbour=0.9),
        SpeedModel(contention=True),
        SpeedModel(profiles=PROFILES, contention=True),
        SpeedModel(interleaved=True, node_neighbour=0.9),
    ],
    ids=["pairs and nodes", "neighbours", "contention", "pairs and contention", "stages and nodes"],
)
@pytest.mark.parametrize("guard", [0.95, 0.7])
@given(asked=asked_for)
@settings(max_examples=8)
def test_guaranteed_job_keeps_its_bound_with_any_neighbours(
    speed: SpeedModel, guard: float, asked: list[Asked]
) -> None:
    watch = Bound(speed)

    course(f"antman:guard={guard},unknown=0.5", _jobs(asked), watch, speed, Costs(restart_s=9.0, checkpoint_s=5.0))

    assert watch.least >= guard - 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("node_neighbour", [1.0, 0.9])
@given(asked=asked_for, known=st.sampled_from([0.0, 0.3, 0.6]), seed=st.integers(0, 9))
@settings(max_examples=8)
def test_guaranteed_job_keeps_its_bound_where_speeds_are_guessed(
    node_neighbour: float, asked: list[Asked], known: float, seed: int
) -> None:
    speed = SpeedModel(profiles=PROFILES, node_neighbour=node_neighbour)
    watch = Bound(speed)

    course("antman", _jobs(asked), watch, speed, Costs(), EstimateSpec(known=known, seed=seed).estimate(PROFILES))

    assert watch.least >= 0.95 - 1e-9
