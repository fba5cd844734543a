"""Nodes with reservations: only jobs that tolerate their taints are placed there, whatever the policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import World, cluster, job, node, on, start
from rota.core.codec import snapshot
from rota.core.codec.values import decode_event, encode_event
from rota.core.messages.decisions import Start
from rota.core.messages.events import JobUpdated, NodeAdded, NodeRemoved, NodeReserved, TimerFired
from rota.core.model.job import Job, NodeId
from rota.core.model.labels import RESERVED, RESERVED_LATER, Taint, Toleration
from rota.policies import names

N1, N2 = NodeId("n1"), NodeId("n2")
COURSE = Taint(RESERVED, "course.1")
SHUT = NodeReserved(N1, (COURSE,))


def member(asked: Job, taint: Taint = COURSE) -> Job:
    tolerated = (Toleration(taint.key, taint.value),)
    return replace(asked, roles=tuple(replace(role, tolerates=tolerated) for role in asked.roles))


def test_reserved_node_takes_only_members_until_the_end() -> None:
    world = World(gpus=4, policy="priority")
    world.step(SHUT)

    assert world.submit("other", gpus=1, priority=5) == []
    assert world.submit(job=member(job("third", gpus=1), Taint(RESERVED, "course.2"))) == []
    assert world.submit(job=member(job("member", gpus=2))) == [start("member", on("n1", 2))]
    assert len(world.step(NodeReserved(N1))) == 2


def test_what_runs_stays_and_both_taints_must_be_tolerated() -> None:
    world = World(gpus=4)
    world.submit("a", gpus=1)

    assert world.step(NodeReserved(N1, (COURSE, Taint(RESERVED_LATER, "next")))) == []
    assert world.submit(job=member(job("half", gpus=1))) == []
    assert world.step(SHUT) == [start("half", on("n1", [1]))]


def test_a_waiting_job_that_gets_the_toleration_starts() -> None:
    world = World(gpus=4)
    world.step(SHUT)
    world.submit("a", gpus=1)
    asked = world.state.jobs[job("a").id].job

    assert world.step(JobUpdated(asked.id, member(asked))) == [start("a", on("n1", 1))]


@pytest.mark.parametrize("policy", names())
def test_no_policy_starts_others_on_a_reserved_node(policy: str) -> None:
    world = World(gpus=2, nodes=2, policy=policy)
    world.step(SHUT)
    decisions = [each for name in "abc" for each in world.submit(name, gpus=1)]
    while world.engine.wakeup_s <= 4000.0 and len(decisions) < 2:
        world.now_s = world.engine.wakeup_s
        decisions += world.step(TimerFired())

    started = [each for each in decisions if isinstance(each, Start)]

    assert started
    assert {slot.node for each in started for slot in each.placement} == {1}


def test_reservations_are_in_snapshots_forks_journals_and_stay_when_a_node_returns() -> None:
    two = cluster(node("n1", 2), node("n2", 2))
    world = World(of=two)
    world.step(NodeReserved(N2, (COURSE,)))

    again = snapshot.restore(two, snapshot.take(world.state))

    assert [each.reserved for each in again.inventory.nodes] == [(), (COURSE,)]
    assert [each.reserved for each in again.inventory.fork().nodes] == [(), (COURSE,)]
    assert decode_event(encode_event(SHUT)) == SHUT
    world.step(NodeRemoved(N2))
    world.step(NodeAdded(replace(node("n2", 2), labels=(("rack", "b"),))))
    assert world.state.inventory.nodes[1].reserved == (COURSE,)
