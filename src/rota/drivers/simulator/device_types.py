"""Device types for jobs whose speed was measured: those on which they run, fastest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.core.model.job import WHOLE, Elastic, Job, Role
from rota.perf.profiles.speed_table import Speeds
from rota.traces.workload import Submission


def typed_by_speed(submissions: Sequence[Submission], cluster: Cluster, profiles: Speeds) -> tuple[Submission, ...]:
    """Let each job that named no types ask for those of the cluster on which its model has a speed above 0.

    That is at the requested size; for an elastic job whose speed is known at each size, at the largest.
    """
    roles_by_kind: dict[tuple[tuple[Role, ...], str | None, Elastic | None], tuple[Role, ...]] = {}
    typed = []
    for submission in submissions:
        job = submission.job
        kind = (job.roles, job.model, job.elastic)
        if kind not in roles_by_kind:
            roles_by_kind[kind] = _roles(job, cluster, profiles)
        typed.append(replace(submission, job=replace(job, roles=roles_by_kind[kind])))
    return tuple(typed)


def _roles(job: Job, cluster: Cluster, profiles: Speeds) -> tuple[Role, ...]:
    if job.model is None or any(role.device_types for role in job.roles):
        return job.roles
    if profiles.is_relative and not profiles.knows(job.model):
        return job.roles
    devices = max(job.gpu_milli // WHOLE, 1)
    if job.elastic is not None and profiles.has_sizes(job.model):
        devices = max(job.elastic.max_tasks * job.roles[0].device_milli // WHOLE, 1)
    speeds = {kind: profiles.rate(kind, job.model, devices) or 0.0 for kind in cluster.devices_by_type}
    able = sorted((kind for kind, speed in speeds.items() if speed > 0), key=lambda kind: -speeds[kind])
    if not able:
        profiles.fastest(job.model, devices)
        raise RotaError(
            f"profiles {profiles.source}: job {job.id} ({job.model}, {devices} devices) has no speed above 0 "
            f"on {', '.join(map(str, speeds))}; name the cluster's types as the profiles do"
        )
    return tuple(replace(role, device_types=tuple(able)) if role.device_milli else role for role in job.roles)
