"""Jobs that start over when they are stopped: every policy lets them end, or the simulation says why not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from builders import cluster, job, node
from rota.core.errors import RotaError
from rota.core.model.job import Checkpoint, DeviceType, Job, Role
from rota.drivers.simulator.study import Setting, simulate
from rota.perf.speed.model import SpeedModel
from rota.traces.workload import Submission, Workload

LOSES = Checkpoint(interval_s=math.inf)
SETTING = Setting(cluster=cluster(node("n1", 2)))


def workload() -> Workload:
    """Six jobs on two devices that arrive while others run; each loses its work when it is stopped."""
    jobs = [(0.0, _job(0, 2)), *[(37.0 * at, _job(at, 2 if at == 3 else 1)) for at in range(1, 6)]]
    return Workload(submissions=tuple(Submission(job=each, submit_s=at_s) for at_s, each in jobs), source="", format="")


def _job(number: int, tasks: int) -> Job:
    return job(
        f"j{number}",
        roles=(Role(count=tasks),),
        work=1000.0 + 101.0 * number,
        estimate_s=1000.0,
        checkpoint=LOSES,
        user=f"u{number % 2}",
    )


@pytest.mark.parametrize("policy", ["e-las", "las:thresholds=200/400", "priority", "srtf", "afs-p:evict_s=60"])
def test_jobs_that_start_over_do_not_displace_each_other_for_ever(policy: str) -> None:
    found = simulate(workload(), policy, SETTING).history

    assert all(row.end_s is not None for row in found.jobs)
    assert max(row.preemptions for row in found.jobs) < 20


def test_policy_that_plans_in_rounds_is_refused_when_it_undoes_a_job_again_and_again() -> None:
    with pytest.raises(
        RotaError, match=r"job j\d starts over whenever it is stopped or moved, which happened 500 times"
    ):
        simulate(workload(), "gavel/isolated", SETTING)


def test_move_that_undoes_a_job_counts_as_a_stop_does() -> None:
    """A round on one type and a round on the other, for ever: the only job is never stopped, but always moved."""
    alone = Workload(submissions=(Submission(job=_job(90, 1), submit_s=0.0),), source="", format="")
    two_types = cluster(node("n1", 1, device_type=DeviceType("a")), node("n2", 1, device_type=DeviceType("b")))
    setting = replace(SETTING, cluster=two_types, speed=SpeedModel(type_speed={DeviceType("b"): 0.9}))

    with pytest.raises(RotaError, match="job j90 starts over whenever it is stopped or moved"):
        simulate(alone, "gavel/isolated", setting)
