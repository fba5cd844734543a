"""Gandiva, against small courses of events that were worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from builders import World, cluster, job, node, on
from policies.colocation.small_runs import ends, run, speeds
from rota.core.messages.decisions import Move
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import Checkpoint, Elastic, JobId
from rota.perf.speed.model import Costs


def test_gandiva_slices_a_device_by_the_quantum() -> None:
    rows = run("gandiva:pack=false", job("a", work=120.0), job("b", work=120.0))

    # b comes first, since it has its first slice as soon as a runs; then a and b by turns of 60 s.
    assert ends(rows) == {"a": 240.0, "b": 180.0}
    assert (rows["a"].suspensions, rows["b"].suspensions) == (2, 1)
    assert rows["a"].run_s == 120.0
    assert rows["a"].preemptions == 0


def test_gandiva_pays_for_every_slice() -> None:
    rows = run("gandiva:pack=false", job("a", work=120.0), job("b", work=120.0), costs=Costs(resume_s=1.0))

    # Slices of 60 s, each but the first after a second in which nothing is done.
    assert ends(rows) == {"b": 60.0 + 61.0 + 61.0, "a": 182.0 + 61.0}


def test_gandiva_slices_are_longer_where_switches_cost_more() -> None:
    rows = run("gandiva:pack=false", job("a", work=250.0), job("b", work=250.0), costs=Costs(resume_s=10.0))

    # After the first slice of 60 s, each switch of 10 s earns a slice of 200 s: a 200, b the other 190, a the last 50.
    assert ends(rows) == {"b": 60.0 + 210.0 + 200.0, "a": 470.0 + 60.0}


@pytest.mark.parametrize(("switch_s", "why"), [(0.4, ""), (10.0, ", as a switch takes 10 s")])
def test_why_a_slice_is_longer_is_told(switch_s: float, why: str) -> None:
    reason = Reason(code=ReasonCode.TURN, job=JobId("a"), slice_s=200.0, switch_s=switch_s)

    assert reason.sentence() == f"suspended while job a has its turn on the same devices, for 200 s{why}"


def test_gandiva_does_not_slice_a_job_whose_memory_has_no_place_to_go() -> None:
    stuck = Checkpoint(interval_s=math.inf, suspend_s=math.inf)

    rows = run("gandiva:pack=false", job("a", work=120.0, checkpoint=stuck), job("b", work=120.0))

    assert ends(rows) == {"a": 120.0, "b": 240.0}


@pytest.mark.parametrize(
    ("together", "expected"),
    [
        # From 60 on both at 6 steps a second: b has 600 left and takes 100 s; a did 600 by then and has 60 s left.
        (6.0, {"b": 160.0, "a": 220.0}),
        # At 120 the trial is undone: b has 360 left, alone; a had done 240 and goes on when b has ended at 156.
        (4.0, {"b": 156.0, "a": 156.0 + 96.0}),
        # Just more than time slicing: they stay packed, and b takes 600 / 5.12 s.
        (5.12, {"b": 177.1875, "a": 237.1875}),
        # As much as time slicing: the trial is undone at 120, when b has 300 left and a 900.
        (5.0, {"b": 150.0, "a": 240.0}),
    ],
    ids=["faster", "slower", "just-faster", "equal"],
)
def test_gandiva_keeps_a_pair_packed_only_if_it_outruns_time_slicing(
    together: float, expected: dict[str, float]
) -> None:
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


@pytest.mark.parametrize("gpus", [1, 2])
def test_gandiva_gives_a_job_all_its_devices_when_its_mate_leaves_though_another_rests(gpus: int) -> None:
    world = _kept_pair_and_one_that_rests(gpus)
    world.settle(world.submit("part", gpus=0.5))

    world.settle(world.ended("a"))

    assert _states(world) == {"a": "succeeded", "b": "running", "c": "suspended", "part": "waiting"}
    assert world.live("b").placement == on("n1", gpus)
    _end_of_slice(world)
    assert {world.states()["b"], world.states()["c"], world.states()["part"]} == {"running", "waiting"}


@pytest.mark.parametrize("gpus", [1, 2])
def test_gandiva_takes_turns_on_the_half_that_is_left_while_a_part_of_the_other_is_held(gpus: int) -> None:
    world = _part_beside_one_of_two(gpus)

    _end_of_slice(world)
    assert (world.states()["b"], world.states()["c"]) == ("suspended", "running")
    assert world.live("c").placement == on("n1", gpus, milli=500)
    _end_of_slice(world)
    assert (world.states()["b"], world.states()["c"]) == ("running", "suspended")

    world.settle(world.ended("part"))
    _end_of_slice(world)
    assert world.live("b").gpus + world.live("c").gpus == gpus


@pytest.mark.parametrize("gpus", [1, 2])
def test_gandiva_gives_a_job_the_half_beside_it_before_another_part_when_it_is_the_last_of_its_group(gpus: int) -> None:
    world = _part_beside_one_of_two(gpus)
    world.settle(world.cancel("c"))
    assert world.live("b").placement == on("n1", gpus, milli=500)
    world.settle(world.submit("later", gpus=0.5))
    assert world.states()["later"] == "waiting"

    world.settle(world.ended("part"))

    assert world.live("b").placement == on("n1", gpus)
    assert world.states()["later"] == "waiting"


def test_gandiva_resumes_a_job_that_rests_alone_as_soon_as_its_devices_are_free() -> None:
    world = World(gpus=2, policy="gandiva")
    world.settle(world.submit("a", gpus=2))
    told = world.submit("b", gpus=2)
    world.cancel("b")
    world.submit("part", gpus=0.9)
    world.settle(told)
    world.settle(world.submit("all", gpus=1, exclusive=True))
    assert world.states() == {"a": "suspended", "b": "cancelled", "part": "running", "all": "waiting"}

    world.settle(world.ended("part"))

    assert world.states()["a"] == "running"


def test_gandiva_moves_a_job_that_rests_beside_a_part_to_devices_that_become_free() -> None:
    world = _part_beside_one_of_two(1)

    world.settle(world.ended("elsewhere"))

    assert world.live("c").placement == on("n2", 1)
    assert world.live("b").placement == on("n1", 1, milli=500)


def test_gandiva_moves_a_job_that_has_half_beside_a_part_to_devices_that_become_free() -> None:
    world = _part_beside_one_of_two(1)
    world.settle(world.cancel("c"))

    world.settle(world.ended("elsewhere"))

    assert world.live("b").placement == on("n2", 1)
    assert world.live("part").placement == on("n1", 1, milli=500)


def test_gandiva_does_not_hold_a_part_of_another_against_a_pair() -> None:
    world = _part_beside_one_of_two_that_ran_alone()
    _end_of_slice(world)
    assert (world.states()["a"], world.states()["b"]) == ("suspended", "running")
    world.settle(world.ended("part"))

    _end_of_slice(world)

    assert (world.states()["a"], world.states()["b"]) == ("running", "running")


def test_gandiva_lets_the_next_go_on_that_has_room_beside_a_part() -> None:
    world = _kept_pair_and_one_that_rests(1, device_memory_bytes=12)
    world.settle(world.submit("small", device_memory_bytes=6))
    for _ in range(3):
        _end_of_slice(world)
    _let_a_part_come_between(world, gpus=0.5, device_memory_bytes=8)

    _end_of_slice(world)

    assert _states(world) | {"b": "suspended", "c": "suspended", "small": "running"} == _states(world)


def test_gandiva_lets_a_job_go_on_if_who_rests_has_no_room_beside_a_part() -> None:
    world = _part_beside_one_of_two_that_ran_alone(device_memory_bytes=9)

    world.pass_s(60.0)
    assert world.timer() == []


def _kept_pair_and_one_that_rests(gpus: int, device_memory_bytes: int = 0) -> World:
    """The pair a and b and, after their slice and one of its own, c with so much memory; the other node is full."""
    of = cluster(*(node(name, gpus, device_memory_bytes=16) for name in ("n1", "n2")))
    world = World(of=of, policy="gandiva")
    world.running("elsewhere", gpus=gpus, exclusive=True, at=on("n2", gpus))
    for name in ("a", "b"):
        world.running(name, gpus=gpus, at=on("n1", gpus, milli=500))
    _end_of_slice(world)
    world.settle(world.submit("c", gpus=gpus, device_memory_bytes=device_memory_bytes))
    _end_of_slice(world)
    assert _states(world) == {"a": "running", "b": "running", "c": "suspended"}
    return world


def _part_beside_one_of_two(gpus: int) -> World:
    """b has half of its devices, another the other half in parts, and c rests."""
    world = _kept_pair_and_one_that_rests(gpus)
    _end_of_slice(world)
    _let_a_part_come_between(world, gpus=0.5, workers=gpus)
    assert _states(world) == {"a": "succeeded", "b": "running", "c": "suspended", "part": "running"}
    return world


def _let_a_part_come_between(world: World, **part: Any) -> None:
    """It is the turn of the pair, but a ends before the driver has resumed b: a part comes to the half that a had."""
    world.pass_s(60.0)
    world.suspended(*(str(each.job_id) for each in world.timer()))
    world.resumed("a")
    world.submit("part", **part)
    world.settle(world.ended("a"))
    world.settle(world.resumed("b"))


def _part_beside_one_of_two_that_ran_alone(device_memory_bytes: int = 0) -> World:
    """Another of the group ends while a is being resumed beside it: a part comes between, and b rests."""
    world = World(of=cluster(node("n1", 1, device_memory_bytes=16)), policy="gandiva")
    world.settle(world.submit("a"))
    world.settle(world.submit("b", device_memory_bytes=device_memory_bytes))
    world.settle(world.submit("c"))
    _end_of_slice(world)
    assert world.states() == {"a": "suspended", "b": "suspended", "c": "running"}
    world.pass_s(60.0)
    world.timer()
    world.submit("part", gpus=0.4, device_memory_bytes=8)
    world.settle(world.ended("c"))
    world.settle(world.resumed("a"))
    assert world.states() == {"a": "running", "b": "suspended", "c": "succeeded", "part": "running"}
    return world


def _states(world: World) -> dict[str, str]:
    return {name: state for name, state in world.states().items() if name != "elsewhere"}


def _end_of_slice(world: World) -> None:
    world.pass_s(60.0)
    world.settle(world.timer())
