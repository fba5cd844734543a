"""Occupancy of servers by jobs of known kinds and the resulting speeds, updated as jobs come and go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from rota.core.model.cluster import Node
from rota.core.model.job import WHOLE, Job, JobId
from rota.core.model.placement import Placement
from rota.perf.speed.contention import StepTimes, TaskOnServer, alone_s, server_times
from rota.perf.speed.contention_constants import KINDS, ServerCapacity
from rota.perf.speed.network import is_server

_USUAL = ServerCapacity()
BITS = 8


def kind_of(job: Job) -> str | None:
    """Return a job's kind: its model, or its label `model`."""
    return job.model or dict(job.labels).get("model")


def unknown_kinds(jobs: Iterable[Job], known: Collection[str]) -> str:
    """Return in words which kinds of jobs are not known, and of how many jobs; empty if all are."""
    kinds = [kind_of(job) for job in jobs]
    lacking = [kind for kind in kinds if kind not in known]
    if not lacking:
        return ""
    named = sorted({kind for kind in lacking if kind is not None})
    shown = [*map(repr, named[:3]), *([f"{len(named) - 3:,} more"] if len(named) > 3 else [])]
    if None in lacking:
        shown.append("jobs that name no model")
    return (
        f"{len(lacking):,} of {len(kinds):,} jobs are of no known kind ({', '.join(shown)}; known: {', '.join(known)})"
    )


def contends(job: Job) -> bool:
    """Return whether the demands of a job on shared servers are known."""
    return kind_of(job) in KINDS


def server_of(node: Node) -> ServerCapacity:
    """Return the capacity that the tasks of a node share: as declared, else the default."""
    return _USUAL._replace(
        cores=_USUAL.cores if node.cpu_milli is None else node.cpu_milli / WHOLE,
        nic_bytes_s=_USUAL.nic_bytes_s if node.network_bps is None else node.network_bps / BITS,
    )


def tenants_of(job: Job, placement: Placement, duty: float = 1.0) -> dict[int, TaskOnServer]:
    """Return the tasks by node of a job throttled to that duty cycle; empty for unknown kinds."""
    workers: dict[int, int] = {}
    servers: dict[int, int] = {}
    for slot in placement:
        counts = servers if is_server(job, slot.role) else workers
        counts[slot.node] = counts.get(slot.node, 0) + slot.tasks
    nodes = sorted({*workers, *servers})
    asked = {is_server(job, index): role.cpu_milli / WHOLE for index, role in enumerate(job.roles)}
    return {
        node: TaskOnServer(
            kind=str(kind_of(job)),
            workers=workers.get(node, 0),
            servers=servers.get(node, 0),
            all_workers=sum(workers.values()),
            all_servers=sum(servers.values()),
            nodes=len(nodes),
            worker_cores=asked.get(False) or 1.0,
            server_cores=asked.get(True) or 1.0,
            duty=duty,
        )
        for node in nodes
    }


class SharedServers:
    """The jobs of known kinds on each node."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._by_node: dict[int, dict[JobId, TaskOnServer]] = {}
        self._by_job: dict[JobId, dict[int, TaskOnServer]] = {}

    def enter(self, job: Job, placement: Placement, duty: float = 1.0) -> None:
        """Add a job with its duty cycle."""
        self.put(job.id, tenants_of(job, placement, duty))

    def put(self, job_id: JobId, tenants: Mapping[int, TaskOnServer]) -> None:
        """Add the tasks of a job."""
        self._by_job[job_id] = dict(tenants)
        for node, tenant in tenants.items():
            self._by_node.setdefault(node, {})[job_id] = tenant

    def leave(self, job_id: JobId) -> None:
        """Remove a job, if it is present."""
        for node in self._by_job.pop(job_id, {}):
            del self._by_node[node][job_id]

    def beside(self, nodes: Iterable[int]) -> list[JobId]:
        """Return the jobs on these nodes."""
        return list(dict.fromkeys(job_id for node in nodes for job_id in self._by_node.get(node, {})))

    def on(self, node: int) -> Mapping[JobId, TaskOnServer]:
        """Return the jobs on a node."""
        return self._by_node.get(node, {})

    def nodes_of(self, job_id: JobId) -> Mapping[int, TaskOnServer]:
        """Return the nodes of a job's tasks."""
        return self._by_job[job_id]

    def speed(self, job_id: JobId) -> float:
        """Return the speed of a job among its neighbours, relative to that alone on one server."""
        own = self._by_job[job_id]
        times = [self._times(node, job_id) for node in own]
        step_s = max(time.compute_s for time in times) + max(time.exchange_s for time in times)
        some = next(iter(own.values()))
        return alone_s(some.kind, some.all_workers, some.all_servers) / step_s

    def _times(self, node: int, job_id: JobId) -> StepTimes:
        here = self._by_node[node]
        ordered = sorted(here.items(), key=lambda entry: (entry[1], entry[0]))
        times = server_times(tuple(tenant for _, tenant in ordered), server_of(self._nodes[node]))
        return next(time for time, (name, _) in zip(times, ordered, strict=True) if name == job_id)
