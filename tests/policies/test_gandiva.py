"""Gandiva, against small courses of events that were worked out by hand."""

from __future__ import annotations

import pytest

from builders import World, job, on
from policies.courses import ends, run, speeds
from rota.core.decisions import Move
from rota.core.model import Elastic, JobId
from rota.perf.speed import Costs


def test_gandiva_slices_a_device_by_the_quantum() -> None:
    rows = run("gandiva:pack=false", job("a", work=120.0), job("b", work=120.0))

    # b comes first, since it has its first slice as soon as a runs; then a and b by turns of 60 s.
    assert ends(rows) == {"a": 240.0, "b": 180.0}
    assert (rows["a"].suspensions, rows["b"].suspensions) == (2, 1)
    assert rows["a"].run_s == 120.0
    assert rows["a"].preemptions == 0


def test_gandiva_pays_for_every_slice() -> None:
    rows = run("gandiva:pack=false", job("a", work=120.0), job("b", work=120.0), costs=Costs(resume_s=1.0))

    # Of each slice of 60 s after the first a second is lost: b does 60 and 59, a twice 59; then b the last one in 2 s,
    # and a the last two in 3 s.
    assert ends(rows) == {"b": 240.0 + 2.0, "a": 242.0 + 3.0}


@pytest.mark.parametrize(
    ("together", "expected"),
    [
        # From 60 on both at 6 steps a second: b has 600 left and takes 100 s; a did 600 by then and has 60 s left.
        (6.0, {"b": 160.0, "a": 220.0}),
        # At 120 the trial is undone: b has 360 left, alone; a had done 240 and goes on when b has ended at 156.
        (4.0, {"b": 156.0, "a": 156.0 + 96.0}),
    ],
    ids=["pays", "does-not"],
)
def test_gandiva_keeps_a_pair_only_if_it_does_more_than_in_turn(together: float, expected: dict[str, float]) -> None:
    speed = speeds(("m", "m", together, together))

    assert (
        ends(run("gandiva", job("a", work=1200.0, model="m"), job("b", work=1200.0, model="m"), speed=speed))
        == expected
    )


def test_gandiva_moves_a_job_to_devices_that_become_free() -> None:
    large = job("large", gpus=2, work=90.0)
    rows = run("gandiva:pack=false", large, job("a", work=120.0), job("b", work=120.0), gpus=3, costs=Costs(move_s=5.0))

    # a and b take turns until 90: b ran for 60, a for 30. Then who rests, b, moves: 5 s, and 60 that are left.
    assert ends(rows) == {"large": 90.0, "a": 180.0, "b": 155.0}
    assert (rows["a"].moves, rows["b"].moves) == (0, 1)


def test_gandiva_puts_jobs_of_one_size_on_one_node() -> None:
    world = World(gpus=4, nodes=2, policy="gandiva")
    world.settle(world.submit("one", gpus=1))
    world.settle(world.submit("two", gpus=2))

    assert world.live("two").placement == on("n2", 2)
    world.settle(world.submit("three", gpus=1))
    assert world.live("three").placement == on("n1", [1])


def test_gandiva_joins_the_parts_of_a_split_job_when_a_node_has_room() -> None:
    world = World(gpus=2, nodes=2, policy="gandiva")
    world.running("x", at=on("n1", [0])).running("y", at=on("n2", [0]))
    world.running("split", workers=2, at=on("n1", [1]) + on("n2", [1]))

    assert world.ended("x") == [Move(JobId("split"), on("n1", 2, tasks=2))]


def test_gandiva_grows_a_job_on_its_node_and_shrinks_it_for_others() -> None:
    world = World(gpus=4, policy="gandiva:grow_after_s=10")
    grows = job("e", workers=1, elastic=Elastic(min_tasks=1, max_tasks=3))
    world.settle(world.submit(job=grows))
    world.pass_s(5.0)
    world.settle(world.timer())
    assert world.live("e").gpus == 1.0
    world.pass_s(5.0)
    world.settle(world.timer())
    assert world.live("e").gpus == 3.0

    world.settle(world.submit("big", gpus=2))

    assert world.live("e").gpus == 1.0
    assert world.states()["big"] == "running"


def test_gandiva_leaves_a_job_its_half_while_a_part_of_the_other_is_held() -> None:
    world = World(gpus=2, policy="gandiva")
    for name in ("a", "b"):
        world.running(name, gpus=2, at=on("n1", 2, milli=500))
    world.pass_s(60.0)
    world.settle(world.timer())
    world.settle(world.submit("c", gpus=2))
    world.pass_s(60.0)
    world.settle(world.timer())
    world.settle(world.submit("part", gpus=0.5))
    assert world.states() == {"a": "running", "b": "running", "c": "suspended", "part": "waiting"}

    # a leaves a half to which the part comes, as c rests; so that b can't have all when it is the last of its group.
    world.settle(world.ended("a"))
    world.settle(world.cancel("c"))
    assert world.states()["part"] == "running"
    assert world.live("b").placement == on("n1", 2, milli=500)

    world.settle(world.ended("part"))
    world.pass_s(60.0)
    world.settle(world.timer())
    assert world.live("b").placement == on("n1", 2)
