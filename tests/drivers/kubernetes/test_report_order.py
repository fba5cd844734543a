"""The order of a driver's events: what is taken comes before the jobs that might take it."""

from __future__ import annotations

from builders import job
from rota.core.messages.events import (
    End,
    Event,
    JobArrived,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobReleased,
    JobUpdated,
    NodeOccupied,
    Stopped,
)
from rota.core.model.job import JobId, NodeId
from rota.drivers.kubernetes.gangs.context import Report


def test_facts_come_before_jobs_that_could_start() -> None:
    new, back, gone, over = (JobId(name) for name in ("new", "back", "gone", "over"))
    occupied = NodeOccupied(NodeId("n1"), 8, 0, 0)
    events: list[Event] = [
        JobArrived(job("new")),
        Stopped(back, 1.0),
        JobUpdated(back, job("back")),
        JobReleased(back),
        JobHeld(new),
        JobCancelled(gone),
        JobEnded(over, End.SUCCEEDED, 1.0),
        occupied,
    ]
    assert Report(events=events).facts_first() == [
        Stopped(back, 1.0),
        JobUpdated(back, job("back")),
        JobEnded(over, End.SUCCEEDED, 1.0),
        occupied,
        JobArrived(job("new")),
        JobReleased(back),
        JobHeld(new),
        JobCancelled(gone),
    ]
