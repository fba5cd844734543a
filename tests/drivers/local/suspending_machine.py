"""A manager's attempts on a machine with stand-ins of GPUs, for tests of suspension."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from builders import job, node, on
from drivers.local.cuda_stand_in import UUIDS, CudaStandIn
from local_drivers import until
from rota.core.engine.driver import ExitDetail
from rota.core.messages.decisions import Cause
from rota.core.messages.events import (
    CheckpointChanged,
    Event,
)
from rota.core.model.job import Checkpoint, JobId
from rota.core.state.phases import Phase
from rota.drivers.local.attempt_controller import AttemptController
from rota.drivers.local.gpu.abilities import DiskWriter, GpuAbilities
from rota.drivers.local.gpu.host_memory import HostMemory
from rota.drivers.local.gpu.suspension import SuspendingAttempts
from rota.drivers.local.launch_order import LaunchOrder
from rota.drivers.local.settings import Settings
from rota.files.job import job_file, launch_of

JOB = JobId("1")
GIB = 2**30
LOST = Checkpoint(interval_s=math.inf, grace_s=0.5)


class Machine:
    """A manager's attempts on one node, what they answered, and the jobs as an engine would have them."""

    def __init__(
        self,
        home: Path,
        cuda: CudaStandIn,
        *,
        host_bytes: int = 64 * GIB,
        several: str | None = None,
        writer: DiskWriter | None = None,
    ) -> None:
        home.mkdir(exist_ok=True)
        self.home, self.cuda, self.is_closed = home, cuda, False
        self.answers: list[tuple[Event, ExitDetail]] = []
        self.jobs: dict[JobId, Any] = {}
        abilities = GpuAbilities(library=str(cuda.library), uuids=UUIDS, several=several, writer=writer)
        settings = Settings(home=home, nvml=str(cuda.folder), gpu=abilities)
        nodes = [node("n1", devices=2)]
        state: Any = SimpleNamespace(jobs=self.jobs)
        later = asyncio.get_running_loop().call_later
        self.attempts = SuspendingAttempts(
            settings, state, nodes, self._answered, later, HostMemory(lambda: host_bytes), cuda.free_bytes
        )
        self.inner = AttemptController(nodes, settings, self.attempts.answered, noticed=self.attempts.noticed)
        self.attempts.attach(self.inner)

    def _answered(self, event: Event, detail: ExitDetail) -> None:
        if isinstance(event, CheckpointChanged):
            self.jobs[event.job_id].job = event.job
        self.answers.append((event, detail))

    def order(self, run: str, name: str = "1", attempt: int = 1, device: int = 0, gpu_bytes: int = 0) -> LaunchOrder:
        file = job_file({"run": run or "true", "resources": {"gpus": 1}})
        wanted = job(name, checkpoint=LOST)
        wanted = replace(wanted, roles=tuple(replace(each, device_memory_bytes=gpu_bytes) for each in wanted.roles))
        self.jobs.setdefault(wanted.id, SimpleNamespace(job=wanted, phase=Phase.RUNNING))
        launch = replace(launch_of(file, wanted.id), grace_s=0.5)
        placement = tuple(slot._replace(devices=1 << device) for slot in on("n1", 1))
        return LaunchOrder(
            job=self.jobs[wanted.id].job, launch=launch, placement=placement, attempt=attempt, failures=0, work_s=0.0
        )

    def events(self, kind: type[Any]) -> list[Any]:
        return [event for event, _ in self.answers if isinstance(event, kind)]

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.attempts.close()

    def can_resume(self, name: str = "1") -> bool:
        return bool(self.jobs[JobId(name)].job.checkpoint.interval_s == 0)


def course(tmp_path: Path, run: Callable[[Machine], Awaitable[None]], **options: Any) -> CudaStandIn:
    """Run a course of events; the tasks end with it."""
    cuda = CudaStandIn(tmp_path / "cuda", gpus=2)

    async def main() -> None:
        machine = Machine(tmp_path / "home", cuda, **options)
        machine.attempts.settle()
        try:
            await run(machine)
        finally:
            for job_id in list(machine.jobs):
                machine.attempts.stop(job_id, Cause.CANCELLED)
            await until(lambda: not any(machine.inner.attempt(job_id) for job_id in machine.jobs))
            machine.close()

    asyncio.run(main())
    return cuda


def steps(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []
