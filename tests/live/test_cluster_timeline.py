"""The timeline agrees with the report of a simulation and with the day's records, also about what began before it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from report.histories import sub
from rota.core.messages.decisions import Decision
from rota.core.messages.events import Event
from rota.core.messages.reasons import Reason
from rota.core.model.cluster import Cluster
from rota.core.model.job import JobId
from rota.drivers.local.driver import LocalDriver
from rota.drivers.simulator.study import Setting, simulate
from rota.live.loop.boot import Scheduling, boot
from rota.live.views import cluster_timeline
from rota.live.views.cluster_timeline import ClusterTimeline, JobHistory, TimelineWindow, Wait
from rota.report.timeline import Tee, Timeline
from rota.store import clock
from rota.store.database import open_database
from rota.store.jobs import JobSearch
from rota.store.journal import encode_step
from rota.store.records import Records
from rota.traces.workload import Workload
from rota.web.pages.timeline import MAX_QUEUE, queue_rows
from web.past import make_past

CLUSTER = Cluster.uniform(("gpu", 32, 8))
JOBS = 150


class Told:
    """A journal that tells a `JobHistory` each step as the database would, from a given one on."""

    def __init__(self, cluster: Cluster, first: int = 0) -> None:
        self.history = JobHistory()
        self.steps = 0
        self._first = first
        self._names = [str(node.id) for node in cluster.nodes]

    def append(
        self,
        now_s: float,
        events: Sequence[Event],
        decisions: Sequence[Decision],
        waits: Sequence[tuple[JobId, Reason]],
    ) -> None:
        """Pass one step on."""
        body = json.dumps(encode_step(self.steps, now_s, events, decisions, waits, self._names))
        self.steps += 1
        if self.steps > self._first:
            self.history.read(json.loads(body))


@pytest.mark.parametrize("policy", ["fifo", "las", "gandiva", "themis", "afs-p", "antman"])
@pytest.mark.parametrize("seed", [1, 2])
def test_holds_are_those_of_the_report(policy: str, seed: int) -> None:
    rng = Random(seed)
    cluster = Cluster.uniform(("gpu", 16, 8))
    workload = Workload(
        submissions=tuple(
            sub(f"j{number}", at_s, rng.uniform(5.0, 900.0), gpus=rng.choice((1, 1, 2, 4, 8)))
            for number, at_s in enumerate(sorted(rng.uniform(0.0, 3000.0) for _ in range(40)))
        ),
        source="test",
        format="test",
    )
    timeline, told = Timeline(cluster), Told(cluster)

    simulate(workload, policy, Setting(cluster=cluster), journal=Tee(timeline, told))

    segments = timeline.segments()
    names = [str(node.id) for node in cluster.nodes]
    expected = sorted(
        (str(job_id), names[node], mask, round(start_s, 6), round(end_s, 6))
        for job_id, node, mask, start_s, end_s in zip(
            segments.job_ids,
            segments.nodes.tolist(),
            segments.masks,
            segments.start_s.tolist(),
            segments.end_s.tolist(),
            strict=True,
        )
        if mask and end_s > start_s
    )
    history = told.history
    found = sorted(
        (str(hold.job_id), hold.node, hold.devices, round(hold.start_s, 6), round(hold.end_s or 0.0, 6))
        for hold in history.old_holds
    )
    assert len(found) > 30
    assert found == expected
    assert history.holds == {}
    assert history.waits == {}
    assert history.unknown == {}


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 60), st.booleans()), max_size=120))
@settings(max_examples=80, deadline=None)
def test_waits_that_overlap_are_in_different_rows(drawn: list[tuple[int, int, bool]]) -> None:
    waits = [
        Wait(job_id=JobId(f"j{index}"), start_s=float(at), end_s=None if is_open else float(at + length))
        for index, (at, length, is_open) in enumerate(drawn)
    ]
    placed, hidden = queue_rows(waits, 1000.0)

    assert len(placed) + hidden == len(waits)
    rows: dict[int, list[tuple[float, float]]] = {}
    for wait, row in placed:
        assert 0 <= row < MAX_QUEUE
        rows.setdefault(row, []).append((wait.start_s, 1000.0 if wait.end_s is None else wait.end_s))
    for spans in rows.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
    if hidden:
        assert len(rows) == MAX_QUEUE


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Records]:
    """A day of jobs that ran once each, on 32 devices that were too few for them."""
    home = tmp_path_factory.mktemp("past")
    make_past(home, CLUSTER, policy="fifo", tenancy="none", jobs=JOBS)
    kept = Records(open_database(Path(home, "rota.db")))
    yield kept
    kept.close()


def day_of(records: Records) -> TimelineWindow:
    control = boot(records, Scheduling(cluster=CLUSTER, policy="fifo"), LocalDriver.contract)
    now_s = clock.now_s()
    return asyncio.run(ClusterTimeline(records, control).window(now_s - cluster_timeline.DAY_S, now_s))


@pytest.mark.slow
@pytest.mark.parametrize("hours", [24, 8, 3])
def test_the_day_is_that_of_the_records(records: Records, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    """With a short day, jobs held devices since before it: what they held is looked up."""
    monkeypatch.setattr(cluster_timeline, "DAY_S", hours * 3600.0)
    window = day_of(records)
    rows, _ = records.find(JobSearch(limit=10_000))
    expected = {
        row.id: (row.started_s, row.ended_s, json.loads(row.spec))
        for row in rows
        if row.started_s is not None and row.ended_s > window.from_s
    }

    held: dict[str, int] = {}
    for hold in window.holds:
        assert hold.end_s is not None
        started_s, ended_s, _ = expected[str(hold.job_id)]
        assert hold.start_s == pytest.approx(started_s, abs=5.0)
        assert hold.end_s == pytest.approx(ended_s, abs=5.0)
        held[str(hold.job_id)] = held.get(str(hold.job_id), 0) + hold.devices.bit_count()
    asked = {name: spec["workers"] * spec["resources"]["gpus"] for name, (_, _, spec) in expected.items()}
    assert {name: gpus for name, gpus in asked.items() if gpus} == held
    assert sum(hold.start_s < window.from_s for hold in window.holds) > 0 or hours == 24
    for wait in window.waits:
        row = next(row for row in rows if row.id == str(wait.job_id))
        assert wait.start_s == pytest.approx(row.submitted_s, abs=5.0)
