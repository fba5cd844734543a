"""Many clusters at once, interval by interval, as arrays: the training world of an agent.

Jobs end at the end of an interval; otherwise it is the world of the simulator. New jobs of an interval wait in order of
arrival; a job that does not fit is passed over and tried again in the next interval.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rota.core.model.job import WHOLE, Job
from rota.learn.fast_speeds import Floats, Ints, speeds
from rota.learn.workloads import CORES_PER_SERVER, GPUS_PER_SERVER, INTERVAL_S, KIND_NAMES, WorkloadShape, workload
from rota.traces.workload import Submission

SLOTS_PER_SERVER = 6
FREE = np.array([GPUS_PER_SERVER, CORES_PER_SERVER], np.float64)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that waits for placement."""

    kind: int
    counts: tuple[int, int]
    """Workers and parameter servers."""
    cores: tuple[float, float]
    devices: tuple[float, float]
    """Devices requested by each."""
    work_s: float

    @classmethod
    def of(cls, job: Job) -> Arrival:
        """Convert a job of one role, or of workers and parameter servers."""
        roles = job.roles
        second = roles[1] if len(roles) > 1 else None
        return cls(
            KIND_NAMES.index(str(job.model)),
            (roles[0].count, 0 if second is None else second.count),
            (roles[0].cpu_milli / WHOLE, 1.0 if second is None else second.cpu_milli / WHOLE),
            (roles[0].device_milli / WHOLE, 0.0),
            job.work or 0.0,
        )

    @property
    def needs(self) -> Floats:
        """Return devices and cores of a task, by role."""
        return np.array([self.devices, self.cores], np.float64).T

    @property
    def wanted(self) -> Floats:
        """Return devices and cores of all tasks together."""
        wanted: Floats = np.array(self.counts, np.float64) @ self.needs
        return wanted


class FastClusters:
    """State of all clusters; some may have fewer servers than others."""

    def __init__(self, shape: WorkloadShape, sizes: list[int], seed: str) -> None:
        self._shape = shape
        self._seed = seed
        self.sizes = np.array(sizes)
        self.servers = int(max(sizes))
        count, slots = len(sizes), SLOTS_PER_SERVER * self.servers
        self.open: NDArray[np.bool_] = np.arange(self.servers)[None] < self.sizes[:, None]
        self.kind: Ints = np.zeros((count, slots), np.int64)
        self.workers: Floats = np.zeros((count, slots, self.servers))
        self.parameter_servers: Floats = np.zeros((count, slots, self.servers))
        self.cores: Floats = np.ones((count, slots, 2))
        self.devices: Floats = np.zeros((count, slots))
        self.work_s: Floats = np.ones((count, slots))
        self.left_s: Floats = np.zeros((count, slots))
        self.speed: Floats = np.zeros((count, slots))
        self.now_s: Floats = np.zeros(count)
        self.waiting: list[deque[Arrival]] = [deque() for _ in sizes]
        self._coming = [self._stream(index) for index in range(count)]
        self._next: list[Submission] = [next(stream) for stream in self._coming]
        self.placed = 0

    def _stream(self, index: int) -> Iterator[Submission]:
        """Yield submissions of one workload after the other, without end."""
        shape = replace(self._shape, servers=int(self.sizes[index]))
        start_s, number = 0.0, 0
        while True:
            for submission in workload(shape, f"{self._seed}/{index}/{number}").submissions:
                yield replace(submission, submit_s=start_s + submission.submit_s)
            start_s += submission.submit_s
            number += 1

    @property
    def active(self) -> NDArray[np.bool_]:
        """Return which slots hold a job."""
        return self.left_s > 0

    def free(self) -> Floats:
        """Return free devices and cores by cluster and server; 0 on absent servers."""
        devices = FREE[0] - (self.workers * self.devices[..., None]).sum(1)
        cores = FREE[1] - (self.workers * self.cores[..., 0:1] + self.parameter_servers * self.cores[..., 1:2]).sum(1)
        return np.where(self.open[..., None], np.stack([devices, cores], axis=-1), -1.0)

    def observe(self) -> None:
        """Compute the speeds of all jobs at their present placement."""
        self.speed = speeds(self.kind, self.workers, self.parameter_servers, self.cores[..., 0], self.cores[..., 1])

    def advance(self) -> Floats:
        """Advance one interval: jobs progress, end and arrive. Return the progress of each cluster's jobs."""
        self.observe()
        done = np.minimum(self.speed * INTERVAL_S, self.left_s)
        progress: Floats = (done / self.work_s).sum(1)
        self.left_s -= done
        ended = (self.left_s <= 1e-6) & (done > 0)
        self.left_s[ended] = 0.0
        self.workers[ended] = 0.0
        self.parameter_servers[ended] = 0.0
        self.now_s += INTERVAL_S
        for index, queue in enumerate(self.waiting):
            while self._next[index].submit_s <= self.now_s[index]:
                queue.append(Arrival.of(self._next[index].job))
                self._next[index] = next(self._coming[index])
        return progress

    def place(self, index: int, arrival: Arrival, workers: Floats, parameter_servers: Floats) -> int:
        """Start a job; return its slot, -1 if there are too many jobs."""
        empty = np.flatnonzero(~self.active[index])
        if not len(empty):
            return -1
        slot = int(empty[0])
        self.kind[index, slot] = arrival.kind
        self.workers[index, slot] = workers
        self.parameter_servers[index, slot] = parameter_servers
        self.cores[index, slot] = arrival.cores
        self.devices[index, slot] = arrival.devices[0]
        self.work_s[index, slot] = self.left_s[index, slot] = max(arrival.work_s, 1.0)
        self.placed += 1
        return slot
