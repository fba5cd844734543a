"""Policies that learn sizes: a fork in the middle of a run goes on exactly as the run does."""

from __future__ import annotations

import json

import pytest

from rota.core.engine.engine import Engine
from rota.core.messages.decisions import Decision
from rota.core.messages.events import TimerFired
from rota.core.model.cluster import Cluster
from rota.core.state.state import State
from rota.drivers.simulator.study import Setting, scheduler
from rota.drivers.simulator.world import World
from rota.traces.generators import generate

CUTS = (25, 50, 75)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["afs-l", "afs-p", "elasticflow", "optimus", "pollux", "sia", "ursa", "perotin"])
def test_a_fork_decides_as_the_run_would(policy: str) -> None:
    """At some steps the engine is forked with its memory as JSON has it; both then see the same events."""
    setting = Setting(cluster=Cluster.uniform(("gpu", 16, 4)))
    built, alloc, _ = scheduler(policy, setting)
    engine = Engine(State(setting.cluster), built, alloc)
    world = World(setting.cluster, setting.speed, setting.costs)
    jobs = list(generate("philly-like", jobs=40, seed=2, gpus=16, load=3.0, elastic=0.8, deadlines=0.5).submissions)
    fork: Engine | None = None
    steps = 0
    while jobs or world.due_s < float("inf") or engine.wakeup_s < float("inf"):
        now_s = min(jobs[0].submit_s if jobs else float("inf"), world.due_s, engine.wakeup_s)
        events = world.pop_due(now_s)
        while jobs and jobs[0].submit_s <= now_s:
            world.expect(jobs[0])
            events.append(world.arrival(jobs.pop(0).job))
        events = events or [TimerFired()]
        while events:
            decisions: list[Decision] = engine.step(now_s, events)
            if fork is not None:
                assert fork.step(now_s, events) == decisions
            steps += 1
            events = world.carry_out(decisions, now_s)
            if steps in CUTS:
                twin, its_alloc, _ = scheduler(policy, setting)
                fork = engine.fork(twin, allocator=its_alloc)
                fork.state.memory = json.loads(json.dumps(engine.memory))
                twin.adopt(fork.state)
    assert steps > max(CUTS)
