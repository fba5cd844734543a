"""Interference in a journal: how much its jobs were slowed down, by the model of shared servers.

Run times in a journal include it, so that a simulation with neighbours has to remove it first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from rota.core.codec.values import decode_cluster
from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster, Node
from rota.core.model.job import JobId, NodeId
from rota.core.model.placement import Placement
from rota.learn.from_journal import JournalRun, begin, take
from rota.perf.speed.shared_servers import SharedServers, contends
from rota.traces.source import TraceSource
from rota.traces.workload import Submission, Workload


def read_undisturbed(work: Workload, journal: TraceSource) -> Workload | None:
    """Return the jobs of a journal as they would have run alone; None if nothing has slowed them down.

    A live manager's journal begins with a snapshot, and real jobs have real neighbours; simulated jobs were slowed down
    only where the header declares contention.
    """
    try:
        with journal.text() as lines:
            header = next(lines)
            decoded = json.loads(header)
            if decoded.get("snapshot") is None and not decoded.get("speed", {}).get("contention"):
                return None
            return undisturbed(work, chain([header], lines), decode_cluster(decoded["cluster"]))
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise RotaError(f"{journal.path}: can't be read: {type(err).__name__}: {err}") from err


def undisturbed(work: Workload, lines: Iterable[str], cluster: Cluster) -> Workload:
    """Return the jobs of a journal with the work that they would have done alone in their run time."""
    speeds = mean_speeds(lines, cluster)

    def alone(submission: Submission) -> Submission:
        job = submission.job
        return replace(submission, job=replace(job, work=(job.work or 0.0) * speeds.get(job.id, 1.0)))

    return replace(work, submissions=tuple(map(alone, work.submissions)), contention_removed=True)


def mean_speeds(lines: Iterable[str], cluster: Cluster) -> dict[JobId, float]:
    """Return the mean speed of each job of a known kind relative to that alone."""
    runs: dict[JobId, JournalRun] = {}
    nodes = {str(node.id): index for index, node in enumerate(cluster.nodes)}
    crowd = _ServerOccupants(cluster)
    last_s: float | None = None
    for line in lines:
        value = json.loads(line)
        if "t" not in value:
            begin(runs, nodes, value)
            crowd.follow(runs, nodes)
            continue
        now_s = float(value["t"])
        if last_s is not None:
            crowd.pass_time(now_s - last_s)
        crowd.follow({job_id: runs[job_id] for job_id in take(runs, nodes, value)}, nodes)
        last_s = now_s
    return crowd.means()


class _ServerOccupants:
    """Placements, speeds and accumulated progress of running jobs."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes = list(cluster.nodes)
        self._servers = SharedServers(self._nodes)
        self._where: dict[JobId, Placement] = {}
        self._speed: dict[JobId, float] = {}
        self._ran: dict[JobId, tuple[float, float]] = {}

    def pass_time(self, seconds: float) -> None:
        for job_id, speed in self._speed.items():
            ran_s, done = self._ran.get(job_id, (0.0, 0.0))
            self._ran[job_id] = (ran_s + seconds, done + seconds * speed)

    def follow(self, runs: dict[JobId, JournalRun], nodes: dict[str, int]) -> None:
        """Update the placements; nodes that have left the cluster count as any other."""
        self._nodes.extend(Node(id=NodeId(name), devices=1) for name in list(nodes)[len(self._nodes) :])
        touched: set[int] = set()
        for job_id, run in runs.items():
            placement = run.placement if run.rate > 0 and contends(run.job) else None
            before = self._where.get(job_id)
            if placement == before:
                continue
            touched.update(slot.node for slot in (*(before or ()), *(placement or ())))
            self._servers.leave(job_id)
            self._where.pop(job_id, None)
            self._speed.pop(job_id, None)
            if placement is not None:
                self._where[job_id] = placement
                self._servers.enter(run.job, placement)
        for job_id in self._servers.beside(touched):
            self._speed[job_id] = self._servers.speed(job_id)

    def means(self) -> dict[JobId, float]:
        return {job_id: done / ran_s for job_id, (ran_s, done) in self._ran.items() if ran_s > 0}
