"""Rounds go on exactly where they were: after a fork, after a restart, and when a journal is run again."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from builders import job
from rota.core.codec import snapshot
from rota.core.engine.engine import Engine
from rota.core.errors import RotaError
from rota.core.messages.decisions import Decision
from rota.core.messages.events import Event
from rota.core.messages.reasons import Reason
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, Elastic, JobId
from rota.core.state.state import State
from rota.drivers.simulator.replay import replay
from rota.drivers.simulator.study import Setting, scheduler, simulate
from rota.perf.speed.model import Costs, SpeedModel
from rota.perf.speed.options import fingerprint
from rota.policies import find_policy, names
from rota.scenario import Scenario
from rota.store.journal import JournalHeader, JournalWriter
from rota.traces.workload import Submission, Workload

SETTING = Setting(
    cluster=Cluster.uniform(("v100", 2, 2), ("p100", 2, 2), ("k80", 2, 2)),
    speed=SpeedModel(
        type_speed={DeviceType("v100"): 1.0, DeviceType("p100"): 0.6, DeviceType("k80"): 0.25}, device_neighbour=0.7
    ),
    costs=Costs(restart_s=20.0),
    seed=3,
)
POLICIES = [
    *(name for name in names() if find_policy(name)[0].plans_in_rounds),
    "gavel/max_min_fairness_packed:compat=none",
    "gavel/fifo:compat=none",
    "gavel/finish_time_fairness_packed:compat=none,forecast=true",
    "gavel/max_min_fairness_packed:compat=none,elastic=true",
    "gavel/max_min_fairness_perf:compat=none,cross_type=true",
    "gavel/min_total_duration_packed:compat=none,mixed_sharing=true",
]


def workload(*, sizes: Sequence[int] = (1, 1, 2), elastic: bool = False, gangs: bool = False) -> Workload:
    rng = random.Random(7)
    submissions = []
    at_s = 0.0
    for number in range(18):
        at_s += rng.expovariate(1 / 400)
        labels = (("entity", "ab"[number % 2]), ("priority_weight", rng.choice("12")))
        size, work = rng.choice(sizes), rng.uniform(200.0, 5000.0)
        shape: dict[str, Any] = {"workers": size} if elastic or gangs else {"gpus": size}
        if elastic:
            shape["elastic"] = Elastic(min_tasks=1, max_tasks=4)
        made = job(f"j{number}", work=work, labels=labels, **shape)
        submissions.append(Submission(submit_s=at_s, job=made))
    return Workload(submissions=tuple(submissions), source="made up", format="jobs")


def of(policy: str) -> Workload:
    if "cross_type" in policy or "mixed_sharing" in policy:
        return workload(sizes=(1, 2, 3) if "cross_type" in policy else (1, 1, 2), gangs=True)
    return workload(sizes=(1,)) if "allox" in policy else workload(elastic="elastic=true" in policy)


class Tape:
    """A journal in memory."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, tuple[Event, ...], list[Decision]]] = []

    def append(
        self,
        now_s: float,
        events: Sequence[Event],
        decisions: Sequence[Decision],
        waits: Sequence[tuple[JobId, Reason]],
    ) -> None:
        self.steps.append((now_s, tuple(events), list(decisions)))


@cache
def recorded(policy: str) -> Tape:
    tape = Tape()
    simulate(of(policy), policy, SETTING, journal=tape)
    return tape


def fresh(policy: str, state: State) -> Engine:
    built, alloc, _ = scheduler(policy, SETTING)
    return Engine(state, built, alloc)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_fork_and_restart_go_on_as_the_original(policy: str) -> None:
    steps = recorded(policy).steps
    engine = fresh(policy, State(SETTING.cluster))
    twins: list[Engine] = []
    for number, (now_s, events, decisions) in enumerate(steps):
        assert engine.step(now_s, events) == decisions
        for twin in twins:
            assert twin.step(now_s, events) == decisions, number
        if number >= len(steps) * (len(twins) // 2 + 1) // 5 and not engine.state.reserved:
            built, _, _ = scheduler(policy, SETTING)
            taken = snapshot.take(engine.state, engine.memory)
            again = json.loads(json.dumps({"jobs": taken.jobs, "memory": taken.memory}))
            frame = snapshot.Snapshot(now_s=taken.now_s, seq=taken.seq, jobs=again["jobs"], memory=again["memory"])
            twins += [engine.fork(built), fresh(policy, snapshot.restore(SETTING.cluster, frame))]
    assert len(twins) >= 8
    assert all(live.state.is_final for live in engine.state.jobs.values())


def test_memory_of_another_policy_is_no_use() -> None:
    policy = "gavel/gandiva"
    engine = fresh(policy, State(SETTING.cluster))
    for now_s, events, _ in recorded(policy).steps[:40]:
        engine.step(now_s, events)
    other, _, _ = scheduler("gavel/fifo", SETTING)

    twin = engine.fork(other)

    assert twin.memory["jobs"] == []
    assert len(twin.memory["comers"]) == sum(not live.state.is_final for live in engine.state.jobs.values())


def write(policy: str, path: Path, **fields: Any) -> None:
    scenario = Scenario(
        policies=(policy,),
        placement="any",
        cluster=SETTING.cluster,
        speed=SETTING.speed,
        costs=Costs(restart_s=20.0),
        seed=3,
    )
    with JournalWriter(path, JournalHeader(scenario=replace(scenario, **fields))) as journal:
        simulate(of(policy), policy, SETTING, journal=journal)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["gavel/fifo", "gavel/gandiva", "gavel/max_min_fairness_packed"])
def test_journal_gives_the_same_decisions_again(policy: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(policy, path)

    outcome = replay(path)

    assert outcome.mismatch is None
    assert outcome.steps == len(recorded(policy).steps)


@pytest.mark.parametrize("fields", [{"seed": 4}, {"speed": SpeedModel()}], ids=["another seed", "other speeds"])
def test_header_carries_what_decisions_hang_on(fields: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write("gavel/fifo", path, **fields)

    assert replay(path).mismatch is not None


def test_another_file_of_speeds_is_refused(tmp_path: Path) -> None:
    path, speeds = tmp_path / "journal.jsonl", tmp_path / "speeds.json"
    speeds.write_text("{}")
    write("gavel/fifo", path, profiles=str(speeds), profiles_sha256=fingerprint(speeds))
    speeds.write_text('{"v100": {}}')

    with pytest.raises(RotaError, match=r"speeds.json: this is not the file that the journal was written with"):
        replay(path)
