"""How tasks on shared servers slow each other down."""

from __future__ import annotations

import pytest

from rota.core.model.job import WHOLE, Job, JobId, Role
from rota.core.model.placement import Placement, Slot
from rota.drivers.simulator.study import Setting, simulate
from rota.learn.workloads import WorkloadShape, cluster_of, workload
from rota.perf.speed.contention import fill, left_to
from rota.perf.speed.contention_constants import KINDS
from rota.perf.speed.model import SpeedModel
from rota.perf.speed.shared_servers import SharedServers, contends


def job(name: str, model: str, workers: int = 1, servers: int = 0) -> Job:
    roles = [Role(name="worker", count=workers, cpu_milli=3 * WHOLE)]
    if servers:
        roles.append(Role(name="ps", count=servers, device_milli=0, cpu_milli=2 * WHOLE))
    return Job(id=JobId(name), roles=tuple(roles), model=model)


def at(*tasks: tuple[int, int, int]) -> Placement:
    """Slots from (node, tasks, role)."""
    return tuple(Slot(node, 0, count, role) for node, count, role in tasks)


def speeds(*placed: tuple[Job, Placement]) -> list[float]:
    shared = SharedServers(cluster_of(4).nodes)
    for one, placement in placed:
        shared.enter(one, placement)
    return [shared.speed(one.id) for one, _ in placed]


@pytest.mark.parametrize("kind", KINDS)
def test_job_alone_on_one_server_runs_at_full_speed(kind: str) -> None:
    assert speeds((job("a", kind), at((0, 1, 0)))) == pytest.approx([1.0])


def test_spread_job_pays_for_what_it_sends() -> None:
    needs = KINDS["vgg16"]
    sent_s = needs.bytes / 3.125e9  # a ring of two: each sends the whole gradient once

    (speed,) = speeds((job("a", "vgg16", workers=2), at((0, 1, 0), (1, 1, 0))))

    assert speed == pytest.approx(needs.step_s / (needs.step_s + sent_s))


def test_parameter_servers_beside_their_workers_send_nothing() -> None:
    together, apart = (
        speeds((job("a", "vgg16", workers=2, servers=1), placement))[0]
        for placement in (at((0, 2, 0), (0, 1, 1)), at((0, 2, 0), (1, 1, 1)))
    )

    assert together == pytest.approx(1.0)
    assert apart < 0.8


def test_two_hungry_for_cores_slow_each_other_down_and_spare_a_modest_one() -> None:
    alone, together = at((0, 1, 0)), at((0, 1, 0))

    first, second, modest = speeds(
        (job("a", "alexnet"), alone), (job("b", "alexnet"), together), (job("c", "resnet50"), at((0, 1, 0)))
    )

    assert first == second < 0.75
    assert modest == pytest.approx(1.0)


def test_streaming_through_memory_slows_down_those_that_wait_for_it() -> None:
    hpc = Job(id=JobId("h"), model="hpc", roles=(Role(name="worker", count=4, device_milli=0, cpu_milli=3 * WHOLE),))

    streaming, sensitive = speeds((hpc, at((0, 4, 0))), (job("a", "transformer"), at((0, 1, 0))))

    assert streaming < 0.8
    assert 0.8 < sensitive < 0.95


def test_two_that_send_much_share_the_network() -> None:
    both = at((0, 1, 0), (1, 1, 0))
    (alone,) = speeds((job("a", "vgg16", workers=2), both))

    one, other = speeds((job("a", "vgg16", workers=2), both), (job("b", "vgg16", workers=2), both))

    assert one == other < alone


def test_max_min_fractions_use_the_capacity_and_exceed_no_demand() -> None:
    assert fill([1.0, 10.0, 10.0], [1.0, 1.0, 1.0], 9.0) == pytest.approx([1.0, 4.0, 4.0])
    assert fill([1.0, 2.0], [1.0, 1.0], 9.0) == pytest.approx([1.0, 2.0])
    assert left_to(1, [1.0, 3.0, 10.0], [1.0, 1.0, 1.0], 9.0) == pytest.approx(4.0)
    assert left_to(0, [5.0, 1.0], [1.0, 1.0], 9.0) == pytest.approx(8.0)


def test_simulated_jobs_never_run_faster_than_alone_and_some_run_slower() -> None:
    work = workload(WorkloadShape(servers=2, jobs_per_server=6), 3)
    setting = Setting(cluster=cluster_of(2), speed=SpeedModel(contention=True))

    slowed = simulate(work, "fifo:backfill=true", setting).history.jobs
    free = simulate(work, "fifo:backfill=true", Setting(cluster=cluster_of(2))).history.jobs

    assert all(row.run_s == pytest.approx(row.ideal_s) for row in free)
    assert all(row.run_s > row.ideal_s - 1e-6 for row in slowed)
    assert sum(row.run_s > 1.1 * row.ideal_s for row in slowed) >= 3


def test_label_tells_the_kind_where_no_model_is_named() -> None:
    labelled = Job(id=JobId("a"), labels=(("model", "vgg16"),))

    assert contends(labelled)
    assert not contends(Job(id=JobId("b"), labels=(("model", "unheard-of"),)))
    assert speeds((labelled, at((0, 1, 0)))) == pytest.approx([1.0])
