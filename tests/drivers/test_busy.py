"""How busy devices are: counted from the speed of jobs, against what was worked out by hand."""

from __future__ import annotations

import pytest

from builders import cluster, job, node
from rota.core.model.cluster import Cluster
from rota.core.model.job import DeviceType, Job, NodeId
from rota.drivers.simulator.study import Setting, simulate
from rota.perf.profiles.speed_table import Profiles
from rota.perf.speed.model import Costs, SpeedModel
from rota.report.metrics import measure
from rota.traces.workload import Submission, Workload

GPU = DeviceType("gpu")
HALF_IDLE = SpeedModel(
    profiles=Profiles(steps_per_s={(GPU, "m", 1): 10.0}, pairs={(GPU, "m", "m", 1): (8.0, 8.0)}, source="test")
)
"""Two copies do 8 steps a second each: one alone keeps a device busy for 10 / 16 of the time."""


def busy(
    policy: str,
    *jobs: Job,
    speed: SpeedModel | None = None,
    costs: Costs | None = None,
    on: Cluster | None = None,
    faults: tuple[tuple[float, NodeId, bool], ...] = (),
) -> tuple[dict[str, float | None], float | None]:
    """Busy device-seconds by job, and the part of all."""
    setting = Setting(
        cluster=on or cluster(node("n1", 1)), speed=speed or SpeedModel(), costs=costs or Costs(), fault_list=faults
    )
    submissions = tuple(Submission(job=each, submit_s=0.0) for each in jobs)
    workload = Workload(submissions=submissions, source="test", format="rota")
    history = simulate(workload, policy, setting).history
    return {row.id: row.busy_s for row in history.jobs}, measure(history).gpu_busy


def test_job_alone_keeps_its_device_busy_for_its_part() -> None:
    assert busy("fifo", job("a", work=1000.0, model="m"), speed=HALF_IDLE) == ({"a": 62.5}, 0.625)


def test_pair_keeps_a_device_busy_all_the_time() -> None:
    jobs = [job(name, work=800.0, model="m") for name in ("a", "b")]

    by_job, together = busy("lucid", *jobs, speed=HALF_IDLE)

    assert by_job == {"a": pytest.approx(50.0), "b": pytest.approx(50.0)}
    assert together == pytest.approx(1.0)


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert busy("fifo", job("a", work=10.0)) == ({"a": None}, None)


def test_devices_are_never_more_than_busy() -> None:
    """Two that say 0.8 and do not slow each other down: half of the device each, until the shorter one ends."""
    reads, computes = (("stages", "1/0/0/0"),), (("stages", "0/0/1/0"),)
    short = job("a", work=50.0, labels=(("utilization", "0.8"), *reads))
    long = job("b", work=100.0, labels=(("utilization", "0.8"), *computes))

    by_job, _ = busy("muri", short, long)

    assert by_job == {"a": pytest.approx(25.0), "b": pytest.approx(25.0 + 40.0)}


def test_restarts_are_idle_and_work_that_is_lost_was_not() -> None:
    one = job("a", work=100.0, labels=(("utilization", "0.5"),))
    costs = Costs(restart_s=10.0, checkpoint_interval_s=100.0)
    faults = ((40.0, NodeId("n1"), False), (40.0, NodeId("n1"), True))

    by_job, part = busy("fifo", one, costs=costs, faults=faults)

    # 40 s that were lost, 10 s of restart, 100 s: half of 140 in 150.
    assert by_job == {"a": pytest.approx(70.0)}
    assert part == pytest.approx(70.0 / 150.0)


def test_slices_leave_a_device_as_busy_as_one_job_does() -> None:
    jobs = [job(name, work=120.0, labels=(("utilization", "0.5"),)) for name in ("a", "b")]

    by_job, part = busy("gandiva:pack=false", *jobs)

    assert by_job == {"a": pytest.approx(60.0), "b": pytest.approx(60.0)}
    assert part == pytest.approx(0.5)
