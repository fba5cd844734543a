"""Rounds: who is selected, what a lease comes to, when the next round begins."""

from __future__ import annotations

import math

import numpy as np
import pytest

from builders import World, cluster, node, on, stop
from rota.core.messages.decisions import Lease, Renew, Start
from rota.core.messages.events import (
    Interrupted,
    JobCancelled,
    JobHeld,
    Lapsed,
    NodeDrained,
    NodeLost,
    NodeRemoved,
    NodeUndrained,
    Stopped,
)
from rota.core.messages.reasons import Reason, ReasonCode
from rota.core.model.job import JobId, Level, Locality, NodeId
from rota.mechanisms.rounds.deficits import Deficits

POLICY = "gavel/isolated:compat=none,round_s=100"


def test_newcomer_waits_for_the_end_of_the_round() -> None:
    world = World(gpus=2, policy=POLICY)

    assert world.submit("a", work=1000.0) == [Start(JobId("a"), on("n1", 1), Lease(100.0, 100.0))]
    world.started("a")
    world.pass_s(10.0)
    assert world.submit("b", work=50.0) == []
    world.pass_s(90.0)
    decisions = world.step(Lapsed(JobId("a"), 100.0))

    assert decisions == [
        Start(JobId("b"), on("n1", [1]), Lease(50.0, 200.0)),
        Renew(JobId("a"), on("n1", 1), Lease(200.0, 200.0)),
    ]


def test_jobs_take_turns_on_one_device() -> None:
    world = World(gpus=1, policy=POLICY)
    world.submit("a", work=1000.0)
    world.started("a")
    world.submit("b", work=1000.0)
    ran = []
    for _ in range(5):
        world.pass_s(100.0)
        running = next(name for name, state in world.states().items() if state == "running")
        ran.append(running)
        done = world.live(running).work_done(world.now_s)
        for decision in world.step(Lapsed(JobId(running), done)):
            if isinstance(decision, Renew):
                continue
            world.step(Stopped(JobId(running), done))
        starting = [name for name, state in world.states().items() if state == "starting"]
        world.started(*starting)

    assert ran[0] == "a"
    assert sorted(ran[1:]) == ["a", "a", "b", "b"]


def test_who_was_on_its_way_out_when_a_round_came_to_nothing_is_drawn_again() -> None:
    world = World(gpus=1, policy=POLICY)
    world.submit("a", work=1000.0)
    world.started("a")
    world.submit("b", work=1000.0)
    world.pass_s(100.0)
    world.step(Lapsed(JobId("a"), 100.0))
    world.pass_s(100.0)
    assert world.step(Lapsed(JobId("a"), 200.0)) == [stop("a")]
    assert world.step(JobHeld(JobId("b"))) == []
    world.pass_s(5.0)

    decisions = world.step(Stopped(JobId("a"), 200.0))

    assert decisions == [Start(JobId("a"), on("n1", 1), Lease(300.0, 305.0))]


def test_devices_of_one_who_finds_no_place_go_to_the_next() -> None:
    """Two nodes of two devices in different racks: the gang of four insists on one rack and has to wait."""
    world = World(of=cluster(node("n1", 2, rack="r1"), node("n2", 2, rack="r2")), policy=POLICY)
    world.submit("a", workers=2, work=10.0)
    world.started("a")
    world.submit("wide", workers=4, work=10.0, locality=Locality(level=Level.RACK, hard=True, relax_after_s=500.0))
    world.submit("c", workers=4, work=1000.0)
    world.pass_s(10.0)

    (started,) = world.settle(world.ended("a"))

    assert isinstance(started, Start)
    assert started.job_id == "c"
    reason = world.why("wide")
    assert reason is not None
    assert reason.code is ReasonCode.FRAGMENTED
    assert reason.until_s == 500.0


def test_nodes_that_take_the_place_of_others_are_looked_at_again() -> None:
    """As many devices as before, but now on one node: a task of four devices, which could not run, can."""
    world = World(of=cluster(node("n1", 4), node("n2", 2), node("n3", 2)), policy=POLICY)
    world.step(NodeDrained(NodeId("n1")))
    world.submit("a", gpus=1, work=100.0)
    world.started("a")
    world.submit("wide", gpus=4, work=10.0)
    world.ended("a")
    assert world.why("wide") == Reason(code=ReasonCode.NEVER_FITS, need_milli=4000)

    decisions = world.step(NodeUndrained(NodeId("n1")), NodeDrained(NodeId("n2")), NodeDrained(NodeId("n3")))

    assert decisions == [Start(JobId("wide"), on("n1", 4), Lease(10.0, 100.0))]


def test_job_without_devices_starts_when_it_asks_for_less() -> None:
    """Two tasks of three CPUs on nodes of four insist on one node for 50 s."""
    small = [node(f"n{number}", 1, cpu_milli=4000, rack=f"r{number}") for number in (1, 2)]
    world = World(of=cluster(*small), policy=POLICY)
    near = Locality(level=Level.RACK, hard=True, relax_after_s=50.0)
    assert world.submit("a", gpus=0, workers=2, cpu_milli=3000, work=10.0, locality=near) == []
    assert world.engine.wakeup_s == 50.0
    reason = world.why("a")
    assert reason is not None
    assert reason.code is not ReasonCode.ROUND
    world.pass_s(50.0)

    (started,) = world.timer()

    assert isinstance(started, Start)
    assert world.engine.wakeup_s == math.inf


def test_lost_node_is_seen_at_once_while_nobody_runs() -> None:
    world = World(of=cluster(node("n1", 2, rack="r1"), node("n2", 2, rack="r2")), policy=POLICY)
    world.submit("a", workers=4, work=10.0, locality=Locality(level=Level.RACK, hard=True, relax_after_s=500.0))
    before = world.why("a")

    world.step(NodeLost(NodeId("n2")))

    after = world.why("a")
    assert before is not None
    assert after is not None
    assert (before.code, after.code) == (ReasonCode.FRAGMENTED, ReasonCode.NEVER_FITS)


@pytest.mark.parametrize("rule", ["isolated", "min_total_duration", "max_min_fairness"])
def test_job_that_came_back_and_was_cancelled_in_one_step_is_forgotten(rule: str) -> None:
    world = World(of=cluster(node("n1", 1), node("n2", 1)), policy=f"gavel/{rule}:compat=none,round_s=100")
    world.settle(world.submit("a", work=1000.0))
    world.settle(world.submit("b", work=1000.0))
    world.pass_s(10.0)

    world.settle(world.step(Interrupted(JobId("a"), 5.0), JobCancelled(JobId("a"))))
    for _ in range(3):
        world.pass_s(100.0)
        world.settle(world.step(Lapsed(JobId("b"), 50.0)) if world.states()["b"] == "running" else world.timer())

    assert world.states()["a"] == "cancelled"
    assert world.states()["b"] == "running"


def test_nodes_that_left_the_cluster_are_not_shared_out() -> None:
    world = World(of=cluster(node("n1", 2), node("n2", 2)), policy=POLICY)
    world.step(NodeRemoved(NodeId("n2")))

    world.submit("a", workers=4, work=10.0)

    assert world.why("a") == Reason(code=ReasonCode.NEVER_FITS, need_milli=4000)
    assert world.engine.memory["stock"] == [[0], [2], [2]]


def test_who_has_had_least_of_its_share_goes_first() -> None:
    deficits = Deficits(1, 50.0)
    deficits.join([(0,)], 1, np.array([[True]]))
    deficits.join([(1,)], 1, np.array([[True]]))
    deficits.set_shares({(0,): [0.5], (1,): [0.5]})
    deficits.close(0.0)
    deficits.served((0,), 0, 100.0)

    assert deficits.order(deficits.priorities(), 0).tolist() == [1, 0]


def test_nobody_has_a_share_of_a_type_that_is_too_small_for_it() -> None:
    deficits = Deficits(2, 50.0)
    deficits.join([(0,)], 4, np.array([[True, False]]))

    deficits.set_shares({(0,): [0.5, 0.5]})

    assert deficits.share.tolist() == [[0.5, 0.0]]


def test_deficit_breaks_ties_and_who_left_is_forgotten() -> None:
    deficits = Deficits(1, 50.0)
    for seq in range(3):
        deficits.join([(seq,)], 1, np.array([[True]]))
    deficits.set_shares({(0,): [0.3], (1,): [0.3], (2,): [0.3]})
    deficits.served((0,), 0, 60.0)
    deficits.close(100.0)
    deficits.leave({1})

    assert deficits.contenders == [(0,), (2,)]
    assert deficits.order(deficits.priorities(), 0).tolist() == [1, 0]


def test_adaptive_round_follows_restart_cost_and_length() -> None:
    # Jobs of 1000, 2000 and 8000 s at speed 1, restarts of 40 s: sqrt(2 * 2000 * 40) = 400 s.
    world = World(gpus=3, policy="gavel/isolated:compat=none,round_s=adaptive", restart_s=40.0)
    world.submit("a", gpus=3, work=9000.0)
    world.started("a")
    for name, work in (("b", 1000.0), ("c", 2000.0), ("d", 8000.0)):
        world.submit(name, work=work)

    decisions = world.settle(world.ended("a"))

    leases = {each.job_id: each.lease for each in decisions if isinstance(each, Start)}
    assert leases == {name: Lease(400.0, 400.0) for name in "bcd"}
