"""Real processes that are suspended, resumed and moved; what they did is counted by themselves and by the kernel."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from builders import on
from local_drivers import Bench, until, with_driver
from rota.core.messages.decisions import Cause
from rota.core.messages.events import JobEnded, Moved, Resumed, Started, Stopped, Suspended
from rota.core.model.job import JobId
from rota.core.model.placement import in_turn
from rota.drivers.local.task_runner.processes import start_time

pytestmark = pytest.mark.slow
JOB = JobId("1")
WATCH_S = 9.0
"""Thirty turns."""
COUNT = (
    f'exec {sys.executable} -S -c "import itertools\n'
    "for n in itertools.count():\n"
    "    if n % 1000 == 0: open('count', 'w').write(str(n))\""
)
"""Counts as fast as it can, in its own folder, for ever."""


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def kernel_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_suspended_task_uses_no_time_and_goes_on_where_it_was(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        bench.driver.start(bench.order(COUNT))
        await until(lambda: bench.events(Started))
        pid = bench.state()["pid"]
        await until(lambda: cpu_ticks(pid) >= 10)
        bench.driver.suspend(JOB)
        await until(lambda: bench.events(Suspended))
        assert kernel_state(pid) == "T"
        spent = cpu_ticks(pid)
        rested_from_s = bench.state()["rests_since_s"]
        clock = os.times().elapsed
        await until(lambda: os.times().elapsed > clock + 0.5)
        assert cpu_ticks(pid) == spent
        bench.driver.resume(JOB)
        await until(lambda: bench.events(Resumed))
        await until(lambda: cpu_ticks(pid) >= spent + 10)
        assert bench.state()["pid"] == pid
        assert bench.state()["rested_s"] >= 0.5
        (event,) = bench.events(Suspended)
        assert isinstance(event, Suspended)
        assert event.work == pytest.approx(rested_from_s - bench.state()["started_s"], abs=0.2)
        bench.driver.stop(JOB, Cause.CANCELLED)
        await until(lambda: bench.events(Stopped))

    with_driver(tmp_path, course)


def test_all_that_a_task_started_rests_with_it(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        bench.driver.start(bench.order("setsid sh -c 'while :; do :; done' & while :; do :; done"))
        await until(lambda: bench.events(Started))
        pid = bench.state()["pid"]
        await until(lambda: children(pid))
        (child,) = children(pid)
        bench.driver.suspend(JOB)
        await until(lambda: bench.events(Suspended))
        # The signal is sent; a process that computes on another core hears it a moment later.
        await until(lambda: (kernel_state(pid), kernel_state(child)) == ("T", "T"))
        bench.driver.stop(JOB, Cause.CANCELLED)
        await until(lambda: bench.events(Stopped))
        assert start_time(child) == 0

    with_driver(tmp_path, course)


def test_suspended_task_that_is_stopped_hears_the_signal_and_can_save(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        save = f"trap 'echo saved > {tmp_path}/saved; exit 0' TERM; touch {tmp_path}/ready"
        bench.driver.start(bench.order(f"{save}; while :; do sleep 0.01; done"))
        await until((tmp_path / "ready").exists)
        await until(lambda: bench.events(Started))
        bench.driver.suspend(JOB)
        await until(lambda: bench.events(Suspended))
        bench.driver.stop(JOB, Cause.PREEMPTED)
        await until(lambda: bench.events(Stopped))
        assert (tmp_path / "saved").read_text() == "saved\n"

    with_driver(tmp_path, course)


def test_new_server_finds_a_suspended_task_and_resumes_it(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        order = bench.order(f"while [ ! -e {tmp_path}/end ]; do sleep 0.01; done")
        bench.driver.start(order)
        await until(lambda: bench.events(Started))
        bench.driver.suspend(JOB)
        await until(lambda: bench.events(Suspended))
        bench.close()
        (tmp_path / "end").touch()
        again = Bench(bench.home)
        again.driver.find(order)
        assert kernel_state(bench.state()["pid"]) in ("T", "D"), "stopped, or in wait for a child that was as it forked"
        again.driver.resume(JOB)
        await until(lambda: again.events(JobEnded))
        again.close()

    with_driver(tmp_path, course)


def test_moved_job_goes_on_elsewhere_with_its_work(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        order = bench.order("echo $CUDA_VISIBLE_DEVICES; exec sleep 600")
        bench.driver.start(order)
        await until(lambda: bench.events(Started))
        there = replace(order, placement=on("n1", [2]), attempt=2, resizes=True, moves=True)
        bench.driver.resize(there, order.placement)
        await until(lambda: bench.events(Moved))
        said = bench.home / "runs" / "1" / "2" / "0"
        await until(lambda: any(path.read_text() == "2\n" for path in said.glob("output-*")))
        (event,) = bench.events(Moved)
        assert isinstance(event, Moved)
        assert event.work > 0.0
        bench.driver.stop(JOB, Cause.CANCELLED)
        await until(lambda: bench.events(Stopped))

    with_driver(tmp_path, course)


def test_job_that_is_stopped_while_it_moves_is_not_started_again(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        order = bench.order("exec sleep 600")
        bench.driver.start(order)
        await until(lambda: bench.events(Started))
        there = replace(order, placement=on("n1", [2]), attempt=2, resizes=True, moves=True)
        bench.driver.resize(there, order.placement)
        bench.driver.stop(JOB, Cause.CANCELLED)
        await until(lambda: len(bench.answers) > 1)
        assert [type(event) for event, _ in bench.answers] == [Started, Stopped]
        assert not (bench.home / "runs" / "1" / "2").exists()

    with_driver(tmp_path, course)


def test_time_slices_leave_a_suspended_or_ending_job_alone(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        bench.driver.start(bench.order("exec sleep 600"))
        await until(lambda: bench.events(Started))
        rest = bench.folder() / "rest.json"
        bench.driver.suspend(JOB)
        bench.driver.pauses.let_run(JOB, None)
        assert json.loads(rest.read_text())["rests"] is True
        bench.driver.resume(JOB)
        bench.driver.stop(JOB, Cause.CANCELLED)
        bench.driver.pauses.let_run(JOB, 1e12)
        assert json.loads(rest.read_text())["rests"] is False
        await until(lambda: bench.events(Stopped))

    with_driver(tmp_path, course)


@pytest.mark.parametrize(("one", "other"), [(700, 300), (500, 250)], ids=["all-of-it", "some-left-over"])
def test_two_tasks_on_a_device_have_their_parts_of_the_time(tmp_path: Path, one: int, other: int) -> None:
    """By the supervisors' clocks, and by what the kernel counted of CPU time; each beside the other's, in one run."""

    async def course(bench: Bench) -> None:
        parts = {"1": one, "2": other}
        for name, milli in parts.items():
            order = replace(bench.order(COUNT, name=name), placement=in_turn(on("n1", 1), milli))
            bench.driver.start(order)
        await until(lambda: len(bench.events(Started)) == 2)
        pids = [bench.state(name=name)["pid"] for name in parts]
        begun_s, ran_s = time.time(), [bench.driver.pauses.ran_s(JobId(name)) for name in parts]
        ticks = [cpu_ticks(pid) for pid in pids]
        await until(lambda: time.time() >= begun_s + WATCH_S, within_s=60.0)
        over_s = time.time() - begun_s
        had_s = [bench.driver.pauses.ran_s(JobId(name)) - before for name, before in zip(parts, ran_s, strict=True)]
        used = [cpu_ticks(pid) - before for pid, before in zip(pids, ticks, strict=True)]
        assert had_s[0] / sum(had_s) == pytest.approx(one / (one + other), abs=0.05)
        assert used[0] / sum(used) == pytest.approx(one / (one + other), abs=0.15)
        assert sum(had_s) <= ((one + other) / 1000 + 0.05) * over_s
        for name in parts:
            bench.driver.stop(JobId(name), Cause.CANCELLED)
        await until(lambda: len(bench.events(Stopped)) == 2)

    with_driver(tmp_path, course)


def test_task_that_waits_for_its_turn_goes_on_by_itself_when_the_server_is_gone(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        bench.driver.start(bench.order(COUNT))
        await until(lambda: bench.events(Started))
        pid = bench.state()["pid"]
        bench.driver.pauses.let_run(JOB, time.time() + 1.0)
        await until(lambda: kernel_state(pid) == "T")
        bench.close()
        await until(lambda: kernel_state(pid) != "T")
        again = Bench(bench.home)
        again.driver.find(bench.order(COUNT))
        again.driver.stop(JOB, Cause.CANCELLED)
        await until(lambda: again.events(Stopped))
        again.close()

    with_driver(tmp_path, course)
