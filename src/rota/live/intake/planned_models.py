"""Jobs that name a model to plan: at their submission the sizes that fit into memory, and their speeds for policies."""

from __future__ import annotations

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job
from rota.perf.speed.model import SpeedModel
from rota.planner.parallel.cluster_speeds import PlannedSpeeds, devices_per_node
from rota.planner.parallel.hardware import is_accelerator
from rota.planner.parallel.job_memory import memory_check
from rota.planner.parallel.model_names import is_planned, planned_model


def within_memory(job: Job, cluster: Cluster) -> Job:
    """Return the job with the sizes at which its model fits; raise a `RotaError` if there are none.

    Without a planned model, or where the planner knows none of the types that it may get, the job is left unchanged.
    """
    if not is_planned(job.model) or not job.gpu_milli:
        return job
    planned_model(str(job.model))
    check = memory_check(cluster)
    if not any(is_accelerator(kind) for kind in check.kinds(job, 0)):
        return job
    answer = check.within_memory(job)
    if isinstance(answer, str):
        raise RotaError(f"job: {answer}")
    return answer


def planned_speeds(cluster: Cluster) -> SpeedModel:
    """Return what policies know of the speed of jobs: that of planned models at each size, type and spread.

    Speeds are relative to the requested size, as work is in seconds. Types that join later are unknown until a restart.
    """
    return SpeedModel(profiles=PlannedSpeeds(per_node=devices_per_node(cluster)), scattered=True, by_request=True)
