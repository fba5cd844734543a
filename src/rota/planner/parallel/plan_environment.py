"""The plan of a job as environment variables of its tasks: `ROTA_PLAN`, `ROTA_PLAN_ARGUMENTS` and `ROTA_TORCHRUN`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence

from rota.core.errors import RotaError
from rota.core.model.job import Job
from rota.core.model.ranks import TaskRank
from rota.planner.parallel.cluster_speeds import best_plan
from rota.planner.parallel.deployment import PlannedSpeed, planned_speed
from rota.planner.parallel.hardware import is_accelerator
from rota.planner.parallel.model_names import is_planned


def plan_variables(
    job: Job,
    given: str | None,
    tasks: Sequence[TaskRank],
    task: TaskRank,
    *,
    address: str | None = None,
    port: int | None = None,
) -> dict[str, str]:
    """Return the variables for a task of a job that names a model to plan or brings a plan; none for other jobs.

    A plan that the job brings is handed over as it is. Otherwise it is the best one on the devices of these tasks.
    Without an address, torchrun takes it from `MASTER_ADDR` and `MASTER_PORT`, which are then up to the job.
    """
    if given is None and not is_planned(job.model):
        return {}
    torchrun = [
        f"--nnodes={len(tasks)}",
        f"--node-rank={task.rank}",
        f"--nproc-per-node={max(len(task.devices), 1)}",
    ]
    if address is not None:
        torchrun += [f"--master-addr={address}", f"--master-port={port}"]
    found = {"ROTA_TORCHRUN": shlex.join(torchrun)}
    if given is not None:
        return {**found, "ROTA_PLAN": given}
    answer = _best_plan(str(job.model), tasks)
    if answer is None or answer.plan is None:
        return found
    return {**found, **dict(answer.variables), "ROTA_PLAN_ARGUMENTS": shlex.join(answer.arguments)}


def _best_plan(model: str, tasks: Sequence[TaskRank]) -> PlannedSpeed | None:
    """Return the best plan on the devices of some tasks; None if they are of several types or of an unknown one."""
    kinds = {task.node.device_type for task in tasks if task.devices}
    if len(kinds) != 1 or not is_accelerator(kind := kinds.pop()):
        return None
    by_node = Counter[str]()
    for task in tasks:
        by_node[task.node.id] += len(task.devices)
    devices, nodes = by_node.total(), len(by_node)
    try:
        if len(set(by_node.values())) == 1:
            answer = planned_speed(model, kind, devices, nodes)
            if answer.feasible:
                return answer
        return best_plan(model, kind, devices, max(by_node.values()), nodes > 1)
    except RotaError:
        return None
