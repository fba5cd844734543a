"""Room in GPU memory for a job that comes, while jobs that were suspended beside it may still hold some.

A job that is suspended so that others get its turn keeps its GPU memory as long as all fit together: a switch then
costs nothing. Where they don't fit, what is suspended makes room first, and the job that comes waits for that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from rota.core.model.job import JobId
from rota.core.model.placement import Placement, device_indexes
from rota.drivers.local.attempt import Attempt
from rota.drivers.local.launch_order import LaunchOrder
from rota.drivers.local.task_runner.nvml import Nvml, find_nvml

log = logging.getLogger("rota.drivers.local")
SPARE_BYTES = 256 << 20
"""GPU memory that is left free beside what a job is known to need."""

FreeOnGpus = Callable[[Sequence[int]], "int | None"]
"""For some GPUs the least memory that is free on any of them; None where that is not known."""


class GpuRoom:
    """How much memory GPUs have free, by NVML."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._nvml: Nvml | None = None

    def free_bytes(self, devices: Sequence[int]) -> int | None:
        """Return the least that is free on any of these GPUs; None where that is not known."""
        if self._nvml is None:
            self._nvml = find_nvml(None, self._folder)
        if self._nvml is None or not devices or max(devices) >= len(self._nvml):
            return None
        readings, totals = self._nvml.look(), self._nvml.totals()
        if not readings:
            return None
        return min(totals[device] - readings[device].memory_bytes for device in devices)


def who_leaves(free_bytes: int | None, need_bytes: int | None, residents: dict[JobId, int]) -> list[JobId]:
    """Return which suspended jobs must leave GPU memory for one that needs so much, the largest first.

    None as its need means that it is not known: then all leave. So do they if it is not known what is free.
    """
    if need_bytes == 0:
        return []
    leaving: list[JobId] = []
    for job_id in sorted(residents, key=lambda each: (-residents[each], each)):
        if free_bytes is not None and need_bytes is not None and free_bytes >= need_bytes + SPARE_BYTES:
            break
        leaving.append(job_id)
        free_bytes = None if free_bytes is None else free_bytes + residents[job_id]
    return leaving


def needs_room(attempt: Attempt) -> bool:
    """Return whether a suspended attempt will need GPU memory that it does not hold: it is on the host, or it was
    suspended before it opened its GPUs."""
    return any(task.is_on_host or not (task.swap_bytes or task.swap_refused) for task in attempt.tasks)


def asked_bytes(order: LaunchOrder) -> int | None:
    """Return the GPU memory that a job asked for; None where that is not known.

    Nor is it for one that has failed: it may have been for want of memory.
    """
    if order.failures:
        return None
    return max((order.job.roles[slot.role].device_memory_bytes for slot in order.placement), default=0) or None


class Residency:
    """Suspended jobs that still hold GPU memory, and jobs that come as soon as such jobs have made room."""

    def __init__(
        self,
        free_on_gpus: FreeOnGpus,
        gpu_bytes: Mapping[JobId, int],
        attempt_of: Callable[[JobId], Attempt | None],
        make_room: Callable[[JobId], None],
    ) -> None:
        self._free_on_gpus = free_on_gpus
        self._gpu_bytes = gpu_bytes
        self._attempt_of = attempt_of
        self._make_room = make_room
        self._waiting: dict[JobId, tuple[set[JobId], Callable[[], None]]] = {}
        self._deferred: dict[JobId, Callable[[], None]] | None = {}
        """What waits until all jobs were found after a start of the manager; None once they were."""

    def settle(self) -> None:
        """All jobs were found: let come what waited for that."""
        deferred, self._deferred = self._deferred or {}, None
        for start in deferred.values():
            start()

    def come(self, job_id: JobId, placement: Placement, need_bytes: int | None, come: Callable[[], None]) -> None:
        """Let a job come to its devices, once jobs that are suspended there have made room."""
        if self._deferred is not None:
            self._deferred[job_id] = lambda: self.come(job_id, placement, need_bytes, come)
            return
        devices = [index for slot in placement for index in device_indexes(slot.devices)]
        residents = self._residents(job_id, set(devices))
        leaving = who_leaves(self._free_on_gpus(devices), need_bytes, residents) if residents else []
        if not leaving:
            come()
            return
        self._waiting[job_id] = (set(leaving), come)
        log.info("a job waits for GPU memory", extra={"job": job_id, "why": f"held by {', '.join(leaving)}"})
        for each in leaving:
            self._make_room(each)

    def is_leaving(self, job_id: JobId) -> bool:
        """Return whether a job waits for this one to leave."""
        return any(job_id in leaving for leaving, _ in self._waiting.values())

    def left(self, job_id: JobId) -> None:
        """Take note that a job has left GPU memory; let come what waited for it."""
        for each, (leaving, come) in list(self._waiting.items()):
            leaving.discard(job_id)
            if not leaving and each in self._waiting:
                del self._waiting[each]
                come()

    def ended(self, job_id: JobId) -> None:
        """Take note that a job has ended; nor does it come any more, if it waited to."""
        self._waiting.pop(job_id, None)
        if self._deferred is not None:
            self._deferred.pop(job_id, None)
        self.left(job_id)

    def come_now(self, job_id: JobId) -> None:
        """Let a job come at once, if it waits: it is to be stopped."""
        if job_id in self._waiting:
            self._waiting.pop(job_id)[1]()

    def crowds(self, attempt: Attempt) -> bool:
        """Return whether jobs that are suspended hold memory of an attempt's GPUs."""
        devices = {index for slot in attempt.placement for index in device_indexes(slot.devices)}
        return bool(self._residents(attempt.job.id, devices))

    def _residents(self, but: JobId, devices: set[int]) -> dict[JobId, int]:
        """Return the suspended jobs that still hold memory of some GPUs, and how much."""
        found: dict[JobId, int] = {}
        for job_id, held in self._gpu_bytes.items():
            attempt = self._attempt_of(job_id)
            if job_id == but or attempt is None or not held or not attempt.rests or attempt.tasks[0].is_on_host:
                continue
            if devices & {index for slot in attempt.placement for index in device_indexes(slot.devices)}:
                found[job_id] = held
        return found
