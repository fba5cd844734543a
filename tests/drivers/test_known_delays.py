"""A journal of jobs whose starts and stops took times of their own is replayed to the same history."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from builders import cluster, job, node
from rota.core.model.job import Checkpoint, Role
from rota.drivers.simulator.study import Setting, simulate
from rota.perf.speed.model import Costs
from rota.scenario import Scenario
from rota.store.journal import JournalHeader, JournalWriter
from rota.traces.formats import read_trace
from rota.traces.workload import OrderDelays, Submission, Workload

TWO = cluster(node("n1", 4), node("n2", 4))
COSTS = Costs(load_s=0.1, checkpoint_s=0.2, checkpoint_interval_s=math.inf)
SETTING = Setting(cluster=TWO, costs=COSTS)


def disturbed(seed: int) -> Workload:
    """Jobs of which half start over, each with delays that no other has; few starts and stops, or many."""
    chance = random.Random(seed)
    submissions, at_s = [], 0.0
    for number in range(30):
        at_s += chance.expovariate(0.4)
        asked = job(
            f"j{number}",
            work=chance.lognormvariate(2.0, 0.5),
            roles=(Role(count=chance.choice((1, 1, 2, 4))),),
            priority=chance.choice((0, 0, 50, 100)),
            checkpoint=Checkpoint() if number % 2 else Checkpoint(interval_s=math.inf),
        )
        delays = OrderDelays(
            starts_s=tuple(chance.expovariate(5.0) for _ in range(60)),
            stops_s=tuple(chance.expovariate(4.0) for _ in range(60)),
        )
        submissions.append(Submission(job=asked, submit_s=at_s, delays=delays))
    first_s = submissions[0].submit_s
    submissions = [replace(each, submit_s=each.submit_s - first_s) for each in submissions]
    return Workload(submissions=tuple(submissions), source="here", format="rota")


@pytest.mark.parametrize("policy", ["fifo:backfill=true", "priority:protect=none", "las:thresholds=8/40,protect=none"])
@pytest.mark.parametrize("seed", [1, 2])
def test_replayed_journal_is_what_happened(policy: str, seed: int, tmp_path: Path) -> None:
    header = JournalHeader(scenario=Scenario(policies=(policy,), placement="any", cluster=TWO))
    with JournalWriter(tmp_path / "journal.jsonl", header) as journal:
        real = simulate(disturbed(seed), policy, SETTING, journal=journal).history

    again = simulate(read_trace(tmp_path / "journal.jsonl"), policy, SETTING).history

    assert max(row.preemptions for row in real.jobs) >= (0 if policy.startswith("fifo") else 1)
    assert [(row.id, row.preemptions) for row in again.jobs] == [(row.id, row.preemptions) for row in real.jobs]
    assert [row.end_s for row in again.jobs] == pytest.approx([row.end_s for row in real.jobs], abs=1e-6)
