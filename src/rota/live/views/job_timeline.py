"""The timeline of a job from the journal: its events, and its states between them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rota.core.codec.values import decode_event, decode_reason
from rota.core.messages import events as ev
from rota.core.messages.decisions import Cause
from rota.core.messages.events import Event
from rota.core.model.job import JobState
from rota.store.records import Records

MARGIN_S = 60.0
_STOPPED = {
    Cause.PREEMPTED: (JobState.SUSPENDED, "preempted"),
    Cause.MOVED: (JobState.SUSPENDED, "stopped to move"),
    Cause.CANCELLED: (JobState.CANCELLED, "cancelled"),
    Cause.TIME_LIMIT: (JobState.FAILED, "reached its time limit"),
}

_KEPT = "can be suspended: a preemption loses no work from now on"
_NOT_KEPT = "can't be suspended any more: a preemption would lose its work"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """An event of a job, and the state that it led to; None if the state did not change."""

    at_s: float
    what: str
    state: JobState | None = None


def life_of(records: Records, job_id: str, submitted_s: float, ended_s: float | None) -> list[TimelineEvent]:
    """Return the events of a job, oldest first, as far as the journal reaches back."""
    first = records.first_step_since(submitted_s)
    before = records.first_step_since((ended_s if ended_s is not None else 1e18) + MARGIN_S)
    stopping = Cause.CANCELLED
    moments: list[TimelineEvent] = []
    for body in records.steps_about(job_id, first, before):
        value = json.loads(body)
        at_s = float(value["t"])
        for each in value["in"]:
            if _is_about(each, job_id):
                moments.extend(_happened(decode_event(each), at_s, stopping))
        for each in value.get("out", ()):
            if each["job_id"] != job_id:
                continue
            if each["order"] == "stop":
                stopping = Cause(each["cause"])
            moments.extend(_ordered(each, at_s))
        for waits, reason in value.get("waits", ()):
            if waits == job_id:
                moments.append(TimelineEvent(at_s=at_s, what=decode_reason(reason).sentence()))
    return moments


def _is_about(event: dict[str, Any], job_id: str) -> bool:
    return event.get("job_id") == job_id or event.get("job", {}).get("id") == job_id


def _happened(event: Event, at_s: float, stopping: Cause) -> Iterator[TimelineEvent]:
    match event:
        case ev.JobArrived(held=held):
            yield TimelineEvent(at_s=at_s, what="submitted", state=JobState.HELD if held else JobState.WAITING)
        case ev.JobHeld():
            yield TimelineEvent(at_s=at_s, what="held", state=JobState.HELD)
        case ev.JobReleased():
            yield TimelineEvent(at_s=at_s, what="released", state=JobState.WAITING)
        case ev.JobUpdated():
            yield TimelineEvent(at_s=at_s, what="updated")
        case ev.CheckpointChanged(job=job):
            keeps = job.checkpoint is not None and job.checkpoint.interval_s < math.inf
            yield TimelineEvent(at_s=at_s, what=_KEPT if keeps else _NOT_KEPT)
        case ev.JobRequeued():
            yield TimelineEvent(at_s=at_s, what="requeue requested")
        case ev.JobCancelled():
            yield TimelineEvent(at_s=at_s, what="cancellation requested")
        case ev.Started():
            yield TimelineEvent(at_s=at_s, what="running", state=JobState.RUNNING)
        case ev.StartFailed(why=why):
            yield TimelineEvent(at_s=at_s, what=f"failed to start: {why}", state=JobState.WAITING)
        case ev.Stopped(work=work):
            state, what = _STOPPED[stopping]
            if state is JobState.SUSPENDED and not work:
                state, what = JobState.WAITING, f"{what}, starts over"
            yield TimelineEvent(at_s=at_s, what=what, state=state)
        case ev.Interrupted(job=job) if job is not None:
            yield TimelineEvent(at_s=at_s, what="ran out of memory; will be retried with more", state=JobState.WAITING)
        case ev.Interrupted():
            yield TimelineEvent(at_s=at_s, what="interrupted; will be retried", state=JobState.WAITING)
        case ev.JobEnded(end=end):
            yield TimelineEvent(at_s=at_s, what=end.value, state=JobState(end.value))
        case ev.Resized():
            yield TimelineEvent(at_s=at_s, what="resized: number of tasks or fraction of its devices changed")
        case ev.Moved():
            yield TimelineEvent(at_s=at_s, what="moved", state=JobState.RUNNING)
        case ev.WorkDone():
            yield TimelineEvent(at_s=at_s, what="work done; devices released while it saves")
        case ev.Suspended():
            yield TimelineEvent(at_s=at_s, what="suspended in memory", state=JobState.SUSPENDED)
        case ev.Resumed():
            yield TimelineEvent(at_s=at_s, what="resumed", state=JobState.RUNNING)
        case _:
            return


def _ordered(decision: dict[str, Any], at_s: float) -> Iterator[TimelineEvent]:
    match decision["order"]:
        case "start":
            nodes = list(dict.fromkeys(slot[0] for slot in decision["on"]))
            where = ", ".join(nodes[:6]) + (f" and {len(nodes) - 6} more" if len(nodes) > 6 else "")
            yield TimelineEvent(at_s=at_s, what=f"starting on {where}", state=JobState.STARTING)
        case "stop":
            yield TimelineEvent(at_s=at_s, what="stop ordered")
        case _:
            return
