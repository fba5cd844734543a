"""Deadlines derived from SLOs, which are multiples of a job's run time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rota.core.model.cluster import Cluster
from rota.mechanisms.rounds.rule import above_zero
from rota.perf.speed.model import SpeedModel
from rota.traces.workload import Submission


def due_by_slo(submissions: Sequence[Submission], cluster: Cluster, speed: SpeedModel) -> tuple[Submission, ...]:
    """Give each job with a label `slo` and no deadline one: that multiple of its run time on its fastest type."""
    return tuple(_due(submission, cluster, speed) for submission in submissions)


def _due(submission: Submission, cluster: Cluster, speed: SpeedModel) -> Submission:
    job = submission.job
    slo = above_zero(dict(job.labels).get("slo")) if job.labels else None
    if slo is None or job.work is None or job.deadline_s is not None:
        return submission
    rooms = cluster.devices_by_type.items()
    fastest = max((speed.on_type(job, kind) for kind, devices in rooms if devices >= job.gpus), default=0.0)
    if not fastest:
        return submission
    return replace(submission, job=replace(job, deadline_s=submission.submit_s + slo * job.work / fastest))
