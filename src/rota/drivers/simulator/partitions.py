"""Partitions of a cluster in replays: a job runs on the nodes of its partition, where the cluster has partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rota.core.model.cluster import Cluster
from rota.core.model.job import Job
from rota.core.model.labels import Operator, Requirement, Terms
from rota.scenario.partitions import JOB_LABEL, NODE_LABEL, YES
from rota.traces.workload import Submission


def within_partitions(submissions: Sequence[Submission], cluster: Cluster) -> tuple[Submission, ...]:
    """Return jobs that require the nodes of their partitions; as they are where no node is in any.

    A job of a partition that the cluster does not have may run anywhere.
    """
    known = {name.removeprefix(NODE_LABEL) for node in cluster.nodes for name, _ in node.labels if _is_partition(name)}
    if not known:
        return tuple(submissions)
    terms: dict[str, Terms] = {}
    found = []
    for each in submissions:
        stated = dict(each.job.labels).get(JOB_LABEL, "")
        if stated not in terms:
            names = [name for name in stated.split(",") if name in known]
            terms[stated] = tuple((Requirement(f"{NODE_LABEL}{name}", Operator.IN.value, (YES,)),) for name in names)
        found.append(replace(each, job=_required(each.job, terms[stated])) if terms[stated] else each)
    return tuple(found)


def _is_partition(label: str) -> bool:
    return label.startswith(NODE_LABEL)


def _required(job: Job, terms: Terms) -> Job:
    return replace(job, roles=tuple(replace(role, requires=terms) for role in job.roles))
