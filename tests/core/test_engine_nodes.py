"""What happens to nodes: lost, back, drained, undrained, added."""

from __future__ import annotations

import pytest

from builders import World, node, on, start, stop
from rota.core.errors import RotaError
from rota.core.messages.events import Interrupted, NodeAdded, NodeBack, NodeDrained, NodeLost, NodeUndrained
from rota.core.messages.reasons import ReasonCode
from rota.core.model.job import JobId, NodeId

N1, N2 = NodeId("n1"), NodeId("n2")


def test_nothing_starts_on_a_lost_node_until_it_is_back() -> None:
    world = World(gpus=2)
    world.step(NodeLost(N1))

    assert world.submit("a", gpus=2) == []
    assert world.code("a") is ReasonCode.NODES_DOWN
    assert world.step(NodeBack(N1)) == [start("a", on("n1", 2))]


def test_job_of_a_lost_node_goes_to_another() -> None:
    world = World(gpus=2, nodes=2).running("a", gpus=2, at=on("n1", 2))
    world.pass_s(10.0)

    decisions = world.step(NodeLost(N1), Interrupted(JobId("a"), 4.0))

    assert decisions == [start("a", on("n2", 2))]
    assert world.live("a").restarts == 1
    assert world.live("a").work == 4.0
    assert world.live("a").lost_work == 6.0


def test_running_job_stays_on_a_drained_node_but_nothing_new_comes() -> None:
    world = World(gpus=2).running("a", gpus=1)

    assert world.step(NodeDrained(N1)) == []
    assert world.submit("b", gpus=1) == []
    assert world.code("b") is ReasonCode.NODES_DOWN
    assert world.states() == {"a": "running", "b": "waiting"}
    assert world.step(NodeUndrained(N1)) == [start("b", on("n1", [1]))]


def test_node_that_is_drained_and_lost_needs_both_to_end() -> None:
    world = World(gpus=1)
    world.step(NodeDrained(N1), NodeLost(N1))
    world.submit("a")

    assert world.step(NodeBack(N1)) == []
    assert world.step(NodeUndrained(N1)) == [start("a", on("n1", 1))]


@pytest.mark.parametrize("fate", [NodeLost(N1), NodeDrained(N1)], ids=["lost", "drained"])
def test_reservation_on_a_node_that_goes_is_dropped(fate: NodeLost | NodeDrained) -> None:
    world = World(gpus=2, nodes=2, policy="priority").running("low", gpus=2, at=on("n1", 2))
    world.running("other", gpus=2, at=on("n2", 2), priority=9)
    assert world.submit("high", gpus=2, priority=5) == [stop("low")]

    assert world.step(fate) == []
    assert world.live("high").placement is None
    assert world.step(NodeBack(N1), NodeUndrained(N1)) == []
    assert world.live("high").placement == on("n1", 2)
    assert world.stopped("low") == [start("high", on("n1", 2))]


def test_move_to_a_node_that_goes_ends_in_the_queue() -> None:
    world = World(gpus=4, nodes=2, policy="priority")
    world.running("x", gpus=2, at=on("n1", 2)).running("y", gpus=2, at=on("n2", 2))
    world.submit("big", gpus=4, priority=5)
    assert world.live("y").placement == on("n1", [2, 3])

    world.step(NodeDrained(N1))
    assert world.live("y").placement is None
    assert world.stopped("y") == [start("big", on("n2", 4))]
    assert world.states()["y"] == "waiting"


def test_added_node_takes_jobs() -> None:
    world = World(gpus=1).running("a")
    world.submit("b")

    assert world.step(NodeAdded(node("n2", 8))) == [start("b", on("n2", 1))]
    assert world.submit("c", gpus=7) == [start("c", on("n2", range(1, 8)))]


def test_node_of_a_known_name_is_refused() -> None:
    world = World(gpus=1)

    with pytest.raises(RotaError, match="there is a node 'n1' already"):
        world.step(NodeAdded(node("n1", 8)))


def test_added_node_may_not_put_a_rack_into_a_second_domain() -> None:
    world = World(gpus=1)

    with pytest.raises(RotaError, match="rack 'rack' is in two domains: 'domain' and 'else'"):
        world.step(NodeAdded(node("n2", 8, domain="else")))


@pytest.mark.parametrize(
    "event", [NodeLost(N2), NodeBack(N2), NodeDrained(N2), NodeUndrained(N2)], ids=lambda e: type(e).__name__
)
def test_unknown_node_is_refused(event: NodeLost) -> None:
    with pytest.raises(RotaError, match="there is no node 'n2'"):
        World(gpus=1).step(event)


def test_events_that_change_nothing_are_taken() -> None:
    world = World(gpus=1).running("a")

    assert world.step(NodeBack(N1), NodeUndrained(N1)) == []
    world.step(NodeLost(N1), NodeLost(N1), Interrupted(JobId("a"), 0.0))
    assert world.step(NodeBack(N1)) == [start("a", on("n1", 1))]
