"""Rota's own policy where jobs are elastic or device types differ."""

from __future__ import annotations

from dataclasses import replace

from builders import World, cluster, job, node
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, Elastic, Job
from rota.drivers.simulator.study import Setting, simulate
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import Costs, SpeedModel
from rota.report.metrics import measure
from rota.traces.generators import generate

OLD, NEW = DeviceType("old"), DeviceType("new")


def elastic(name: str, least: int, most: int, work: float = 1e6) -> Job:
    return replace(job(name, workers=least, work=work), elastic=Elastic(min_tasks=least, max_tasks=most))


def held(world: World) -> dict[str, int]:
    return {str(live.job.id): sum(slot.tasks for slot in live.placement or ()) for live in world.state.jobs.values()}


def test_every_job_gets_its_smallest_size_before_any_grows() -> None:
    world = World(gpus=4, policy="rota")

    world.settle(world.submit(job=elastic("a", 1, 4)))
    assert held(world) == {"a": 4}

    world.settle(world.submit(job=elastic("b", 1, 4)))
    world.settle(world.submit(job=elastic("c", 2, 4)))
    assert held(world) == {"a": 1, "b": 1, "c": 2}


def test_without_elastic_jobs_keep_the_size_that_they_ask_for() -> None:
    world = World(gpus=4, policy="rota:elastic=false")

    world.settle(world.submit(job=elastic("a", 1, 4)))

    assert held(world) == {"a": 1}


def test_list_scheduler_takes_over_when_the_last_elastic_job_ends() -> None:
    world = World(gpus=4, policy="rota")
    world.settle(world.submit(job=elastic("a", 1, 4)))
    world.settle(world.submit("b", gpus=2))
    assert held(world) == {"a": 2, "b": 1}

    world.settle(world.ended("a"))
    world.settle(world.submit("c", gpus=2))
    world.settle(world.submit("d", gpus=1))

    assert world.states() == {"a": "succeeded", "b": "running", "c": "running", "d": "waiting"}


def test_the_job_that_gains_most_gets_the_fast_devices() -> None:
    """`keen` is 4 times as fast on the new type, `even` 1.1 times; `even` came first."""
    rates = {(OLD, "keen", 1): 1.0, (NEW, "keen", 1): 4.0, (OLD, "even", 1): 1.0, (NEW, "even", 1): 1.1}
    speed = SpeedModel(profiles=Profiles(steps_per_s=rates, source="test"))
    world = World(of=cluster(node("o", 1, device_type=OLD), node("n", 1, device_type=NEW)), policy="rota", speed=speed)

    world.settle(world.submit(job=replace(job("even", work=1e6), model="even")))
    world.settle(world.submit(job=replace(job("keen", work=1e6), model="keen")))
    world.settle(world.timer())

    kinds = {
        str(live.job.id): world.cluster.nodes[live.placement[0].node].device_type
        for live in world.state.jobs.values()
        if live.placement
    }
    assert kinds["keen"] == NEW


def test_resizing_pays_for_itself() -> None:
    """Chosen sizes beat fixed ones although every resize costs a restart."""
    workload = generate("philly-like", jobs=60, seed=5, gpus=16, load=1.5, elastic=1.0)
    setting = Setting(cluster=Cluster.uniform(("gpu", 16, 4)), costs=Costs(restart_s=30.0))

    sized = measure(simulate(workload, "rota", setting).history)
    fixed = measure(simulate(workload, "rota:elastic=false", setting).history)

    assert sized.finished == fixed.finished == 60
    assert (sized.avg_jct_s or 0.0) < 0.9 * (fixed.avg_jct_s or 0.0)
