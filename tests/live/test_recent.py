"""The last day over time agrees with what the jobs' records say, whoever was there before it began."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.core.model.cluster import Cluster
from rota.drivers.local.driver import LocalDriver
from rota.live.loop.boot import Scheduling, boot
from rota.live.views import recent as recent_module
from rota.live.views.job_timeline import life_of
from rota.live.views.recent import DAY_S, Day, Recent
from rota.store.database import open_database
from rota.store.jobs import JobSearch
from rota.store.records import Records
from web.past import make_past

pytestmark = pytest.mark.slow
CLUSTER = Cluster.uniform(("gpu", 32, 8))
JOBS = 200


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Records]:
    """A day of jobs that ran once each, on 32 devices that were too few for them."""
    home = tmp_path_factory.mktemp("past")
    make_past(home, CLUSTER, policy="fifo", tenancy="none", jobs=JOBS)
    kept = Records(open_database(Path(home, "rota.db")))
    yield kept
    kept.close()


def day_of(records: Records) -> Day:
    control = boot(records, Scheduling(cluster=CLUSTER, policy="fifo"), LocalDriver.contract)
    return asyncio.run(Recent(records, control).day())


def spent(values: list[float], day: Day) -> float:
    """What a series adds up to over time."""
    return sum(value * (end_s - at_s) for value, at_s, end_s in zip(values, day.edges_s, day.edges_s[1:], strict=False))


def told_by_records(records: Records, since_s: float) -> tuple[float, float, dict[str, float]]:
    """Device-seconds, job-seconds of waiting, and device-seconds by tenant, after a moment."""
    rows, _ = records.find(JobSearch(limit=10_000))
    used, waited = 0.0, 0.0
    by_tenant: dict[str, float] = {}
    for row in rows:
        spec = json.loads(row.spec)
        gpus = spec["workers"] * spec["resources"]["gpus"]
        start_s = row.started_s if row.started_s is not None else row.ended_s
        held_s = max(row.ended_s - max(start_s, since_s), 0.0)
        used += gpus * held_s
        by_tenant[row.tenant] = by_tenant.get(row.tenant, 0.0) + gpus * held_s
        waited += max(start_s - max(row.submitted_s, since_s), 0.0)
    return used, waited, by_tenant


def test_the_day_adds_up_to_what_the_records_say(records: Records) -> None:
    day = day_of(records)
    used, waited, by_tenant = told_by_records(records, day.edges_s[0])

    assert used > 1e6
    assert waited > 1e5
    assert spent(day.in_use, day) == pytest.approx(used, rel=0.005)
    assert spent(day.waiting, day) == pytest.approx(waited, rel=0.005)
    assert {name: spent(values, day) for name, values in day.used.items()} == pytest.approx(by_tenant, rel=0.01)
    assert max(day.in_use) <= CLUSTER.devices + 0.01


def test_what_stood_before_the_day_began_counts_from_its_beginning(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a day of eight hours, jobs ran and waited before it: the journal's steps about that are not read."""
    monkeypatch.setattr(recent_module, "DAY_S", 8 * 3600.0)
    day = day_of(records)
    used, waited, _ = told_by_records(records, day.edges_s[0])

    assert day.edges_s[-1] - day.edges_s[0] == pytest.approx(8 * 3600.0)
    assert spent(day.in_use, day) == pytest.approx(used, rel=0.005)
    assert spent(day.waiting, day) == pytest.approx(waited, rel=0.005)


def test_a_job_s_life_is_told_in_order(records: Records) -> None:
    rows, _ = records.find(JobSearch(states=("succeeded",), limit=1))
    row = rows[0]

    life = life_of(records, row.id, row.submitted_s, row.ended_s)

    turns = [moment.state.value for moment in life if moment.state is not None]
    assert turns == ["waiting", "starting", "running", "succeeded"]
    assert life[0].at_s == pytest.approx(row.submitted_s)
    assert life[-1].at_s == pytest.approx(row.ended_s)
    assert life_of(records, "no-such-job", row.submitted_s, row.ended_s) == []


def test_the_first_step_since_a_moment_is_found_by_halving(records: Records) -> None:
    times_s = [(json.loads(body)["n"], json.loads(body)["t"]) for body in records.steps()]
    for number, at_s in times_s[:: max(len(times_s) // 20, 1)]:
        expected = next(n for n, t in times_s if t >= at_s)
        assert records.first_step_since(at_s) == expected <= number
    assert records.first_step_since(0.0) == times_s[0][0]
    assert records.first_step_since(time.time() + DAY_S) == times_s[-1][0] + 1


def test_jobs_are_found_in_any_order_and_stretch(records: Records) -> None:
    everything, total = records.find(JobSearch(limit=10_000))
    page, same = records.find(JobSearch(order="name", descending=False, offset=10, limit=5))

    assert (total, same) == (JOBS, JOBS)
    assert [row.name for row in page] == sorted(row.name for row in everything)[10:15]
    found, count = records.find(JobSearch(text="BERT", limit=10_000))
    assert count == len(found) == sum("bert" in row.name for row in everything)
    assert records.find(JobSearch(text="100%_")) == ([], 0)
    assert records.tenant_names() == sorted({row.tenant for row in everything})
