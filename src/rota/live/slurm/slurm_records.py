"""What the records of a manager on Slurm say of jobs that its loop did not see begin, change or end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rota.core.codec.values import decode_job, encode_job
from rota.core.messages.events import Event, JobCancelled
from rota.core.model.job import JobId
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.core.state.phases import Phase
from rota.core.state.state import State
from rota.drivers.slurm.observer import end_of, message_of
from rota.drivers.slurm.printed.records import CANCELLED
from rota.drivers.slurm.view import SlurmView
from rota.live.loop.record import Record, changes_of, dump, row_of
from rota.store import clock
from rota.store.records import Records, WriteBatch

Json = dict[str, Any]
_PHASES = {"succeeded": Phase.SUCCEEDED, "failed": Phase.FAILED, "cancelled": Phase.CANCELLED}


def record_found(records: Records, state: State, kept: Mapping[JobId, Record], rows: Mapping[JobId, Any]) -> None:
    """Record jobs that are new, and those that ask for something else than when they were recorded."""
    batch = WriteBatch()
    node_names = [str(account.node.id) for account in state.inventory.nodes]
    for name, record in kept.items():
        live = state.jobs[name]
        encoded = encode_job(live.job)
        if name not in rows:
            batch.new_jobs.append(row_of(live, record, state, node_names, encoded))
        elif rows[name].job != (job := dump(encoded)):
            new = {"new_job": job, "new_spec": record.spec, "new_name": live.job.name, "new_tenant": live.job.tenant}
            batch.revised_jobs.append({"key": name, **new})
    if batch.new_jobs or batch.revised_jobs:
        records.write(batch)()


def unseen_runs(events: Sequence[Event], view: SlurmView) -> list[JobId]:
    """Return the jobs that ran between two looks; they never ran in the engine, which takes them for cancelled."""
    found = []
    for event in events:
        if isinstance(event, JobCancelled):
            job = view.jobs.get(str(event.job_id))
            if job is not None and job.has_ended and job.start_s and job.state not in CANCELLED:
                found.append(event.job_id)
    return found


def close_ended(records: Records, view: SlurmView, rows: Sequence[Any]) -> list[Json]:
    """Record how and when Slurm says that jobs ended, and return it; as cancelled now if it has forgotten them."""
    batch, outcomes = WriteBatch(), []
    blank = State(Inventory())
    for row in rows:
        live = LiveJob(decode_job(json.loads(row.job)), row.seq, row.submitted_s, 1.0)
        found = view.jobs.get(row.id)
        job = found if found is not None and found.has_ended else None
        phase = Phase.CANCELLED if job is None else _PHASES[end_of(job).value]
        started_s, ended_s = row.started_s, clock.now_s()
        if job is not None and job.start_s and started_s is None:
            started_s = clock.from_wall_s(job.start_s)
        if job is not None and job.end_s:
            ended_s = clock.from_wall_s(job.end_s)
        live.restore_end(phase, started_s, ended_s)
        record = Record(row.spec, row.owner)
        record.attempt, record.failures = row.attempt, row.failures
        record.message = "Slurm had forgotten it when Rota returned" if job is None else message_of(job)
        changed = changes_of(live, record, blank, [])
        if job is not None and job.start_s and job.end_s:
            changed["live"] = dump({**json.loads(changed["live"]), "ran_s": max(job.end_s - job.start_s, 0.0)})
        batch.changed_jobs.append(changed)
        outcomes.append({"key": row.id, "state": phase.label, "started_s": started_s, "ended_s": ended_s})
    if rows:
        records.write(batch)()
    return outcomes
