"""Messages about jobs that ask for them: written in the transaction of the step that they tell of."""

from __future__ import annotations

from typing import Any

from rota.core.model.job import JobId, JobState
from rota.core.state.job_record import LiveJob
from rota.core.state.state import State
from rota.live.loop.record import Record, dump
from rota.store import clock

Json = dict[str, Any]


def message(key: str, channel: str, tenant: str, owner: str, title: str, text: str, **more: Any) -> Json:
    """Return the row of a new message. Its key is never used twice: a receiver can tell a repetition by it."""
    now_s = clock.now_s()
    body = {"title": title, "text": text, "tenant": tenant, "user": owner, "at_s": clock.shown_s(now_s), **more}
    return {
        "key": f"{key}/{channel}"[:256],
        "channel": channel,
        "tenant": tenant,
        "owner": owner,
        "body": dump(body),
        "created_s": now_s,
        "due_s": now_s,
        "tries": 0,
        "tried_s": None,
        "state": "waiting",
        "why": "",
    }


class JobNotices:
    """What was told of each job that has not ended: whether it has started, and how often it was preempted."""

    def __init__(self, state: State) -> None:
        self._known: dict[JobId, tuple[bool, int]] = {}
        for job_id, live in state.jobs.items():
            if not live.state.is_final:
                self._known[job_id] = (live.first_start_s is not None, live.preemptions)

    def of(self, live: LiveJob, record: Record) -> list[Json]:
        """Return the messages about what a step changed of a job."""
        had_started, preemptions = self._known.pop(live.job.id, (False, 0))
        if not live.state.is_final:
            self._known[live.job.id] = (live.first_start_s is not None, live.preemptions)
        if '"notify"' not in record.spec:  # most jobs: their files need not be read for this
            return []
        asked = record.file.notify
        found: list[tuple[str, str]] = []
        if "start" in asked and not had_started and live.first_start_s is not None:
            found.append(("start", "started"))
        if "preempted" in asked and live.preemptions > preemptions and not live.state.is_final:
            found.append((f"preempted/{live.preemptions}", "was preempted and waits again"))
        if live.state.is_final and ("end" in asked or ("fail" in asked and live.state is JobState.FAILED)):
            found.append(("end", {JobState.CANCELLED: "was cancelled"}.get(live.state, live.state.value)))
        return [row for what, words in found for row in self._rows(live, record, what, words)]

    def _rows(self, live: LiveJob, record: Record, what: str, words: str) -> list[Json]:
        job = live.job
        title = f"Job {job.id} ({job.name}) {words}"
        text = f"Job {job.id} ({job.name}) of {record.owner or job.tenant} in tenant {job.tenant} {words}."
        if record.message:
            text += f"\n{record.message}"
        return [
            message(
                f"job/{job.id}/{what}",
                channel,
                str(job.tenant),
                record.owner,
                title,
                text,
                event=what.split("/")[0],
                job=str(job.id),
                name=job.name,
                state=live.state.value,
            )
            for channel in record.file.notify_to
        ]
