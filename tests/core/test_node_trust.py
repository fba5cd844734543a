"""Nodes in doubt: suspects take only tasks that tolerate them, jobs larger than a node prefer proven nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import World, cluster, job, node, on, start
from rota.core.codec import snapshot
from rota.core.codec.values import decode_event, encode_event
from rota.core.messages.events import NodeRated
from rota.core.model.cluster import NodeTrust
from rota.core.model.job import Job, NodeId
from rota.core.model.labels import TOLERATES_SUSPECTS
from rota.core.state.state import State

N1, N2 = NodeId("n1"), NodeId("n2")


def tolerant(asked: Job) -> Job:
    return replace(asked, roles=tuple(replace(role, tolerates=(TOLERATES_SUSPECTS,)) for role in asked.roles))


def suspect(name: NodeId) -> NodeRated:
    return NodeRated(name, NodeTrust.SUSPECT)


def proven(name: NodeId) -> NodeRated:
    return NodeRated(name, NodeTrust.PROVEN)


def test_suspect_takes_only_jobs_that_tolerate_it_until_it_is_cleared() -> None:
    world = World(gpus=4)
    world.step(suspect(N1))

    assert world.submit(job=tolerant(job("bold", gpus=1))) == [start("bold", on("n1", 1))]
    assert world.submit("strict", gpus=1) == []
    assert world.step(proven(N1)) == [start("strict", on("n1", [1]))]


def test_what_runs_on_a_suspect_stays() -> None:
    world = World(gpus=4)
    world.submit("a", gpus=2)

    assert world.step(suspect(N1)) == []


@pytest.mark.parametrize("placement", ["any", "consolidate", "spread", "best-fit", "even"])
def test_job_larger_than_a_node_avoids_unproven_nodes_where_others_can_hold_it(placement: str) -> None:
    world = World(gpus=2, nodes=3, placement=placement)
    world.step(NodeRated(N1, NodeTrust.UNPROVEN))

    started = world.submit("large", workers=4)

    assert [{slot.node for slot in each.placement} for each in started] == [{1, 2}]  # type: ignore[union-attr]


def test_unproven_nodes_take_small_jobs_and_large_ones_that_fit_nowhere_else() -> None:
    world = World(gpus=2, nodes=2, placement="any")
    world.step(NodeRated(N1, NodeTrust.UNPROVEN))

    assert world.submit("small", gpus=1) == [start("small", on("n1", 1))]
    assert len(world.submit("large", workers=3)) == 1


def test_trust_is_in_snapshots_forks_and_journals() -> None:
    state = State(cluster(node("n1", 2), node("n2", 2)))
    state.inventory.rate(1, NodeTrust.SUSPECT)

    again = snapshot.restore(cluster(node("n1", 2), node("n2", 2)), snapshot.take(state))

    assert [each.trust for each in again.inventory.nodes] == [NodeTrust.PROVEN, NodeTrust.SUSPECT]
    assert again.inventory.fork().unproven == 0b10
    assert decode_event(encode_event(suspect(N2))) == suspect(N2)
