"""Moving jobs together: only with a home for everybody, and nothing left to do afterwards."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import World, at_once, cluster, job, node, on
from rota.core.errors import RotaError
from rota.core.messages.decisions import Decision, Move, Resume, Start
from rota.core.model.job import DEFAULT_TENANT, JobId
from rota.core.model.placement import Placement
from rota.core.model.tenants import ANY_TYPE, Share, TenantPlan
from rota.policies import find_policy

EVERY = "fifo:backfill=true,consolidate_s=60"


def scattered(sizes: Mapping[str, tuple[float, Placement]], *, nodes: int, gpus: int, policy: str = EVERY) -> World:
    """Jobs that run where they are said to."""
    world = World(gpus=gpus, nodes=nodes, policy=policy)
    for name, (size, at) in sizes.items():
        world.running(name, gpus=size, at=at)
    return world


def rounds(world: World, count: int) -> list[list[Decision]]:
    """What is decided in so many rounds of consolidation, all orders carried out."""
    found = []
    for _ in range(count):
        world.pass_s(60.0)
        found.append(world.settle(world.timer()))
    return found


def test_a_node_is_emptied_onto_a_fuller_one() -> None:
    world = scattered({"a": (1, on("n1", [0])), "b": (2, on("n2", [0, 1])), "c": (1, on("n2", [2]))}, nodes=2, gpus=4)

    assert world.submit("x", gpus=4) == [Move(JobId("a"), on("n2", [3]))]
    assert world.moved("a") == [Start(JobId("x"), on("n1", 4))]


def test_nobody_moves_unless_everybody_has_a_home() -> None:
    sizes = {
        "a": (1, on("n1", [0])),
        "b": (2, on("n1", [1, 2])),
        "c": (3, on("n2", [0, 1, 2])),
        "d": (3, on("n3", [0, 1, 2])),
    }
    world = scattered(sizes, nodes=3, gpus=4)

    # One device is free on n2 and on n3: enough for a, not for b; so n1 can't be emptied, and a stays.
    assert rounds(world, 1) == [[]]


def test_five_further_rounds_move_nothing() -> None:
    sizes = {f"j{number}": (1, on(f"n{number + 1}", [0])) for number in range(6)}
    world = scattered(sizes, nodes=6, gpus=4)

    first, *others = rounds(world, 6)

    assert [type(each) for each in first] == [Move] * 4
    assert others == [[]] * 5
    assert world.state.inventory.idle_free == 16


def test_parts_of_devices_are_put_together() -> None:
    sizes = {f"j{number}": (0.25, on("n1", [number], milli=250)) for number in range(4)}
    world = scattered(sizes, nodes=1, gpus=4)

    first, *others = rounds(world, 6)

    assert len(first) == 3
    assert others == [[]] * 5
    assert world.state.inventory.free == 3


def test_memory_keeps_parts_apart() -> None:
    world = World(of=cluster(node("n1", 2, device_memory_bytes=16)), policy=EVERY)
    for number in range(2):
        asked = job(f"j{number}", gpus=0.25, device_memory_bytes=10)
        world.running(f"j{number}", job=asked, at=on("n1", [number], milli=250))

    assert rounds(world, 2) == [[], []]


def test_nobody_is_moved_to_where_a_suspended_job_rests() -> None:
    world = scattered(
        {
            "a": (1, on("n1", [0], milli=500)),
            "b": (1, on("n1", [0], milli=500)),
            "large": (0.6, on("n2", [0], milli=600)),
            "part": (0.25, on("n2", [0], milli=250)),
        },
        nodes=2,
        gpus=1,
        policy="gandiva:consolidate_s=30",
    )
    world.pass_s(60.0)
    world.settle(world.timer())
    world.settle(world.submit("c"))
    for _ in range(2):
        world.pass_s(60.0)
        world.settle(world.timer())
    # It is a's and b's turn again, but a ends while b is being resumed, and another comes to the half that a leaves.
    world.pass_s(60.0)
    world.timer()
    world.suspended("c")
    world.resumed("a")
    world.submit("other", gpus=0.25)
    world.settle(world.ended("a"))
    world.settle(world.resumed("b"))
    assert world.live("other").placement == on("n1", [0], milli=250)
    assert (world.states()["b"], world.states()["c"]) == ("running", "suspended")

    # There is a quarter left where c rests, and the part would be alone on n2; but it stays.
    assert world.ended("large") == []
    world.pass_s(40.0)
    assert world.timer() == []


def test_what_a_policy_tries_in_vain_does_not_keep_others_from_being_moved() -> None:
    sizes = {"x": (1, on("n1", [2])), "y": (2, on("n2", [2, 3])), "z": (1, on("n3", [0]))}
    world = scattered(sizes, nodes=3, gpus=4, policy="gandiva:consolidate_s=30")
    world.running("split", workers=4, at=on("n1", 2, tasks=2) + on("n2", 2, tasks=2))

    # Gandiva looks for one node for all of split and there is none, until z has left its own.
    assert world.timer() == [Move(JobId("z"), on("n1", [3]))]
    assert world.moved("z") == [Move(JobId("split"), on("n3", 4, tasks=4))]


def test_a_round_waits_for_a_job_that_is_being_resumed() -> None:
    sizes = {"a": (1, on("n1", [0])), "b": (2, on("n1", [1, 2])), "c": (2, on("n2", 2)), "d": (1, on("n2", [2]))}
    world = scattered(sizes, nodes=2, gpus=3, policy="gandiva:quantum_s=1000,migrate=false,consolidate_s=30")
    world.settle(world.submit("takes-turns"))
    world.settle(world.ended("b", "d"))
    world.pass_s(40.0)
    assert world.ended("takes-turns") == [Resume(JobId("a"), on("n1", [0]))]

    # Until a runs it can't leave n1. A round that found nothing for that reason would put the next one off.
    assert world.submit("large", gpus=3) == []
    assert world.resumed("a") == [Move(JobId("a"), on("n2", [2]))]
    assert world.moved("a") == [Start(JobId("large"), on("n1", 3))]


def test_no_wakeup_is_due_while_consolidation_waits_for_an_answer() -> None:
    """A timer that is due at once would fire again and again until the driver answers."""
    world = scattered({"a": (1, on("n1", [0])), "b": (2, on("n2", [0, 1]))}, nodes=2, gpus=4)

    assert world.submit("c", gpus=3) == [Start(JobId("c"), on("n1", [1, 2, 3]))]
    assert world.engine.wakeup_s == math.inf

    # Once c runs, a round finds nothing to move; the next one is due after the interval, when c has ended.
    world.started("c")
    world.ended("c")
    assert world.engine.wakeup_s == 60.0


def test_a_job_is_not_moved_to_another_type_of_device() -> None:
    of = cluster(node("n1", 4, device_type="fast"), node("n2", 4, device_type="slow"))
    world = World(of=of, policy=EVERY).running("a", gpus=1, at=on("n1", [0])).running("b", gpus=3, at=on("n2", 3))

    assert rounds(world, 1) == [[]]


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=40)
def test_consolidation_of_anything_is_over_after_one_round(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(2, 5))
    world = World(gpus=4, nodes=nodes, policy=EVERY)
    for number in range(data.draw(st.integers(1, 8))):
        size = data.draw(st.sampled_from([0.25, 0.5, 1, 2, 3]))
        at = data.draw(st.integers(0, nodes - 1))
        free = [device for device in range(4) if world.state.inventory.nodes[at].free_mask >> device & 1]
        if len(free) >= math.ceil(size):
            milli = 1000 if size >= 1 else round(size * 1000)
            world.running(f"j{number}", gpus=size, at=on(f"n{at + 1}", free[: math.ceil(size)], milli=milli))
    before = sum(books.users > 0 for books in world.state.inventory.nodes)
    held = sum(live.gpu_milli for live in world.state.jobs.values())

    first, *others = rounds(world, 6)

    assert others == [[]] * 5
    assert all(isinstance(each, Move) for each in first)
    assert sum(live.gpu_milli for live in world.state.jobs.values()) == held
    assert sum(books.users > 0 for books in world.state.inventory.nodes) <= before


@pytest.mark.parametrize("policy", at_once())
def test_any_policy_can_switch_it_on(policy: str) -> None:
    world = World(gpus=4, nodes=2, policy=f"{policy}:consolidate_s=60", placement="spread")
    for name in ("a", "b"):
        world.settle(world.submit(name, work=1e6))
    world.pass_s(60.0)
    world.settle(world.timer())

    assert len({slot.node for name in ("a", "b") for slot in world.live(name).placement or ()}) == 1


@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        ("fifo:consolidate_s=0", "consolidate_s is '0'"),
        ("fifo:consolidate_s=soon", "consolidate_s is 'soon'"),
        ("gavel/fifo:consolidate_s=60", "leave consolidate_s out"),
    ],
)
def test_what_makes_no_sense_is_refused(policy: str, fault: str) -> None:
    declared, options = find_policy(policy)

    with pytest.raises(RotaError, match=fault):
        declared.build(options, World()._allocator)


def test_it_moves_nobody_against_promises_to_tenants() -> None:
    shares = TenantPlan(shares={DEFAULT_TENANT: Share(guaranteed={ANY_TYPE: 4})})
    promised = replace(cluster(node("n1", 4)), tenants=shares)

    with pytest.raises(RotaError, match="--tenancy none"):
        World(of=promised, policy=EVERY, tenancy="quota").submit("a")
