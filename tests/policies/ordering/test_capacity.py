"""Capacity queues: whose turn it is, what is lent and taken back, how locality relaxes, and which delay is which."""

from __future__ import annotations

import pytest

from builders import World, cluster, job, node, on, start, stop
from rota.core.errors import RotaError
from rota.core.messages.reasons import ReasonCode
from rota.core.model.cluster import Cluster
from rota.core.model.job import Level, Locality, TenantId
from rota.core.model.tenants import ANY_TYPE, Share, TenantPlan
from rota.drivers.simulator.study import Setting, simulate
from rota.placement import style
from rota.policies import find_policy
from rota.report.metrics import measure
from rota.traces.workload import Submission, Workload

RED, BLUE = TenantId("red"), TenantId("blue")


def test_queue_that_uses_least_is_served_first() -> None:
    # Four devices, all held by "big". When it ends, red's queue is r1, r2, r3 and blue's is b1, each of one device,
    # submitted in the order r1, r2, r3, b1, b2. Used 0 and 0: r1 (came first); 1 and 0: b1; 1 and 1: r2; 2 and 1: b2.
    world = World(gpus=4, policy="capacity")
    world.submit("big", gpus=4, tenant=TenantId("green"))
    world.started("big")
    for name in ("r1", "r2", "r3"):
        world.submit(name, tenant=RED)
    for name in ("b1", "b2"):
        world.submit(name, tenant=BLUE)

    assert world.ended("big") == [
        start("r1", on("n1", [0])),
        start("b1", on("n1", [1])),
        start("r2", on("n1", [2])),
        start("b2", on("n1", [3])),
    ]


def test_capacities_need_not_be_equal() -> None:
    # Red has twice blue's capacity. Used over capacity: r1 at 0, b1 at 0 against 1/2, then r2 at 1/2 against 1.
    world = World(gpus=4, policy="capacity:entities=red/blue,weights=2/1")
    world.submit("big", gpus=4, tenant=TenantId("green"))
    world.started("big")
    for name in ("b1", "b2"):
        world.submit(name, tenant=BLUE)
    for name in ("r1", "r2", "r3"):
        world.submit(name, tenant=RED)

    started = [str(decision.job_id) for decision in world.ended("big")]

    assert started == ["b1", "r1", "r2", "b2"]


def test_strict_queue_holds_its_own_jobs_up_and_no_others() -> None:
    world = World(gpus=2, policy="capacity:out_of_order=false")
    world.submit("held", tenant=RED)
    world.started("held")

    assert world.submit("wide", gpus=2, tenant=RED) == []
    assert world.submit("behind", tenant=RED) == []
    assert world.submit("other", tenant=BLUE) == [start("other", on("n1", [1]))]
    assert world.code("behind") is ReasonCode.BEHIND
    assert world.code("wide") is ReasonCode.DEVICES_BUSY


def test_later_jobs_pass_one_that_does_not_fit() -> None:
    world = World(gpus=2, policy="capacity")
    world.submit("held", tenant=RED)
    world.started("held")
    world.submit("wide", gpus=2, tenant=RED)

    assert world.submit("behind", tenant=RED) == [start("behind", on("n1", [1]))]


def test_what_was_lent_is_taken_back() -> None:
    plan = TenantPlan(shares={RED: Share(guaranteed={ANY_TYPE: 2}), BLUE: Share(guaranteed={ANY_TYPE: 2})})
    of = Cluster(nodes=(node("n1", 4),), tenants=plan)
    world = World(of=of, policy="capacity", tenancy="quota")
    for name in ("r1", "r2", "r3"):
        world.submit(name, tenant=RED)
    world.started("r1", "r2", "r3")

    assert world.submit("b1", gpus=2, tenant=BLUE) == [stop("r3")]
    assert world.stopped("r3") == [start("b1", on("n1", [2, 3]))]
    assert world.live("r3").state.value == "waiting"


def test_locality_relaxes_with_failed_attempts() -> None:
    # Two racks of two nodes of two devices; one device of n1, n2 and n3 is held. A job of two tasks insists on one node
    # for 3 attempts of 120 s, though two devices of a rack are free; n4 is held whole. At 360 s one rack will do.
    nodes = [node(f"n{at}", 2, rack="r1" if at < 3 else "r2") for at in range(1, 5)]
    world = World(of=cluster(*nodes), policy="capacity", placement="attempts")
    for name, at in (("a", on("n1", 1)), ("b", on("n2", 1)), ("c", on("n3", 1))):
        world.running(name, at=at)
    world.running("d", at=on("n4", 2, tasks=1), gpus=2)

    assert world.submit("pair", workers=2) == []
    reason = world.why("pair")
    assert reason is not None
    assert (reason.code, reason.until_s) == (ReasonCode.FRAGMENTED, 720.0)
    assert world.engine.wakeup_s == 360.0
    assert world.timer(360.0) == [start("pair", on("n1", [1]), on("n2", [1]))]


def test_every_level_has_its_attempts() -> None:
    levels = [(until_s, locality.level) for until_s, locality in style("attempts:every=10").ladder(job())]

    assert levels == [(30.0, Level.NODE), (60.0, Level.RACK)]
    own = Locality(level=Level.DOMAIN, hard=True, relax_after_s=5.0)
    assert style("attempts").ladder(job(locality=own)) == ((5.0, own),)


def test_fair_share_delay_and_fragmentation_delay_are_told_apart() -> None:
    # Two nodes of two devices. Until 100 s all four are held: "pair", which came at 10 s and wants two devices of one
    # node, waits 90 s for its fair share. Then x and y end, and two are free, but on two nodes: it insists for 360 s,
    # until 370 s, which makes 270 s of fragmentation.
    def of(name: str, work: float, at_s: float, workers: int = 1) -> Submission:
        return Submission(job=job(name, workers=workers, work=work), submit_s=at_s)

    submissions = (
        of("a", 1000.0, 0.0),
        of("x", 100.0, 0.0),
        of("b", 1000.0, 0.0),
        of("y", 100.0, 0.0),
        of("pair", 5000.0, 10.0, workers=2),
    )
    workload = Workload(submissions=submissions, source="test", format="rota")
    nodes = (node("n1", 2), node("n2", 2))

    history = simulate(workload, "capacity", Setting(cluster=Cluster(nodes=nodes))).history

    pair = history.jobs[-1]
    assert (pair.start_s, pair.wait_s, pair.fragmented_s) == (370.0, 360.0, 270.0)
    figures = measure(history)
    assert figures.avg_fragmentation_delay_s == pytest.approx(270.0 / 5)
    assert figures.avg_fair_share_delay_s == pytest.approx(90.0 / 5)


def test_delay_of_those_behind_is_that_of_the_first() -> None:
    # As above, and "second" is alike and comes at 200 s: it waits 170 s for fragmentation with the first; from 370 s,
    # when "pair" has the two devices, none are free until a and b end.
    submissions = tuple(
        Submission(job=job(name, workers=workers, work=work), submit_s=at_s)
        for name, workers, work, at_s in (
            ("a", 1, 1000.0, 0.0),
            ("x", 1, 100.0, 0.0),
            ("b", 1, 1000.0, 0.0),
            ("y", 1, 100.0, 0.0),
            ("pair", 2, 5000.0, 10.0),
            ("second", 2, 10.0, 200.0),
        )
    )
    workload = Workload(submissions=submissions, source="test", format="rota")

    history = simulate(workload, "capacity", Setting(cluster=Cluster(nodes=(node("n1", 2), node("n2", 2))))).history

    second = history.jobs[-1]
    assert (second.start_s, second.wait_s, second.fragmented_s) == (1000.0, 800.0, 170.0)


@pytest.mark.parametrize(
    ("options", "message"), [("entities=a,weights=1/2", "give one each"), ("entities=a,weights=0", "above 0")]
)
def test_impossible_parameters_are_refused(options: str, message: str) -> None:
    with pytest.raises(RotaError, match=message):
        find_policy("capacity")[0].read(options)
