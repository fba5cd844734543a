"""Records of jobs that the loop beside Slurm did not see run, or that became others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drivers.slurm.slurm_values import job_value, node_value, running_value
from rota.core.messages.events import JobCancelled
from rota.core.model.job import JobId
from rota.core.state.state import State
from rota.drivers.slurm.printed.records import read_jobs, read_nodes
from rota.drivers.slurm.translate import cluster_of, job_of
from rota.drivers.slurm.view import SlurmView
from rota.live.loop.record import Record, dump
from rota.live.slurm.slurm_loop import spec_of
from rota.live.slurm.slurm_records import close_ended, record_found, unseen_runs
from rota.store import clock
from rota.store.database import open_database
from rota.store.records import Records

Json = dict[str, Any]
CLUSTER = cluster_of(read_nodes(json.dumps({"nodes": [node_value()]})).found)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    made = Records(open_database(tmp_path / "rota.db"))
    yield made
    made.close()


def known(records: Records, *values: Json) -> None:
    """Have waiting jobs on record, as they are at a start of Rota."""
    state, kept = State(CLUSTER), {}
    for job in read_jobs(json.dumps({"jobs": values})).found:
        shaped = job_of(job)
        state.admit(shaped, 1.0)
        kept[shaped.id] = Record(dump(spec_of(shaped)), shaped.user)
    record_found(records, state, kept, {JobId(row.id): row for row in records.live_jobs()})


def seen(*values: Json) -> SlurmView:
    """What Slurm says now."""
    view = SlurmView()
    view.take(read_jobs(json.dumps({"jobs": values})), 0.0)
    return view


def test_job_that_becomes_another_is_recorded_as_that_one(records: Records) -> None:
    known(records, job_value(1), job_value(2))
    (before, other) = records.live_jobs()

    known(records, job_value(1, account="nlp", name="big", tres_per_node="gres:gpu:4"), job_value(2))
    (after, same) = records.live_jobs()
    assert (after.tenant, after.name, json.loads(after.job)["roles"][0]["device_milli"]) == ("nlp", "big", 4000)
    assert (before.tenant, before.seq, other.job) == ("vision", after.seq, same.job)


def test_end_of_a_run_that_was_not_seen_is_recorded_with_its_times(records: Records) -> None:
    known(records, *(job_value(number) for number in (1, 2, 3, 4)))
    times: Json = {"start_time": 1794980530, "end_time": 1794980590, "gpus": ""}
    view = seen(
        running_value(1, job_state="COMPLETED", **times),
        running_value(2, job_state="FAILED", exit_code=768, **times),
        running_value(3, job_state="CANCELLED", **times),
        job_value(4, job_state="CANCELLED"),
    )

    unseen = unseen_runs([JobCancelled(JobId(name)) for name in "1234"], view)
    outcomes = close_ended(records, view, records.whole_jobs(unseen))
    rows = {row.id: row for row in records.whole_jobs([*"1234"])}
    assert unseen == ["1", "2"]
    assert {name: row.state for name, row in rows.items()} == {
        "1": "succeeded",
        "2": "failed",
        "3": "waiting",
        "4": "waiting",
    }
    assert [(each["key"], each["state"], each["started_s"]) for each in outcomes] == [
        (name, rows[name].state, rows[name].started_s) for name in "12"
    ]
    assert rows["2"].message == "Slurm: FAILED, exit code 3"
    assert clock.shown_s(rows["1"].started_s) == pytest.approx(1794980530)
    assert rows["1"].ended_s - rows["1"].started_s == pytest.approx(60)
    assert json.loads(rows["1"].live)["ran_s"] == 60


def test_forgotten_job_is_cancelled(records: Records) -> None:
    known(records, job_value(1))

    close_ended(records, seen(), records.live_jobs())
    (row,) = records.whole_jobs(["1"])
    assert (row.state, row.message) == ("cancelled", "Slurm had forgotten it when Rota returned")
