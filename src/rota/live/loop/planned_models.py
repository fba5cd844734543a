"""Jobs that name a model to plan, at their submission: sizes that fit into memory, or a refusal."""

from __future__ import annotations

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import Job
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
