"""Every policy that has a name runs the built-in Philly-like workload to its end."""

from __future__ import annotations

import pytest

from rota.core.model.cluster import Cluster
from rota.drivers.simulator.study import Setting, simulate
from rota.policies import names
from rota.report.metrics import measure
from rota.traces.generators import generate

GPUS = 64
SPECS = {"gavel/allox": "gavel/allox:compat=none"}
"""As published, AlloX refuses jobs of several devices."""


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [150, pytest.param(500, marks=pytest.mark.long)])
@pytest.mark.parametrize("policy", names())
def test_philly_like_jobs_all_come_to_their_end(policy: str, jobs: int) -> None:
    """Half of the jobs are elastic, a quarter has a deadline; all do their work, on devices that are there."""
    workload = generate("philly-like", jobs=jobs, seed=0, gpus=GPUS, elastic=0.5, deadlines=0.25)

    found = measure(
        simulate(workload, SPECS.get(policy, policy), Setting(cluster=Cluster.uniform(("gpu", GPUS, 8)))).history
    )

    assert (found.jobs, found.finished) == (jobs, jobs)
    ends = [submission.outcome.value for submission in workload.submissions]
    assert (found.succeeded, found.failed, found.cancelled) == (
        ends.count("succeeded"),
        ends.count("failed"),
        ends.count("cancelled"),
    )
    assert 0 < found.gpu_allocation <= 1
