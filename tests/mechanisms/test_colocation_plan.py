"""How the co-location scheduler carries out a rule: the rule is the test's, so that each step can be named."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from builders import World, job, on, start, stop
from rota.core.engine.engine import Engine
from rota.core.messages.decisions import Move
from rota.core.messages.events import JobArrived
from rota.core.model.job import DeviceType, Job, JobId
from rota.core.state.job_record import LiveJob
from rota.mechanisms.colocation.rule import DefaultColocationRule
from rota.mechanisms.colocation.scheduler import ColocationScheduler


class NoneJoins(DefaultColocationRule):
    """A rule that admits no job to a group; a job of high priority preempts jobs of model `victim`."""

    def __init__(self, *, migrates: bool = False) -> None:
        self.migrates = migrates

    def admit(
        self, live: LiveJob, hosts: Sequence[LiveJob], kind: DeviceType, now_s: float
    ) -> tuple[float, ...] | None:
        return None

    def placement_key(self, job: Job) -> Hashable:
        return job.priority

    def victims(self, live: LiveJob, holders: Sequence[LiveJob]) -> Sequence[LiveJob]:
        return [each for each in holders if each.job.model == "victim"] if live.job.priority else []


def under(world: World, rule: NoneJoins) -> World:
    """Put a world under this rule."""
    policy = ColocationScheduler(rule, world._allocator, name="given")
    world._engine = Engine(world.state, policy, world._allocator)
    return world


def test_a_job_of_the_largest_group_moves_to_the_devices_that_are_free() -> None:
    world = World(gpus=3)
    for name in ("x1", "x2"):
        world.running(name, at=on("n1", [0], milli=500))
    for name in ("y1", "y2", "y3"):
        world.running(name, at=on("n1", [1], milli=333))

    decisions = under(world, NoneJoins(migrates=True)).timer()

    assert decisions == [Move(JobId("y3"), on("n1", [2]))]


def test_what_had_no_room_in_one_plan_is_tried_again_in_the_next() -> None:
    world = under(World(gpus=1).running("first", at=on("n1", 1)), NoneJoins())
    assert world.submit("second") == []

    assert world.ended("first") == [start("second", on("n1", 1))]


def test_what_had_no_room_is_tried_again_once_a_preemption_has_made_some() -> None:
    """`urgent` needs one of the two devices that the victim leaves; the other is for the next job that asks."""
    world = under(World(gpus=2).running("old", gpus=2, model="victim", at=on("n1", 2)), NoneJoins())
    asked = (job("early", model="m1"), job("urgent", priority=1), job("next", model="m2"))

    assert world.step(*map(JobArrived, asked)) == [stop("old")]
    assert world.stopped("old") == [start("urgent", on("n1", [0])), start("next", on("n1", [1]))]
