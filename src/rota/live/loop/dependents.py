"""Dependencies between jobs: which jobs an end affects, and which jobs can be forgotten."""

from __future__ import annotations

from collections.abc import Iterable

from rota.core.messages.decisions import Decision
from rota.core.messages.events import Event, JobArrived
from rota.core.model.job import JobId, JobState
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State

_IN_VAIN = {JobState.FAILED: "failed", JobState.CANCELLED: "was cancelled"}


class Dependents:
    """The jobs that name another one in `depends_on`."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._waiting: dict[JobId, list[JobId]] = {}
        for live in state.jobs.values():
            self.remember(live)

    def remember(self, live: LiveJob) -> None:
        """Take in a new job."""
        for needed in live.job.depends_on:
            self._waiting.setdefault(needed, []).append(live.job.id)

    def touched(self, events: Iterable[Event], decisions: Iterable[Decision]) -> list[JobId]:
        """Return the jobs that a step may have changed: those named, and those that depend on one that ended."""
        found: dict[JobId, None] = {}
        for event in events:
            if isinstance(event, JobArrived):
                found[event.job.id] = None
            elif (job_id := getattr(event, "job_id", None)) is not None:
                found[job_id] = None
        for decision in decisions:
            found[decision.job_id] = None
        due = list(found)
        while due:
            job_id = due.pop()
            if self._state.jobs[job_id].state.is_final:
                for dependent in self._waiting.get(job_id, ()):
                    if dependent not in found and dependent in self._state.jobs:
                        found[dependent] = None
                        due.append(dependent)
        return list(found)

    def broken(self, live: LiveJob) -> str:
        """Return a message that names the unmet dependency of a cancelled job; empty if there is none."""
        if live.state is not JobState.CANCELLED:
            return ""
        for needed in live.job.depends_on:
            other = self._state.jobs.get(needed)
            if other is not None and other.state in _IN_VAIN:
                return f"job {needed}, which it depends on, {_IN_VAIN[other.state]}"
        return ""

    def forget(self, ended: Iterable[JobId]) -> list[JobId]:
        """Remove ended jobs from the state unless an unfinished job depends on them; return those removed."""
        due, gone = list(ended), []
        while due:
            job_id = due.pop()
            live = self._state.jobs.get(job_id)
            if live is None or not live.state.is_final:
                continue
            if any(self._is_unfinished(name) for name in self._waiting.get(job_id, ())):
                continue
            self._state.forget(job_id)
            self._waiting.pop(job_id, None)
            gone.append(job_id)
            due.extend(live.job.depends_on)
        return gone

    def _is_unfinished(self, job_id: JobId) -> bool:
        live = self._state.jobs.get(job_id)
        return live is not None and not live.state.is_final
