"""Rota's own policy on gangs that ask for most of the cluster: the room that they leave for others."""

from __future__ import annotations

import pytest

from builders import World, job, node, stop
from rota.core.messages.events import NodeAdded, NodeDrained
from rota.core.model.cluster import Cluster
from rota.core.model.job import NodeId
from rota.drivers.simulator.study import Setting, simulate
from rota.mechanisms.declare import Knowledge
from rota.policies.own.order import ServiceOrder
from rota.policies.own.params import RotaParams
from rota.traces.workload import Submission, Workload

PLAIN = "rota:base_gpu_s=100,growth=2,margin=0"


def order(*, margin: int) -> ServiceOrder:
    return ServiceOrder(RotaParams(base_gpu_s=100.0, margin=margin), Knowledge())


@pytest.mark.parametrize(("workers", "level"), [(1, 5), (2, 4), (4, 3)])
def test_service_of_a_gang_counts_by_the_room_that_it_leaves(workers: int, level: int) -> None:
    """Levels end at 100, 200, 400, 800...; 2,000 of a gang of 2 of 4 devices count as 1,500, of one of 4 as 500."""
    world = World(gpus=4, policy="fifo").running("a", gpus=workers, attained_gpu_s=2000.0)
    rule = order(margin=0)
    assert rule.counts_devices(world.engine.state.inventory)

    assert rule.turn(world.live("a"), world.now_s).key[2] == level
    assert not rule.counts_devices(world.engine.state.inventory)


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_room_of_a_running_gang_is_part_of_its_margin(workers: int) -> None:
    """10,000 is of the eighth level; by its room, a gang of three of four counts one level lower, one of four two."""
    world = World(gpus=4, policy="fifo").running("a", gpus=workers, attained_gpu_s=10_000.0)
    rule = order(margin=2)
    rule.counts_devices(world.engine.state.inventory)

    assert rule.turn(world.live("a"), world.now_s).key[2] == 5


def test_gang_of_all_devices_displaces_jobs_that_had_more_than_its_time() -> None:
    """It ran for 1,000 s on four devices; by its service alone it would wait for each of the others to end."""
    jobs = [(job("gang", workers=4, work=2000.0), 0.0)]
    jobs += [(job(f"single{number}", work=9000.0), 1000.0) for number in range(4)]
    workload = Workload(
        submissions=tuple(Submission(job=each, submit_s=at_s) for each, at_s in jobs), source="test", format="rota"
    )

    rows = simulate(workload, PLAIN, Setting(cluster=Cluster.uniform(("gpu", 4, 4)))).history.jobs

    assert rows[0].end_s is not None
    assert rows[0].end_s < 6000.0 < min(row.end_s or 0.0 for row in rows[1:])


def test_gang_is_ranked_again_when_the_cluster_grows() -> None:
    """Of eight devices it leaves more room than of four, so that its service counts more than that of the pair."""
    world = World(gpus=4, policy=PLAIN)
    world.settle(world.submit("pair", gpus=2))
    world.pass_s(400.0)
    world.settle(world.submit("gang", gpus=4))
    world.pass_s(700.0)
    assert world.timer() == []

    assert world.step(NodeAdded(node("n2")), NodeDrained(NodeId("n2"))) == [stop("gang")]
