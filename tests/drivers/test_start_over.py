"""Jobs that never save their progress start over when they are stopped, in the simulator as on a machine."""

from __future__ import annotations

import math
from typing import Any

import pytest

from builders import job
from rota.core.model.cluster import Cluster
from rota.core.model.job import Checkpoint
from rota.drivers.simulator.study import Setting, simulate
from rota.perf.speed.model import Costs
from rota.traces.workload import Submission, Workload

ONE = Cluster.uniform(("gpu", 1, 1))
NEVER = Checkpoint(interval_s=math.inf)


def end_of_long(policy: str, costs: Costs, **fields: Any) -> float:
    """A job of 100 s is stopped at 30 s for one of 10 s; return when it ends."""
    submissions = (
        Submission(job=job("long", work=100.0, **fields), submit_s=0.0),
        Submission(job=job("short", work=10.0, priority=1), submit_s=30.0),
    )
    workload = Workload(submissions=submissions, source="here", format="rota")
    history = simulate(workload, policy, Setting(cluster=ONE, costs=costs)).history
    return next(row.end_s or 0.0 for row in history.jobs if row.id == "long")


@pytest.mark.parametrize("policy", ["srtf", "priority"])
@pytest.mark.parametrize(
    ("costs", "fields", "end_s"),
    [
        pytest.param(Costs(), {}, 110.0, id="by default nothing is lost"),
        pytest.param(Costs(), {"checkpoint": Checkpoint()}, 110.0, id="it saves when stopped"),
        pytest.param(Costs(), {"checkpoint": NEVER}, 140.0, id="it never saves"),
        pytest.param(Costs(checkpoint_interval_s=math.inf), {}, 140.0, id="no job saves that does not say so"),
        pytest.param(Costs(checkpoint_interval_s=math.inf), {"checkpoint": Checkpoint()}, 110.0, id="this one does"),
        pytest.param(Costs(checkpoint_s=5.0), {"checkpoint": NEVER}, 145.0, id="stopping takes time"),
    ],
)
def test_stopped_job_keeps_what_it_saved(policy: str, costs: Costs, fields: dict[str, Any], end_s: float) -> None:
    assert end_of_long(policy, costs, **fields) == end_s
