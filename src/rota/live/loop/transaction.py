"""The rows that steps of the engine change, as one transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rota.core.messages.decisions import Decision
from rota.core.messages.events import CheckpointChanged, Event, Interrupted, JobArrived, JobUpdated
from rota.core.messages.reasons import Reason
from rota.core.model.job import Job, JobId
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.live.accounts.ledger import UsageLedger
from rota.live.loop.dependents import Dependents
from rota.live.loop.record import Record, changes_of, dump, row_of
from rota.store.journal import encode_step
from rota.store.records import WriteBatch


class Transaction:
    """A batch under construction: its steps, the jobs they touched, and the decisions."""

    def __init__(
        self,
        state: State,
        kept: dict[JobId, Record],
        dependents: Dependents,
        names: list[str],
        ledger: UsageLedger | None = None,
    ) -> None:
        self.batch = WriteBatch()
        self.touched: dict[JobId, LiveJob] = {}
        self.decisions: list[Decision] = []
        self.specs: dict[JobId, str] = {}
        """The job files of jobs that are updated."""
        self._state = state
        self._kept = kept
        self._dependents = dependents
        self._names = names
        self._ledger = ledger
        """Accounts for the device time of jobs; None keeps none."""

    def add(
        self,
        number: int,
        now_s: float,
        events: Sequence[Event],
        decisions: Sequence[Decision],
        waits: Sequence[tuple[JobId, Reason]],
    ) -> None:
        """Add a step."""
        line = encode_step(number, now_s, events, decisions, waits, self._names)
        self.batch.steps.append({"n": number, "body": dump(line)})
        self.decisions.extend(decisions)
        new = {}
        for event, encoded in zip(events, line["in"], strict=True):
            if isinstance(event, JobArrived):
                new[event.job.id] = encoded["job"]
                self._dependents.remember(self._state.jobs[event.job.id])
            elif isinstance(event, CheckpointChanged | Interrupted | JobUpdated) and event.job is not None:
                self._revise(event.job, encoded["job"], updated=isinstance(event, JobUpdated))
        for job_id in self._dependents.touched(events, decisions):
            live, record = self._state.jobs[job_id], self._kept[job_id]
            self.touched[job_id] = live
            record.message = record.message or self._dependents.broken(live)
            if self._ledger is not None:
                self.batch.usage += self._ledger.account(live, record.owner, now_s)
                self.batch.messages += self._ledger.notices(live, record)
            if job_id in new:
                self.batch.new_jobs.append(row_of(live, record, self._state, self._names, new[job_id]))
            else:
                self.batch.changed_jobs.append(changes_of(live, record, self._state, self._names))

    def drop_rows(self, job_ids: Collection[JobId]) -> None:
        """Leave out the rows of jobs."""
        if job_ids:
            self.batch.new_jobs = [row for row in self.batch.new_jobs if row["id"] not in job_ids]
            self.batch.changed_jobs = [row for row in self.batch.changed_jobs if row["key"] not in job_ids]
            about = tuple(f"job/{job_id}/" for job_id in job_ids)
            self.batch.messages = [row for row in self.batch.messages if not row["key"].startswith(about)]

    def _revise(self, job: Job, encoded: object, *, updated: bool) -> None:
        """Write the new request of a job, unless the engine did not take it."""
        if updated:
            if self._state.jobs[job.id].job is not job:
                return
            self._kept[job.id].spec = self.specs.get(job.id, self._kept[job.id].spec)
        spec = self._kept[job.id].spec
        revised = {"key": job.id, "new_job": dump(encoded), "new_spec": spec, "new_name": job.name}
        self.batch.revised_jobs.append({**revised, "new_tenant": job.tenant})
