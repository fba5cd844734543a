"""Rota's own policy with a minimum run time: `settle`."""

from __future__ import annotations

from builders import job
from rota.core.model.cluster import Cluster
from rota.drivers.simulator.study import Setting, simulate
from rota.perf.speed.model import Costs
from rota.traces.workload import Submission, Workload


def test_job_starts_when_protection_ends_although_others_came_meanwhile() -> None:
    """The first runs for four restarts at least. That the third can displace nobody says nothing about the second."""
    asked = (
        (job("protected", workers=8, work=9000.0), 0.0),
        (job("short", workers=8, work=50.0), 100.0),
        (job("humble", work=50.0, priority=-1), 105.0),
    )
    workload = Workload(
        submissions=tuple(Submission(job=each, submit_s=at_s) for each, at_s in asked), source="test", format="rota"
    )
    setting = Setting(cluster=Cluster.uniform(("gpu", 8, 8)), costs=Costs(restart_s=30.0))

    rows = simulate(workload, "rota:settle=4", setting).history.jobs

    assert rows[1].start_s == 120.0
