"""How the elastic scheduler carries out sizes: the rule is the test's, so that each step can be named."""

from __future__ import annotations

from collections.abc import Mapping

from builders import World, job, on
from rota.core.engine.engine import Engine
from rota.core.messages.decisions import Decision, Resize
from rota.core.model.job import Elastic, JobId, Locality
from rota.core.state.job_record import LiveJob
from rota.mechanisms.elastic.rule import DefaultSizeRule, SizePlan, SizeQuestion, Target
from rota.mechanisms.elastic.scheduler import ElasticScheduler


class GivenSizes(DefaultSizeRule):
    """A rule that answers with the sizes that the test wrote, by the name of the job."""

    def __init__(self) -> None:
        self.sizes: Mapping[str, int] = {}
        self.asked: list[SizeQuestion] = []
        self.observed: list[JobId] = []

    def plan(self, question: SizeQuestion) -> SizePlan:
        self.asked.append(question)
        by_name = {str(found.live.job.id): found.seq for found in question.candidates}
        return SizePlan({by_name[name]: Target(size) for name, size in self.sizes.items() if name in by_name})

    def observe(self, live: LiveJob, nodes: int, now_s: float) -> None:
        self.observed.append(live.job.id)


def planned(world: World, sizes: Mapping[str, int]) -> tuple[GivenSizes, list[Decision]]:
    """Put the world under these sizes; return the rule and what is decided at once."""
    rule = GivenSizes()
    rule.sizes = sizes
    policy = ElasticScheduler(rule, world._allocator, name="given")
    world._engine = Engine(world.state, policy, world._allocator)
    return rule, world.timer()


def flexible(world: World, name: str, tasks: int, devices: list[int], *, node: str = "n1", most: int = 4) -> None:
    """A job of one to `most` tasks that runs on these devices."""
    asked = job(name, workers=tasks, elastic=Elastic(min_tasks=1, max_tasks=most))
    world.running(name, job=asked, at=on(node, devices, tasks=tasks))


def test_a_job_is_not_resized_before_the_devices_it_grows_onto_are_vacated() -> None:
    world = World(gpus=4)
    flexible(world, "a", 3, [0, 1, 2])
    flexible(world, "b", 1, [3])

    _, decisions = planned(world, {"a": 2, "b": 2})

    assert decisions == [Resize(JobId("a"), on("n1", 2, tasks=2))]
    assert world.resized("a") == [Resize(JobId("b"), on("n1", [2, 3], tasks=2))]


def test_a_job_that_grows_onto_free_devices_waits_for_a_job_that_shrinks_as_well() -> None:
    """One resize to its final size, not a first one onto what happens to be free."""
    world = World(gpus=4)
    flexible(world, "a", 2, [0, 1])
    flexible(world, "b", 1, [3])

    _, decisions = planned(world, {"a": 1, "b": 3})

    assert decisions == [Resize(JobId("a"), on("n1", 1))]
    assert world.resized("a") == [Resize(JobId("b"), on("n1", [1, 2, 3], tasks=3))]


def test_a_job_without_a_target_keeps_devices_that_no_other_job_gets() -> None:
    world = World(gpus=4)
    flexible(world, "a", 3, [1, 2, 3])

    _, decisions = planned(world, {})

    assert decisions == []
    assert world.live("a").placement == on("n1", [1, 2, 3], tasks=3)


def test_a_speed_of_zero_is_not_observed() -> None:
    """A job that has started and does not progress yet says nothing about its size."""
    world = World(gpus=4)
    rule, _ = planned(world, {"a": 1, "b": 1})
    world.submit("a")
    world.submit("b")

    world.started("a", rate=0.0)
    world.started("b", rate=2.0)

    assert rule.observed == ["b"]


def test_jobs_are_repacked_with_the_largest_tasks_first() -> None:
    """Two small jobs on n1 and three devices of n2: a second job of three fits only with one small job on each node."""
    world = World(gpus=4, nodes=2)
    world.running("s1", at=on("n1", [0])).running("s2", at=on("n1", [1]))
    world.running("large", gpus=3, at=on("n2", 3))
    planned(world, {"s1": 1, "s2": 1, "large": 1, "next": 1})

    world.settle(world.submit("next", gpus=3))

    assert world.states() == dict.fromkeys(("s1", "s2", "large", "next"), "running")


def test_jobs_with_tasks_of_one_size_are_repacked_with_most_tasks_first() -> None:
    """As above, but the tasks have one device each, and the three of a job must be on one node."""
    world = World(gpus=4, nodes=2)
    three, together = Elastic(min_tasks=3, max_tasks=3), Locality(hard=True)
    world.running("s1", at=on("n1", [0])).running("s2", at=on("n1", [1]))
    world.running("large", workers=3, elastic=three, locality=together, at=on("n2", 3, tasks=3))
    planned(world, {"s1": 1, "s2": 1, "large": 3, "next": 3})

    world.settle(world.submit("next", workers=3, elastic=three, locality=together))

    assert world.states() == dict.fromkeys(("s1", "s2", "large", "next"), "running")


def test_devices_of_a_node_that_a_job_holds_exclusively_are_part_of_the_question() -> None:
    world = World(gpus=4, nodes=2)
    world.running("alone", gpus=2, exclusive=True, at=on("n1", 2))

    rule, decisions = planned(world, {"alone": 1})

    assert [asked.free_milli for asked in rule.asked] == [8000]
    assert decisions == []
