"""Feasibility by memory: the sizes at which a plan of a job's model fits on some devices of a cluster."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rota.core.model.cluster import Cluster
from rota.core.model.job import WHOLE, DeviceType, Elastic, Job
from rota.planner.parallel.cluster_speeds import PlannedSpeeds, devices_per_node, why_not


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCheck:
    """What jobs of planned models may get in a cluster, by the memory that their plans need."""

    speeds: PlannedSpeeds
    devices: Mapping[DeviceType, int]
    """The devices of the cluster by type."""

    def kinds(self, job: Job, devices: int) -> Sequence[DeviceType]:
        """Return the types that a job may run on, with so many devices if there are any such types."""
        asked = job.roles[0].device_types
        kinds = [kind for kind in self.speeds.per_node if not asked or kind in asked]
        return [kind for kind in kinds if self.devices[kind] >= devices] or kinds

    def within_memory(self, job: Job) -> Job | str:
        """Return the job with the sizes at which a plan fits on some type, or why there are none."""
        if len(job.roles) > 1 or job.roles[0].device_milli % WHOLE:
            return f"model {job.model} needs one kind of task with whole devices; drop the model, or ask for those"
        role = job.roles[0]
        each = role.device_milli // WHOLE
        if job.elastic is None:
            return job if self._fits(job, role.count * each) else self._refusal(job, role.count * each)
        least = [tasks for kind in self.kinds(job, 0) if (tasks := self._least_tasks(job, job.elastic, kind))]
        if not least:
            most = max((self.devices[kind] for kind in self.kinds(job, 0)), default=0)
            return self._refusal(job, max(min(job.elastic.max_tasks, most // each), job.elastic.min_tasks) * each)
        bounds = Elastic(min_tasks=min(least), max_tasks=job.elastic.max_tasks)
        return replace(job, elastic=bounds, roles=(replace(role, count=max(role.count, min(least))),))

    def _least_tasks(self, job: Job, bounds: Elastic, kind: DeviceType) -> int | None:
        """Return the least allowed number of tasks at which a plan fits on a type; more devices always fit as well."""
        each = job.roles[0].device_milli // WHOLE
        tried = range(bounds.min_tasks, min(bounds.max_tasks, self.devices[kind] // each) + 1)
        model, rate = str(job.model), self.speeds.rate
        at = bisect_left(tried, True, key=lambda tasks: bool(rate(kind, model, tasks * each)))
        return tried[at] if at < len(tried) else None

    def _fits(self, job: Job, devices: int) -> bool:
        return any(self.speeds.rate(kind, str(job.model), devices) for kind in self.kinds(job, devices))

    def _refusal(self, job: Job, devices: int) -> str:
        among = {kind: self.speeds.per_node[kind] for kind in self.kinds(job, devices)}
        return f"model {job.model} does not fit: {why_not(str(job.model), among, devices)}"


def memory_check(cluster: Cluster) -> MemoryCheck:
    """Return the check for a cluster."""
    speeds = PlannedSpeeds(per_node=devices_per_node(cluster))
    return MemoryCheck(speeds=speeds, devices=cluster.devices_by_type)
