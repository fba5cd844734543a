"""What the loop keeps about a job beside the engine's record: its job file, attempts and results."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from rota.core.codec.snapshot import encode_live
from rota.core.engine.preemption_guard import can_resume
from rota.core.model.job import Job, JobState
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.files.job import job_file
from rota.files.job_shape import JobFile
from rota.store import clock

Json = dict[str, Any]
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class Record:
    """The record of a job that has not ended, or has just ended."""

    __slots__ = (
        "_file",
        "_spec",
        "account",
        "array_id",
        "attempt",
        "exit_code",
        "failure",
        "failures",
        "message",
        "not_suspended",
        "owner",
        "paused",
    )

    def __init__(
        self,
        spec: str,
        owner: str = "",
        file: JobFile | None = None,
        *,
        account: str | None = None,
        array_id: str | None = None,
    ) -> None:
        self._spec = spec
        self._file = file
        self.owner = owner
        self.account = account
        """The Unix account under which its tasks run, as settled at its submission; None: see the settings."""
        self.array_id = array_id
        """The id of the first job of its array; None if it is in none. Written once, with the new job."""
        self.attempt = 0
        self.failures = 0
        self.exit_code: int | None = None
        self.message = ""
        self.failure: str | None = None
        """The class of the last failure, for programs."""
        self.paused = False
        """Whether another scheduler suspended it while it runs here: its tasks stand still on devices that it keeps."""
        self.not_suspended = ""
        """Why its GPU memory can't go to the host, so that a preemption would lose its work; empty if it can."""

    @property
    def spec(self) -> str:
        """The job file as JSON."""
        return self._spec

    @spec.setter
    def spec(self, spec: str) -> None:
        self._spec = spec
        self._file = None

    @property
    def file(self) -> JobFile:
        """The job file as it was validated; after a restart it is read from the stored text, once."""
        if self._file is None:
            self._file = job_file(json.loads(self._spec))
        return self._file


PREEMPTED = "preempted"
"""The state that users see of a job that was stopped for others and lost its work."""
SHOWN_STATES = (*(state.value for state in JobState), PREEMPTED)
"""All states that users see."""


def shown_state(live: LiveJob, record: Record) -> str:
    """Return the state that users see: a job that was stopped for others is suspended if it saved its work."""
    if live.state is JobState.RUNNING and record.paused:
        return JobState.SUSPENDED.value
    if live.state is JobState.WAITING and live.preemptions and live.retry_s is None:
        return JobState.SUSPENDED.value if can_resume(live.job) else PREEMPTED
    return live.state.value


def state_text(state: str) -> str:
    """Return a state in words that say what it means for the job's work."""
    return "preempted, starts over" if state == PREEMPTED else state


def changes_of(live: LiveJob, record: Record, state: State, node_names: list[str]) -> Json:
    """Return the columns of a job's row that change."""
    return {
        "key": live.job.id,
        "state": shown_state(live, record),
        "started_s": live.first_start_s,
        "ended_s": live.ended_s,
        "live": dump(encode_live(live, state, node_names)),
        "attempt": record.attempt,
        "failures": record.failures,
        "exit_code": record.exit_code,
        "message": record.message,
        "failure": record.failure,
    }


def row_of(live: LiveJob, record: Record, state: State, node_names: list[str], encoded: Json) -> Json:
    """Return the row of a new job; `encoded` is the job as JSON values."""
    row = changes_of(live, record, state, node_names)
    job = live.job
    row["id"] = row.pop("key")
    return {
        **row,
        "seq": live.seq,
        "name": job.name,
        "tenant": job.tenant,
        "owner": record.owner,
        "account": record.account,
        "submitted_s": live.submitted_s,
        "job": dump(encoded),
        "spec": record.spec,
        "version": 0,
        "array_id": record.array_id,
    }


def by_our_clock(job: Job) -> Job:
    """The job with its deadline, which is a date, as a moment of the manager's clock."""
    return job if job.deadline_s is None else replace(job, deadline_s=clock.from_wall_s(job.deadline_s))


def dump(value: object) -> str:
    """Return a value as JSON without spaces."""
    return _ENCODER.encode(value)
