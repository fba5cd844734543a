"""The health of nodes in a manager: what drains follow from it, and how failures are counted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from builders import cluster, node
from rota.core.messages.events import Event, NodeDrained, NodeRated, NodeUndrained
from rota.core.model.cluster import NodeTrust
from rota.core.model.job import NodeId
from rota.core.state.state import State
from rota.health.failure_rate import FailureRate
from rota.health.node_state import GOOD_TO_CLEAR, GOOD_TO_RETURN, HealthSign, NodeHealthState, Severity
from rota.live.health.node_counts import NodeCounts
from rota.live.health.node_watch import NodeWatch, passed
from rota.live.health.told_intervals import ToldIntervals
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


def warning(at_s: float = 1.0) -> HealthSign:
    return HealthSign(at_s=at_s, source="gpu", severity=Severity.WARNING, text="GPU 0 is slowed down by heat")


def test_suspect_is_rated_so_and_unproven_once_it_is_cleared(tmp_path: Path, told: list[Event]) -> None:
    nodes = NodeWatch(State(cluster(node("n1"), node("n2"))), tmp_path, told.append, proven_after_s=100.0)
    nodes.take(NODE, warning())
    for turn in range(GOOD_TO_CLEAR):
        nodes.take(NODE, passed("gpu", 2.0 + turn))
    nodes.look(50.0)
    nodes.look(200.0)

    trusts = [NodeTrust.SUSPECT, NodeTrust.UNPROVEN, NodeTrust.PROVEN]
    assert told == [NodeRated(NODE, trust) for trust in trusts]


def test_lemon_is_unproven_until_its_counters_no_longer_stand_out(nodes: NodeWatch, told: list[Event]) -> None:
    nodes.lemons = {"n1": ("xids", "tickets", "out_of_service")}
    nodes.look(1.0)
    nodes.look(2.0)
    nodes.lemons = {}
    nodes.take(NODE, passed("gpu", 3.0))
    nodes.look(4.0)

    assert told == [NodeRated(NODE, NodeTrust.UNPROVEN), NodeRated(NODE, NodeTrust.PROVEN)]


def test_manager_that_starts_again_drains_bad_nodes_again(nodes: NodeWatch, tmp_path: Path) -> None:
    nodes.take(NODE, severe())
    nodes.take(NodeId("n2"), warning())
    again: list[Event] = []

    NodeWatch(State(cluster(node("n1"), node("n2"))), tmp_path, again.append)

    assert again == [NodeDrained(NODE), NodeRated(NodeId("n2"), NodeTrust.SUSPECT)]


def test_spare_takes_the_place_of_a_bad_node_and_the_repaired_node_is_the_next_spare(
    tmp_path: Path, told: list[Event]
) -> None:
    of = cluster(node("n1"), node("n2"), node("n3"))
    nodes = NodeWatch(State(of), tmp_path, told.append, spares=1)
    assert told == [NodeDrained(NodeId("n3"))]
    assert nodes.is_spare(NodeId("n3"))
    told.clear()

    nodes.take(NODE, severe())
    assert told == [NodeDrained(NODE), NodeUndrained(NodeId("n3"))]
    told.clear()

    again = NodeWatch(State(of), tmp_path, told.append, spares=1)
    assert told == [NodeDrained(NODE)]  # n3 goes on taking jobs
    told.clear()
    again.repair(NODE, 2.0)
    for turn in range(GOOD_TO_RETURN):
        again.take(NODE, passed("gpu", 3.0 + turn))

    assert told == []
    assert again.is_spare(NODE)


def test_counters_are_of_28_days_and_kept_over_a_restart(tmp_path: Path) -> None:
    now_s = 0.0
    counts = NodeCounts(tmp_path, lambda: now_s)
    for _ in range(4):
        counts.add("n1", "xids", "tickets", "out_of_service")
    counts.add("n2", "runs")
    counts.save()

    again = NodeCounts(tmp_path, lambda: now_s)
    assert again.lemons(("n1", "n2", "n3")) == {"n1": ("xids", "tickets", "out_of_service")}
    now_s = 27.9 * 86_400
    assert again.counters()["n1"].xids == 4
    now_s = 28.1 * 86_400
    assert again.lemons(("n1", "n2", "n3")) == {}


def test_node_that_drains_and_is_bad_then_has_failed_once(tmp_path: Path, told: list[Event]) -> None:
    watch = HealthWatch.__new__(HealthWatch)  # the part that counts, without a manager
    watch._rate = FailureRate(prior=10.0)
    control: Any = SimpleNamespace(state=SimpleNamespace(inventory=SimpleNamespace(nodes=[])))
    watch._control, watch._counted_s = control, 0.0
    watch._intervals = ToldIntervals(control, watch._rate, tmp_path)
    watch.counts = NodeCounts(tmp_path, lambda: 5.0)
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
    kept = FailureRate(prior=10.0)
    ToldIntervals(control, kept, tmp_path)
    assert kept.per_1000_node_days == once.per_1000_node_days
    assert watch.counts.counters()["n1"].out_of_service == 1
