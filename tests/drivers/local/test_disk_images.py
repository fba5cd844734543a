"""Suspended jobs on disk: by CRIU where it is installed and works, else by a stand-in; the processes are real."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from drivers.local.criu_stand_in import CriuStandIn
from drivers.local.suspending_machine import JOB, Machine, course, steps
from local_drivers import until
from rota.core.errors import RotaError
from rota.core.messages.decisions import Cause
from rota.core.messages.events import End, Interrupted, JobEnded, Started, Stopped
from rota.core.state.phases import Phase
from rota.drivers.local.gpu import suspension
from rota.drivers.local.gpu.abilities import DiskWriter, disk_writer

pytestmark = pytest.mark.slow
STEPS = 300


@pytest.fixture
def criu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CriuStandIn:
    if os.geteuid() != 0:
        pytest.skip("a process gets its former number back by root only")
    monkeypatch.setattr(suspension, "LOOK_S", 0.05)
    return CriuStandIn(tmp_path / "criu")


def image(machine: Machine) -> Path:
    return machine.home / "runs" / JOB / "1" / "0" / "image"


def is_on_disk(machine: Machine) -> bool:
    return image(machine).with_name("disk.json").exists() and machine.inner.attempt(JOB) is None


async def suspended(machine: Machine, command: str) -> int:
    """Start a job and preempt it; return its process."""
    machine.attempts.start(machine.order(command))
    await until(machine.can_resume)
    machine.attempts.stop(JOB, Cause.PREEMPTED)
    await until(lambda: machine.events(Stopped))
    return machine.cuda.on_host()[0]


async def ends_well(machine: Machine) -> None:
    await until(lambda: machine.events(JobEnded))
    assert machine.events(JobEnded)[0].end is End.SUCCEEDED


def writer(criu: CriuStandIn, after_s: float = 0.0) -> DiskWriter:
    return DiskWriter(program=str(criu.program), after_s=after_s)


def disk_course(tmp_path: Path, found: DiskWriter, *, continues: bool) -> None:
    """A job goes to disk, the manager restarts, and the job goes on."""
    log = tmp_path / "steps"

    async def run(machine: Machine) -> None:
        command = machine.cuda.training(log, steps=STEPS, continues=continues)
        pid = await suspended(machine, f"echo begins; {command}")
        await until(lambda: is_on_disk(machine))
        assert not os.path.exists(f"/proc/{pid}")
        await until(lambda: machine.attempts.memory.held_bytes == 0)
        assert machine.events(Interrupted) == machine.events(JobEnded) == []
        machine.close()
        second = Machine(machine.home, machine.cuda, writer=found)
        second.jobs.update(machine.jobs)
        second.attempts.find_held(second.order(command))
        second.attempts.settle()
        second.attempts.start(second.order(command, attempt=2))
        await until(lambda: second.events(Started))
        assert machine.cuda.on_gpu() == [pid], "the same process, with its memory"
        await ends_well(second)
        assert second.events(JobEnded)[0].work > 0
        assert not image(machine).exists()
        second.close()

    cuda = course(tmp_path, run, writer=found)

    assert steps(log) == list(range(STEPS)), "each step was made once"
    assert (cuda.on_gpu(), cuda.on_host()) == ([], [])
    assert (tmp_path / "home/runs/1/1/0/output-000000000000000.log").read_text() == "begins\n"


def test_job_goes_to_disk_after_a_time_and_on_after_a_restart(tmp_path: Path, criu: CriuStandIn) -> None:
    disk_course(tmp_path, writer(criu), continues=True)


def test_the_same_by_criu_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspension, "LOOK_S", 0.05)
    try:
        found = disk_writer(0.0)
    except RotaError as error:
        pytest.skip(str(error))
    disk_course(tmp_path, found, continues=False)


def test_job_whose_turn_comes_while_it_is_written_goes_on_from_memory(tmp_path: Path, criu: CriuStandIn) -> None:
    log = tmp_path / "steps"
    criu.slow_down(0.5)

    async def run(machine: Machine) -> None:
        command = machine.cuda.training(log, steps=STEPS)  # started again, it would begin with step 0
        pid = await suspended(machine, command)
        await until(image(machine).exists)
        machine.attempts.start(machine.order(command, attempt=2))
        await until(lambda: len(machine.events(Started)) == 2)
        assert machine.cuda.on_gpu() == [pid]
        assert not image(machine).exists()
        await ends_well(machine)

    course(tmp_path, run, writer=writer(criu))
    assert steps(log) == list(range(STEPS))


def test_job_whose_turn_comes_just_after_it_was_written_is_restored(tmp_path: Path, criu: CriuStandIn) -> None:
    log = tmp_path / "steps"

    async def run(machine: Machine) -> None:
        command = machine.cuda.training(log, steps=STEPS, continues=True)
        await suspended(machine, command)
        while not image(machine).with_name("disk.json").exists():
            await asyncio.sleep(0.001)
        machine.attempts.start(machine.order(command, attempt=2))
        await until(lambda: len(machine.events(Started)) == 2)
        await ends_well(machine)
        assert machine.events(Interrupted) == []

    course(tmp_path, run, writer=writer(criu))
    assert steps(log) == list(range(STEPS))


def test_manager_that_ended_before_it_restored_a_job_restores_it_later(tmp_path: Path, criu: CriuStandIn) -> None:
    log = tmp_path / "steps"

    async def run(machine: Machine) -> None:
        command = machine.cuda.training(log, steps=STEPS, continues=True)
        await suspended(machine, command)
        await until(lambda: is_on_disk(machine))
        machine.close()
        os.symlink("1", machine.home / "runs" / JOB / "2")
        second = Machine(machine.home, machine.cuda, writer=writer(criu))
        second.jobs.update(machine.jobs)
        second.attempts.start(second.order(command, attempt=2))
        second.attempts.settle()
        await ends_well(second)
        second.close()

    course(tmp_path, run, writer=writer(criu))
    assert steps(log) == list(range(STEPS))


def test_failed_restoration_starts_the_job_over_with_the_reason(tmp_path: Path, criu: CriuStandIn) -> None:
    async def run(machine: Machine) -> None:
        command = machine.cuda.training(tmp_path / "steps", steps=STEPS)
        await suspended(machine, command)
        await until(lambda: is_on_disk(machine))
        criu.fail("restore")
        machine.attempts.start(machine.order(command, attempt=2))
        await until(lambda: machine.events(Interrupted))
        (detail,) = [detail for event, detail in machine.answers if isinstance(event, Interrupted)]
        assert machine.events(Interrupted)[0].work == 0
        assert "restoring it from disk failed: inet: Connected TCP socket" in detail.message
        assert not image(machine).exists()
        assert machine.attempts.memory.held_bytes == 0

    course(tmp_path, run, writer=writer(criu))


def test_what_criu_refuses_stays_in_memory_and_is_told_once(
    tmp_path: Path, criu: CriuStandIn, caplog: pytest.LogCaptureFixture
) -> None:
    criu.fail("dump")
    log = tmp_path / "steps"

    def told() -> list[Any]:
        return [each for each in caplog.records if "can't be written to disk" in each.message]

    async def run(machine: Machine) -> None:
        command = machine.cuda.training(log, steps=STEPS)
        pid = await suspended(machine, command)
        await until(lambda: told())
        await asyncio.sleep(0.3)
        assert machine.cuda.on_host() == [pid]
        machine.attempts.start(machine.order(command, attempt=2))
        await ends_well(machine)

    with caplog.at_level(logging.WARNING):
        course(tmp_path, run, writer=writer(criu))
    assert [each.why for each in told()] == ["inet: Connected TCP socket"]
    assert steps(log) == list(range(STEPS))


def test_job_that_is_cancelled_on_disk_leaves_nothing(tmp_path: Path, criu: CriuStandIn) -> None:
    async def run(machine: Machine) -> None:
        await suspended(machine, machine.cuda.training(tmp_path / "steps", steps=STEPS))
        await until(lambda: is_on_disk(machine))
        machine.jobs[JOB].phase = Phase.CANCELLED
        await until(lambda: not image(machine).exists())

    course(tmp_path, run, writer=writer(criu))


def test_why_nothing_can_be_written_to_disk_is_told_by_name(
    tmp_path: Path, criu: CriuStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RotaError, match="criu is not installed"):
        disk_writer(60.0)
    monkeypatch.setenv("PATH", f"{criu.program.parent}{os.pathsep}{os.defpath}")
    assert disk_writer(60.0) == DiskWriter(program=shutil.which("criu") or "", after_s=60.0)
    criu.refuse("the kernel has no rseq")
    with pytest.raises(RotaError, match=r"`criu check` refuses this machine: .*the kernel has no rseq"):
        disk_writer(60.0)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(RotaError, match="needs root"):
        disk_writer(60.0)
