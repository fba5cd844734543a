"""What the engine is told about running jobs on GPUs: whether they can be suspended, and at what price."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from rota.core.engine.driver import ExitDetail
from rota.core.messages.events import CheckpointChanged, Event, NodeOccupied
from rota.core.model.job import Checkpoint, JobId, NodeId
from rota.core.state.state import State
from rota.drivers.local.gpu.copy_rates import LearnedRates
from rota.drivers.local.gpu.host_memory import HostMemory

GIB = 2**30


class SuspensionOffers:
    """Books host memory for running jobs, and tells the engine which of them can be suspended."""

    def __init__(
        self,
        state: State,
        node: NodeId,
        answer: Callable[[Event, ExitDetail], None],
        memory: HostMemory,
        rates: LearnedRates,
    ) -> None:
        self._state = state
        self._node = node
        self._answer = answer
        self._memory = memory
        self._rates = rates
        self.short: set[JobId] = set()
        """Running jobs for which host memory lacks."""
        self._refused: dict[JobId, str] = {}
        """Why running jobs can't be suspended, as the engine was told."""

    def book(self, job_id: JobId, gpu_bytes: int) -> bool:
        """Book host memory for a running job, and tell whether it can be suspended; return False if memory lacks."""
        if gpu_bytes and self._memory.book(job_id, gpu_bytes):
            self.short.discard(job_id)
            rates = self._rates.rates
            suspend_s, resume_s = rates.suspend_s(gpu_bytes), rates.resume_s(gpu_bytes)
            price = Checkpoint(interval_s=0.0, grace_s=suspend_s, suspend_s=suspend_s, resume_s=resume_s)
            self._tell(job_id, price)
            return True
        if not gpu_bytes:
            self._memory.release(job_id)
            self.withdraw(job_id, self._refused.get(job_id, ""))
            return True
        if job_id not in self.short:
            self.short.add(job_id)
            held, free = gpu_bytes / GIB, self._memory.free_bytes() / GIB
            why = f"its {held:.1f} GiB of GPU memory don't fit into the {free:.1f} GiB of free host memory"
            self._tell(job_id, Checkpoint(interval_s=math.inf, suspend_s=math.inf), why)
        return False

    def refuse(self, job_id: JobId, why: str) -> None:
        """Tell once why a job can't be suspended."""
        if self._refused.get(job_id) != why:
            self._refused[job_id] = why
            self.withdraw(job_id, why)

    def withdraw(self, job_id: JobId, why: str = "") -> None:
        """Tell that a job would start over."""
        self.short.discard(job_id)
        self._tell(job_id, None, why)

    def forget(self, job_id: JobId) -> None:
        """Forget a job that has ended."""
        self.short.discard(job_id)
        self._refused.pop(job_id, None)

    def hold(self, job_id: JobId, gpu_bytes: int) -> None:
        """Take note that a job's GPU memory is on the host, and tell it."""
        self._memory.hold(job_id, gpu_bytes)
        self.tell_memory()

    def tell_memory(self) -> None:
        """Tell how much of the node's memory suspended jobs hold."""
        self._answer(NodeOccupied(self._node, memory_bytes=self._memory.held_bytes), ExitDetail())

    def _tell(self, job_id: JobId, checkpoint: Checkpoint | None, why: str = "") -> None:
        live = self._state.jobs.get(job_id)
        if live is None or live.job.checkpoint is None:
            return
        wanted = checkpoint or replace(live.job.checkpoint, interval_s=math.inf, suspend_s=None, resume_s=None)
        self._answer(CheckpointChanged(job_id, replace(live.job, checkpoint=wanted)), ExitDetail(message=why))
