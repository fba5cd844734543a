"""Changing a job that waits, and sending one that runs back to the queue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import World, job, on, start, stop
from rota.core.codec.values import decode_event, encode_event
from rota.core.errors import InvariantBroken
from rota.core.messages.events import Event, JobRequeued, JobUpdated
from rota.core.model.job import Checkpoint, JobId


def update(world: World, job_id: str, **fields: Any) -> list[object]:
    """Change a job's request."""
    return list(world.step(JobUpdated(JobId(job_id), replace(world.live(job_id).job, **fields))))


def test_new_priority_gives_a_waiting_job_another_place_in_the_order() -> None:
    world = World(gpus=1, policy="priority").running("runs", priority=9)
    world.submit("one")
    world.submit("two")

    assert update(world, "two", priority=1) == []
    assert world.ended("runs") == [start("two", on("n1", 1))]


def test_new_priority_preempts_at_once_where_the_policy_does() -> None:
    world = World(gpus=1).running("runs")
    world.submit("waits", policy="priority")

    assert update(world, "waits", priority=1) == [stop("runs")]


def test_job_that_is_updated_loses_its_reservation_and_may_get_it_again() -> None:
    world = World(gpus=1).running("runs")
    world.submit("waits", policy="priority", priority=1)
    assert world.live("waits").reserved

    assert update(world, "waits", priority=2) == []
    assert world.live("waits").reserved
    assert world.stopped("runs") == [start("waits", on("n1", 1))]


def test_held_job_takes_its_new_request_and_stays_held() -> None:
    world = World(gpus=1, policy="priority")
    world.submit("held", held=True)

    assert update(world, "held", name="other", time_limit_s=5.0) == []
    assert world.states() == {"held": "held"}
    assert world.live("held").job.name == "other"


def test_update_of_a_running_job_changes_nothing() -> None:
    world = World(gpus=1, policy="priority").running("runs")

    assert update(world, "runs", priority=5) == []
    assert world.live("runs").job.priority == 0


@pytest.mark.parametrize("fields", [{"user": "eve"}, {"tenant": "red"}, {"exclusive": True}])
def test_job_never_becomes_another(fields: dict[str, object]) -> None:
    world = World(gpus=1, policy="priority").running("runs")
    world.submit("waits")

    with pytest.raises(InvariantBroken, match="its request stays"):
        update(world, "waits", **fields)


def test_requeued_job_yields_to_jobs_of_its_priority_that_wait() -> None:
    world = World(gpus=1, policy="priority").running("runs")
    world.submit("waits")

    assert world.step(JobRequeued(JobId("runs"))) == [stop("runs")]
    assert world.live("waits").reserved
    assert world.stopped("runs", work=0.0) == [start("waits", on("n1", 1))]
    assert world.live("runs").preemptions == 1
    assert world.states() == {"runs": "waiting", "waits": "starting"}


def test_requeue_of_a_waiting_job_changes_nothing() -> None:
    world = World(gpus=1, policy="priority").running("runs")
    world.submit("waits")

    assert world.step(JobRequeued(JobId("waits"))) == []


@pytest.mark.parametrize(
    "event",
    [
        JobUpdated(JobId("j"), job("j", priority=3, preemptible=True, checkpoint=Checkpoint())),
        JobRequeued(JobId("j")),
    ],
)
def test_journal_keeps_both(event: Event) -> None:
    assert decode_event(encode_event(event)) == event
