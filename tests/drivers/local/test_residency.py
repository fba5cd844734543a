"""Room in GPU memory for a job that comes, while suspended jobs still hold some: real processes, a stand-in driver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from drivers.local.suspending_machine import GIB, JOB, Machine, course
from local_drivers import until
from rota.core.messages.decisions import Cause
from rota.core.messages.events import (
    Interrupted,
    JobEnded,
    Resumed,
    Started,
    Suspended,
)
from rota.core.model.job import JobId

pytestmark = pytest.mark.slow


async def suspended(machine: Machine, log: Path) -> str:
    """A job with 6 GiB that is suspended for another one's turn; its memory stays on the GPU. Return its command."""
    command = machine.cuda.training(log, steps=2000, gpu_bytes=6 * GIB)
    machine.attempts.start(machine.order(command))
    await until(machine.can_resume)
    machine.attempts.suspend(JOB)
    await until(lambda: any(event.job_id == JOB for event in machine.events(Suspended)))
    return command


def test_after_a_restart_suspended_jobs_still_make_room(tmp_path: Path) -> None:
    async def run(machine: Machine) -> None:
        command = await suspended(machine, tmp_path / "a")
        machine.close()
        second = Machine(machine.home, machine.cuda)
        second.jobs |= machine.jobs
        second.attempts.find(second.order(command))
        second.attempts.settle()
        assert len(machine.cuda.on_gpu()) == 1
        large = machine.cuda.training(tmp_path / "b", steps=20, gpu_bytes=12 * GIB)
        second.attempts.start(second.order(large, "2", gpu_bytes=12 * GIB))
        await until(lambda: second.events(Started))
        assert len(machine.cuda.on_host()) == 1, "it has left before the other came"
        second.attempts.stop(JOB, Cause.CANCELLED)
        await until(lambda: not any(second.inner.attempt(JobId(name)) for name in "12"))
        second.close()
        machine.jobs.clear()

    course(tmp_path, run)


def test_suspended_jobs_stay_in_gpu_memory_as_long_as_there_is_room(tmp_path: Path) -> None:
    async def run(machine: Machine) -> None:
        await suspended(machine, tmp_path / "a")
        assert len(machine.cuda.on_gpu()) == 1, "nothing needs its room yet"
        for name, gib, stays in (("2", 4, True), ("3", 12, False)):
            training = machine.cuda.training(tmp_path / name, steps=2000, gpu_bytes=gib * GIB)
            machine.attempts.start(machine.order(training, name, gpu_bytes=gib * GIB))
            await until(lambda: any(event.job_id == name for event in machine.events(Started)))  # noqa: B023
            assert bool(machine.cuda.on_host()) is not stays
            machine.attempts.stop(JobId(name), Cause.CANCELLED)
            await until(lambda: machine.inner.attempt(JobId(name)) is None)  # noqa: B023
        assert machine.attempts.memory.held_bytes >= 6 * GIB
        machine.attempts.resume(JOB)
        await until(lambda: machine.events(Resumed))
        assert len(machine.cuda.on_gpu()) == 1
        assert machine.attempts.memory.held_bytes == 0

    course(tmp_path, run)


def test_job_suspended_before_it_opened_its_gpu_gets_room_when_it_is_resumed(tmp_path: Path) -> None:
    async def run(machine: Machine) -> None:
        training = machine.cuda.training(tmp_path / "late", steps=2000, gpu_bytes=12 * GIB)
        machine.attempts.start(machine.order(f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; {training}", "2"))
        await until(lambda: machine.events(Started))
        machine.attempts.suspend(JobId("2"))
        await until(lambda: machine.events(Suspended))
        await suspended(machine, tmp_path / "first")
        assert len(machine.cuda.on_gpu()) == 1
        machine.attempts.resume(JobId("2"))
        (tmp_path / "go").touch()
        await until(lambda: machine.events(Resumed))
        assert len(machine.cuda.on_host()) == 1, "nobody knows how much it will take"

    course(tmp_path, run)


def test_out_of_memory_beside_suspended_jobs_is_tried_again_without_them(tmp_path: Path) -> None:
    async def run(machine: Machine) -> None:
        await suspended(machine, tmp_path / "a")
        order = machine.order("echo torch.OutOfMemoryError: CUDA out of memory. >&2; exit 1", "2", gpu_bytes=GIB)
        machine.attempts.start(order)
        await until(lambda: machine.events(Interrupted))
        assert "beside suspended jobs" in machine.answers[-1][1].message
        assert len(machine.cuda.on_gpu()) == 1
        machine.attempts.start(replace(order, attempt=2, failures=1))
        await until(lambda: machine.events(JobEnded))
        assert (len(machine.cuda.on_host()), machine.answers[-1][1].failure) == (1, "gpu-out-of-memory")

    course(tmp_path, run)
