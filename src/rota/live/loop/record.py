"""What the live loop knows of a job beside the engine's own record: how to run it and how that went."""

from __future__ import annotations

import json
from typing import Any

from rota.core.codec.snapshot import encode_live
from rota.core.model.job import JobState
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.files.job import job_file
from rota.files.job_shape import JobFile

Json = dict[str, Any]
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class Record:
    """One job that has not ended, or has only just."""

    __slots__ = ("_file", "_spec", "attempt", "exit_code", "failure", "failures", "message", "owner")

    def __init__(self, spec: str, owner: str = "", file: JobFile | None = None) -> None:
        self._spec = spec
        self._file = file
        self.owner = owner
        self.attempt = 0
        self.failures = 0
        self.exit_code: int | None = None
        self.message = ""
        self.failure: str | None = None
        """The class of the last failure, for programs."""

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


def shown_state(live: LiveJob) -> str:
    """The state in the words that users see: who was preempted is suspended until it runs again."""
    if live.state is JobState.WAITING and live.preemptions and live.retry_s is None:
        return JobState.SUSPENDED.value
    return live.state.value


def changes_of(live: LiveJob, record: Record, state: State, node_names: list[str]) -> Json:
    """The columns of a job's row that change."""
    return {
        "key": live.job.id,
        "state": shown_state(live),
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
    """The whole row of a new job, which is given as JSON values too."""
    row = changes_of(live, record, state, node_names)
    job = live.job
    row["id"] = row.pop("key")
    return {
        **row,
        "seq": live.seq,
        "name": job.name,
        "tenant": job.tenant,
        "owner": record.owner,
        "submitted_s": live.submitted_s,
        "job": dump(encoded),
        "spec": record.spec,
        "version": 0,
    }


def dump(value: object) -> str:
    """JSON without spaces."""
    return _ENCODER.encode(value)
