"""Small runs of elastic jobs on one type of device: when each job ends under a policy."""

from __future__ import annotations

from typing import Any

from builders import job
from rota.core.model.cluster import Cluster
from rota.core.model.job import Elastic
from rota.core.state.history import History
from rota.drivers.simulator.study import Setting, simulate
from rota.perf.speed.model import Costs, SpeedModel
from rota.traces.workload import Submission, Workload

ROOT = SpeedModel(scaling=0.5)
"""Four times the devices are twice the speed."""


def elastic(name: str, work: float, *, at_s: float = 0.0, most: int = 4, least: int = 1, **fields: Any) -> Submission:
    """A job that asks for its least number of one-device tasks and may have more."""
    bounds = Elastic(min_tasks=least, max_tasks=most)
    return Submission(job=job(name, workers=least, work=work, elastic=bounds, **fields), submit_s=at_s)


def rigid(name: str, work: float, *, at_s: float = 0.0, gpus: int = 1, **fields: Any) -> Submission:
    """A job of so many one-device tasks, no more and no less."""
    return Submission(job=job(name, workers=gpus, work=work, **fields), submit_s=at_s)


def history(
    policy: str,
    *submissions: Submission,
    gpus: int = 4,
    per_node: int | None = None,
    speed: SpeedModel = ROOT,
    restart_s: float = 0.0,
) -> History:
    """What became of the jobs."""
    setting = Setting(
        cluster=Cluster.uniform(("gpu", gpus, per_node or gpus)), speed=speed, costs=Costs(restart_s=restart_s)
    )
    workload = Workload(submissions=submissions, source="test", format="rota")
    return simulate(workload, policy, setting).history


def ends(policy: str, *submissions: Submission, **options: Any) -> dict[str, float]:
    """When each job ended, to a hundredth of a second."""
    rows = history(policy, *submissions, **options).jobs
    return {row.id: round(row.end_s if row.end_s is not None else -1.0, 2) for row in rows}
