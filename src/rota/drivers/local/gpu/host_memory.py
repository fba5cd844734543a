"""Books of the host memory that takes up the GPU memory of suspended jobs.

A running job counts as suspendable only while memory for it is booked, so that what the engine relies on can be done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from rota.core.model.job import JobId

KEPT_FREE = 0.05
"""The part of the host's memory that is not booked."""
MARGIN = 1.02
"""Host memory for each byte of GPU memory: the driver keeps a little beside the copy."""


def available_bytes() -> int:
    """Return the memory that processes of this machine can still take, within the limit of the manager's cgroup."""
    fields: dict[str, int] = {}
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        name, _, amount = line.partition(":")
        fields[name] = int(amount.split()[0]) * 1024
    free = fields.get("MemAvailable", 0) - int(fields.get("MemTotal", 0) * KEPT_FREE)
    folder = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):
        limit = int((folder / "memory.max").read_text())
        free = min(free, limit - int((folder / "memory.current").read_text()))
    return max(free, 0)


class HostMemory:
    """Which job has how much booked. What a suspended job holds is in use, and no longer only booked."""

    def __init__(self, available: Callable[[], int] = available_bytes) -> None:
        self._available = available
        self._booked: dict[JobId, int] = {}
        self._held: dict[JobId, int] = {}

    def __contains__(self, job_id: JobId) -> bool:
        return job_id in self._booked or job_id in self._held

    @property
    def held_bytes(self) -> int:
        """What suspended jobs hold."""
        return sum(self._held.values())

    def free_bytes(self) -> int:
        """Return what can still be booked."""
        return max(self._available() - sum(self._booked.values()), 0)

    def most_bytes(self, job_id: JobId) -> int:
        """Return the largest GPU memory of a job that the host can take now."""
        return int((self.free_bytes() + self._booked.get(job_id, 0)) / MARGIN) + 1

    def book(self, job_id: JobId, gpu_bytes: int) -> bool:
        """Book memory for a running job, more or less than before; return False, with nothing booked, if it lacks."""
        self._booked.pop(job_id, None)
        wanted = int(gpu_bytes * MARGIN)
        if wanted > self.free_bytes():
            return False
        self._booked[job_id] = wanted
        return True

    def hold(self, job_id: JobId, gpu_bytes: int = 0) -> None:
        """Take note that a job's GPU memory is on the host; `gpu_bytes`: if it may be more than was booked."""
        self._held[job_id] = max(self._booked.pop(job_id, 0), int(gpu_bytes * MARGIN))

    def return_to_gpu(self, job_id: JobId) -> None:
        """Take note that it is back on the GPU; the memory stays booked, so that it can be suspended again."""
        if job_id in self._held:
            self._booked[job_id] = self._held.pop(job_id)

    def release(self, job_id: JobId) -> None:
        """Forget a job."""
        self._booked.pop(job_id, None)
        self._held.pop(job_id, None)
