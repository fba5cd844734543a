"""Jobs that are suspended with their GPU memory on the host instead of stopped: real processes, a stand-in driver."""

from __future__ import annotations

import asyncio
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from drivers.local.suspending_machine import GIB, JOB, Machine, course, steps
from local_drivers import until
from rota.core.messages.decisions import Cause
from rota.core.messages.events import (
    CheckpointChanged,
    End,
    Interrupted,
    JobEnded,
    Moved,
    NodeOccupied,
    SpeedChanged,
    Started,
    Stopped,
)
from rota.core.model.job import JobId
from rota.core.state.phases import Phase

pytestmark = pytest.mark.slow


def test_preempted_job_goes_on_with_its_next_step(tmp_path: Path) -> None:
    log = tmp_path / "steps"

    async def run(machine: Machine) -> None:
        command = machine.cuda.training(log, steps=150)
        machine.attempts.start(machine.order(command))
        await until(machine.can_resume)
        for attempt in (2, 3):
            before = len(steps(log))
            await until(lambda: len(steps(log)) > before + 5)  # noqa: B023  # within this round
            machine.attempts.stop(JOB, Cause.PREEMPTED)
            await until(lambda: len(machine.events(Stopped)) == attempt - 1)  # noqa: B023
            assert machine.cuda.on_gpu() == []
            assert len(machine.cuda.on_host()) == 1
            assert machine.events(Stopped)[-1].work > 0
            made = steps(log)
            await asyncio.sleep(0.1)
            assert steps(log) == made, "it makes no steps without its memory"
            machine.attempts.start(machine.order(command, attempt=attempt))
            await until(lambda: len(machine.events(Started)) == attempt)  # noqa: B023
            assert len(machine.cuda.on_gpu()) == 1, "it has started when its memory is back"
        await until(lambda: machine.events(JobEnded))
        assert machine.events(JobEnded)[0].end is End.SUCCEEDED
        assert [event.memory_bytes > 0 for event in machine.events(NodeOccupied)] == [True, False] * 2

    course(tmp_path, run)

    assert steps(log) == list(range(150)), "each step was made once, in one process"


def test_without_host_memory_the_engine_is_not_told_that_it_can_resume(tmp_path: Path) -> None:
    async def run(machine: Machine) -> None:
        machine.attempts.start(machine.order(machine.cuda.training(tmp_path / "a", steps=2000, gpu_bytes=6 * GIB)))
        await until(machine.can_resume)
        second = machine.order(machine.cuda.training(tmp_path / "b", steps=2000, gpu_bytes=6 * GIB), "2")
        machine.attempts.start(second)
        await until(lambda: machine.inner.attempt(JobId("2")).tasks[0].swap_bytes)  # type: ignore[union-attr]
        assert not machine.can_resume("2"), "10 GiB are not enough for both"
        machine.attempts.stop(JOB, Cause.CANCELLED)
        await until(lambda: machine.can_resume("2"))

    course(tmp_path, run, host_bytes=10 * GIB)


@pytest.mark.parametrize("step", ["checkpoint", "restore"])
def test_failed_step_ends_the_job_with_the_reason(tmp_path: Path, step: str) -> None:
    async def run(machine: Machine) -> None:
        command = machine.cuda.training(tmp_path / "steps", steps=2000)
        machine.attempts.start(machine.order(command))
        await until(machine.can_resume)
        machine.cuda.refuse(step)
        machine.attempts.stop(JOB, Cause.PREEMPTED)
        if step == "restore":
            await until(lambda: machine.events(Stopped))
            machine.attempts.start(machine.order(command, attempt=2))
        await until(lambda: machine.events(Interrupted))
        detail = next(detail for event, detail in machine.answers if isinstance(event, Interrupted))
        assert step in detail.message
        assert "suspended or resumed" in detail.message

    course(tmp_path, run)


def test_refused_probe_leaves_the_job_as_it_was(tmp_path: Path) -> None:
    async def run(machine: Machine) -> None:
        machine.cuda.refuse("lock")
        machine.attempts.start(machine.order(machine.cuda.training(tmp_path / "steps", steps=40)))
        await until(lambda: machine.events(JobEnded))
        assert machine.events(JobEnded)[0].end is End.SUCCEEDED
        told = [event.job.checkpoint for event in machine.events(CheckpointChanged)]  # nothing, or that it starts over
        assert all(each is not None and (each.interval_s, each.suspend_s) == (math.inf, None) for each in told)

    course(tmp_path, run)


def test_cancelled_while_it_waits_suspended(tmp_path: Path) -> None:
    async def run(machine: Machine) -> None:
        machine.attempts.start(machine.order(machine.cuda.training(tmp_path / "steps", steps=2000)))
        await until(machine.can_resume)
        machine.attempts.stop(JOB, Cause.PREEMPTED)
        await until(lambda: machine.events(Stopped))
        (pid,) = machine.cuda.on_host()
        machine.jobs[JOB].phase = Phase.CANCELLED
        await until(lambda: not os.path.exists(f"/proc/{pid}"))
        assert machine.attempts.memory.held_bytes == 0

    course(tmp_path, run)


def test_killed_while_it_waits_suspended_it_starts_over(tmp_path: Path) -> None:
    log = tmp_path / "steps"

    async def run(machine: Machine) -> None:
        command = machine.cuda.training(log, steps=2000)
        machine.attempts.start(machine.order(command))
        await until(machine.can_resume)
        machine.attempts.stop(JOB, Cause.PREEMPTED)
        await until(lambda: machine.events(Stopped))
        (pid,) = machine.cuda.on_host()
        os.kill(pid, 9)  # as the kernel does for want of memory
        await until(lambda: not machine.can_resume())
        machine.attempts.start(machine.order(command, attempt=2))
        await until(lambda: len(machine.events(Started)) == 2)
        assert machine.events(SpeedChanged)[-1].work == 0.0
        await until(lambda: steps(log).count(0) == 2)

    course(tmp_path, run)


def test_manager_that_restarts_finds_suspended_jobs_and_continues_what_it_ordered(tmp_path: Path) -> None:
    log = tmp_path / "steps"

    async def run(machine: Machine) -> None:
        command = machine.cuda.training(log, steps=200)
        machine.attempts.start(machine.order(command))
        await until(machine.can_resume)
        machine.attempts.stop(JOB, Cause.PREEMPTED)
        machine.close()  # while it is being suspended
        second = Machine(machine.home, machine.cuda)
        second.jobs |= machine.jobs
        leaving = second.order(command)
        second.attempts.find(leaving, Cause.PREEMPTED)
        second.attempts.settle()
        second.attempts.stop(JOB, Cause.PREEMPTED)
        await until(lambda: second.events(Stopped))
        second.close()
        third = Machine(machine.home, machine.cuda)
        third.jobs |= machine.jobs
        third.attempts.find_held(replace(third.order(command), placement=()))
        third.attempts.settle()
        third.attempts.start(third.order(command, attempt=2, device=1))
        third.close()  # while it is being resumed
        fourth = Machine(machine.home, machine.cuda)
        fourth.jobs |= machine.jobs
        fourth.attempts.start(fourth.order(command, attempt=2, device=1))
        fourth.attempts.settle()
        await until(lambda: fourth.events(Started))
        await until(lambda: fourth.events(JobEnded))
        assert fourth.events(JobEnded)[0].end is End.SUCCEEDED
        fourth.close()
        machine.jobs.clear()

    course(tmp_path, run)

    assert steps(log) == list(range(200))


def test_manager_that_restarts_reports_the_end_of_a_job_that_it_was_resuming(tmp_path: Path) -> None:
    """The job goes on and ends while no manager runs; one that starts must not wait for its answer."""
    log = tmp_path / "steps"

    async def run(machine: Machine) -> None:
        command = machine.cuda.training(log, steps=200)
        machine.attempts.start(machine.order(command))
        await until(machine.can_resume)
        machine.attempts.stop(JOB, Cause.PREEMPTED)
        await until(lambda: machine.events(Stopped))
        machine.attempts.start(machine.order(command, attempt=2, device=1))
        machine.close()
        state = machine.home / "runs" / JOB / "1" / "0" / "state.json"
        await until(lambda: json.loads(state.read_text())["phase"] == "ended")
        second = Machine(machine.home, machine.cuda)
        second.jobs |= machine.jobs
        second.attempts.start(second.order(command, attempt=2, device=1))
        second.attempts.settle()
        await until(lambda: second.events(JobEnded))
        assert second.events(JobEnded)[0].end is End.SUCCEEDED
        assert second.attempts.memory.held_bytes == 0
        second.close()
        machine.jobs.clear()

    course(tmp_path, run)

    assert steps(log) == list(range(200))


def test_moved_job_takes_its_memory_along_and_loses_no_step(tmp_path: Path) -> None:
    log = tmp_path / "steps"

    async def run(machine: Machine) -> None:
        command = machine.cuda.training(log, steps=150)
        machine.attempts.start(machine.order(command))
        await until(machine.can_resume)
        before = machine.order(command).placement
        order = replace(machine.order(command, attempt=2, device=1), resizes=True, moves=True)
        machine.attempts.resize(order, before)
        await until(lambda: machine.events(Moved))
        assert machine.events(Moved)[0].work > 0
        assert len(machine.cuda.on_gpu()) == 1
        state = machine.inner.attempt(JOB)
        assert state is not None
        assert state.placement == order.placement
        await until(lambda: machine.events(JobEnded))

    cuda = course(tmp_path, run)

    assert steps(log) == list(range(150)), "each step was made once, in one process"
    assert cuda.moved() == [(0, 1)], "the driver was told which GPU takes whose place"


@pytest.mark.parametrize("several", [None, "the driver 580 suspends one process of a job only"])
def test_several_processes_are_suspended_together_or_refused_by_name(tmp_path: Path, several: str | None) -> None:
    async def run(machine: Machine) -> None:
        one = machine.cuda.training(tmp_path / "a", steps=300).removeprefix("exec ")
        other = machine.cuda.training(tmp_path / "b", steps=300).removeprefix("exec ")
        machine.attempts.start(machine.order(f"{one} & {other} & wait"))
        await until(lambda: len(machine.cuda.on_gpu()) == 2)
        if several is not None:
            await until(lambda: any(several in detail.message for _, detail in machine.answers))
            assert not machine.can_resume()
            return
        await until(machine.can_resume)
        machine.attempts.stop(JOB, Cause.PREEMPTED)
        await until(lambda: machine.events(Stopped))
        assert (machine.cuda.on_gpu(), len(machine.cuda.on_host())) == ([], 2)
        machine.attempts.start(machine.order("", attempt=2))
        await until(lambda: machine.events(JobEnded))
        assert machine.events(JobEnded)[0].end is End.SUCCEEDED

    course(tmp_path, run, several=several)

    if several is None:
        assert steps(tmp_path / "a") == steps(tmp_path / "b") == list(range(300))


def test_process_that_came_after_the_last_sample_leaves_the_gpu_with_the_others(tmp_path: Path) -> None:
    go = tmp_path / "go"

    async def run(machine: Machine) -> None:
        one, other = (
            machine.cuda.training(tmp_path / name, steps=300, gpu_bytes=size * GIB).removeprefix("exec ")
            for name, size in (("a", 1), ("b", 2))
        )
        machine.attempts.start(machine.order(f"{one} & until [ -e {go} ]; do sleep 0.01; done; {other} & wait"))
        await until(machine.can_resume)
        assert len(machine.cuda.on_gpu()) == 1
        go.touch()
        await until(lambda: len(machine.cuda.on_gpu()) == 2 and machine.cuda.free_bytes([0]) == 13 * GIB)
        machine.attempts.stop(JOB, Cause.PREEMPTED)
        await until(lambda: machine.events(Stopped))
        assert (machine.cuda.on_gpu(), len(machine.cuda.on_host())) == ([], 2)
        assert machine.attempts.memory.held_bytes >= 3 * GIB, "what both held is counted"
        machine.attempts.start(machine.order("", attempt=2))
        await until(lambda: machine.events(JobEnded))

    course(tmp_path, run)

    assert steps(tmp_path / "a") == steps(tmp_path / "b") == list(range(300))
