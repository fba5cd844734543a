"""Labels and taints of nodes, and what others hold of them."""

from __future__ import annotations

import pytest

from builders import World, cluster, job, node, on, start
from rota.core.codec.snapshot import restore, take
from rota.core.codec.values import decode_event, encode_event
from rota.core.engine.invariants import check
from rota.core.messages.events import JobArrived, NodeOccupied
from rota.core.messages.reasons import ReasonCode
from rota.core.model.job import Job, NodeId, Role
from rota.core.model.labels import Operator, Requirement, Taint, Toleration, is_met, is_tolerated

N1 = NodeId("n1")
IN_A = ((Requirement("zone", "In", ("a",)),),)


def wishing(name: str, gpus: int = 1, **wishes: object) -> Job:
    return job(name, roles=(Role(device_milli=gpus * 1000, **wishes),))  # type: ignore[arg-type]  # of any field


def two_zones() -> World:
    return World(
        of=cluster(
            node("n1", 2, labels=(("zone", "b"),)),
            node("n2", 2, labels=(("zone", "a"),), taints=(Taint("dedicated", "x"),)),
        ),
        policy="fifo:backfill=true",
    )


@pytest.mark.parametrize(
    ("requirement", "fits"),
    [
        (Requirement("zone", "In", ("a", "b")), True),
        (Requirement("zone", "NotIn", ("a",)), False),
        (Requirement("rack", "NotIn", ("a",)), True),
        (Requirement("zone", "Exists"), True),
        (Requirement("rack", "Exists"), False),
        (Requirement("zone", "DoesNotExist"), False),
        (Requirement("gpus", "Gt", ("7",)), True),
        (Requirement("gpus", "Gt", ("8",)), False),
        (Requirement("gpus", "Lt", ("9",)), True),
        (Requirement("rack", "Lt", ("9",)), False),
        (Requirement("zone", "Gt", ("1",)), False),
    ],
    ids=str,
)
def test_each_operator_compares_as_it_says(requirement: Requirement, fits: bool) -> None:
    assert is_met(((requirement,),), {"zone": "a", "gpus": "8"}) is fits
    assert {operator.value for operator in Operator} >= {requirement.operator}


def test_one_of_the_terms_suffices_but_all_of_its_requirements_must_hold() -> None:
    both = (Requirement("zone", "In", ("a",)), Requirement("gpus", "Exists"))

    assert not is_met((both,), {"zone": "a"})
    assert is_met((both, (Requirement("zone", "In", ("a",)),)), {"zone": "a"})


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration(), True),
        (Toleration("dedicated"), True),
        (Toleration("dedicated", "x"), True),
        (Toleration("dedicated", "y"), False),
        (Toleration("other"), False),
    ],
    ids=str,
)
def test_taints_keep_away_who_does_not_tolerate_them(toleration: Toleration, tolerated: bool) -> None:
    assert is_tolerated((Taint("dedicated", "x"),), (toleration,)) is tolerated


def test_job_goes_where_its_labels_point_once_it_tolerates_the_taint() -> None:
    world = two_zones()

    assert world.step(JobArrived(wishing("kept-out", requires=IN_A))) == []
    assert world.code("kept-out") is ReasonCode.NO_MATCHING_NODE
    let_in = wishing("let-in", requires=IN_A, tolerates=(Toleration("dedicated", "x"),))
    assert world.step(JobArrived(let_in)) == [start("let-in", on("n2", 1))]
    assert world.step(JobArrived(wishing("any", gpus=2))) == [start("any", on("n1", 2))]


def test_what_others_hold_is_not_given_away_and_comes_back() -> None:
    world = World(gpus=4)
    world.step(NodeOccupied(N1, devices=3))

    assert world.submit("two", gpus=2) == []
    assert world.code("two") is ReasonCode.DEVICES_BUSY
    assert world.step(NodeOccupied(N1, devices=2)) == [start("two", on("n1", 2))]
    check(world.engine.state)
    world.step(NodeOccupied(N1, devices=4))
    check(world.engine.state)
    assert world.engine.state.inventory.free == 0


def test_others_survive_a_snapshot_and_a_journal() -> None:
    whole = cluster(node("n1", 4, cpu_milli=8000, memory_bytes=100))
    world = World(of=whole)
    event = NodeOccupied(N1, devices=1, cpu_milli=500, memory_bytes=7)
    world.step(event)
    role = wishing("j", requires=IN_A, tolerates=(Toleration("a", None),))

    again = restore(whole, take(world.engine.state)).inventory.nodes[0]

    assert (again.free_mask, again.cpu_milli, again.memory_bytes) == (0b0111, 7500, 93)
    assert decode_event(encode_event(event)) == event
    assert decode_event(encode_event(JobArrived(role))) == JobArrived(role)
