"""The health of nodes in a manager: what drains follow from it, and how failures are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import cluster, node
from rota.core.messages.events import Event, NodeDrained, NodeUndrained
from rota.core.model.job import NodeId
from rota.core.state.state import State
from rota.health.failure_rate import FailureRate
from rota.health.node_state import GOOD_TO_RETURN, HealthSign, NodeHealthState, Severity
from rota.live.health.node_watch import NodeWatch, passed
from rota.live.health.watch import HealthWatch

NODE = NodeId("n1")


def severe(at_s: float = 1.0) -> HealthSign:
    return HealthSign(at_s=at_s, source="gpu-xid", severity=Severity.SEVERE, text="GPU 0 reported Xid 79")


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def nodes(tmp_path: Path, told: list[Event]) -> NodeWatch:
    return NodeWatch(State(cluster(node("n1"), node("n2"))), tmp_path, told.append)


def test_severe_sign_drains_at_once_and_tests_after_the_repair_bring_the_node_back(
    nodes: NodeWatch, told: list[Event]
) -> None:
    nodes.take(NODE, severe())
    assert nodes.health(NODE).state is NodeHealthState.BAD  # no job was on it
    assert told == [NodeDrained(NODE)]

    nodes.repair(NODE, 2.0)
    for turn in range(GOOD_TO_RETURN):
        nodes.take(NODE, passed("gpu", 3.0 + turn))

    assert told == [NodeDrained(NODE), NodeUndrained(NODE)]
    assert nodes.health(NODE).state is NodeHealthState.HEALTHY


def test_state_is_kept_over_a_restart(nodes: NodeWatch, tmp_path: Path) -> None:
    nodes.take(NODE, severe())

    again = NodeWatch(State(cluster(node("n1"), node("n2"))), tmp_path, lambda event: None)

    assert again.health(NODE).state is NodeHealthState.BAD
    assert again.health(NodeId("n2")).state is NodeHealthState.HEALTHY


def test_node_that_drains_and_is_bad_then_has_failed_once(tmp_path: Path, told: list[Event]) -> None:
    watch = HealthWatch.__new__(HealthWatch)  # the part that counts, without a manager
    watch._rate = FailureRate(prior=10.0)
    nodes = NodeWatch(State(cluster(node("n1"))), tmp_path, told.append, alert=watch._changed)
    nodes._is_empty = lambda node_id: False  # type: ignore[method-assign]
    once = FailureRate(prior=10.0)
    once.failed()

    nodes.take(NODE, severe())
    assert nodes.health(NODE).state is NodeHealthState.DRAINING
    nodes._is_empty = lambda node_id: True  # type: ignore[method-assign]
    nodes.look(2.0)

    assert nodes.health(NODE).state is NodeHealthState.BAD
    assert watch._rate.per_1000_node_days == once.per_1000_node_days
