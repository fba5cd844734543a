"""2D-LAS as the authors' simulator has it, job by job over plain lists: slow, and easy to compare with its description.

At every event, jobs that reached their limit go to the end of the next queue, the cluster is cleared, the queues are
walked in order, and each list is partitioned: running jobs first, both parts in order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class ListedJob:
    """A job of the reference: its work in seconds on all of its devices."""

    name: str
    submit_s: float
    gpus: int
    work_s: float
    run_s: float = 0.0
    queue: int = 0
    runs: bool = False
    preemptions: int = 0
    end_s: float = math.nan


@dataclass(slots=True)
class ListedLas:
    """The queues, and what happened. With `late_demotion`, the next event is computed as the published code does."""

    devices: int
    limits: tuple[float, ...] = (3250.0, 7200.0)
    late_demotion: bool = False
    now_s: float = 0.0
    queues: list[list[ListedJob]] = field(default_factory=list)

    def run(self, jobs: Sequence[ListedJob]) -> None:
        """Run all jobs to their end."""
        self.queues = [[] for _ in range(len(self.limits) + 1)]
        coming = sorted(jobs, key=lambda job: job.submit_s)[::-1]
        while coming or any(self.queues):
            self._pass_to(min(coming[-1].submit_s if coming else math.inf, self._next_s()))
            self._end()
            while coming and coming[-1].submit_s <= self.now_s:
                self.queues[0].append(coming.pop())
            self._demote()
            self._walk()

    def _running(self) -> list[ListedJob]:
        return [job for queue in self.queues for job in queue if job.runs]

    def _next_s(self) -> float:
        moments = []
        for job in self._running():
            moments.append(self.now_s + job.work_s - job.run_s)
            if job.queue < len(self.limits):
                if self.late_demotion:
                    left_s: float = math.floor((self.limits[job.queue] - job.run_s) / job.gpus)
                else:
                    left_s = (self.limits[job.queue] - job.run_s * job.gpus) / job.gpus
                if left_s > 0:
                    moments.append(self.now_s + left_s)
        return min(moments, default=math.inf)

    def _pass_to(self, until_s: float) -> None:
        for job in self._running():
            job.run_s += until_s - self.now_s
        self.now_s = until_s

    def _end(self) -> None:
        for queue in self.queues:
            for job in [job for job in queue if job.runs and job.run_s >= job.work_s - 1e-9]:
                job.end_s = self.now_s
                queue.remove(job)

    def _demote(self) -> None:
        for at, limit in enumerate(self.limits):
            reached = [job for job in self.queues[at] if job.runs and job.queue == at]
            for job in [job for job in reached if job.run_s * job.gpus >= limit - 1e-6]:
                self.queues[at].remove(job)
                self.queues[at + 1].append(job)
        for at, queue in enumerate(self.queues):
            for job in queue:
                job.queue = at

    def _walk(self) -> None:
        free = self.devices
        for at, queue in enumerate(self.queues):
            for job in queue:
                fits = job.gpus <= free
                free -= job.gpus if fits else 0
                job.preemptions += job.runs and not fits
                job.runs = fits
            self.queues[at] = [job for job in queue if job.runs] + [job for job in queue if not job.runs]
