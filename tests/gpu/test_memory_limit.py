"""A task that holds more GPU memory than it asked for is warned and then ended alone; GPUs are a stand-in's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from builders import job
from gpu.machines import GIB, GpuMachine
from local_drivers import Bench, until, with_driver
from rota.core.messages.decisions import Cause
from rota.core.messages.events import End, JobEnded, Started
from rota.core.model.job import JobId
from rota.drivers.local.gpu.settings import GpuSettings
from rota.drivers.local.launch_order import LaunchOrder
from rota.drivers.local.settings import Settings, task_order
from rota.drivers.local.task_runner.gpu_limit import GpuMemoryLimit, amount
from rota.drivers.local.task_runner.gpus import GpuUse
from rota.drivers.local.task_runner.nvml import Reading
from rota.store.run_folder import tail

ME, OTHER, NONE = 1, 2, 4_194_305


@pytest.fixture
def machine(tmp_path: Path) -> GpuMachine:
    """A machine of two GPUs."""
    return GpuMachine(tmp_path / "nvml", 2)


def asking(bench: Bench, memory: int, name: str = "1", *, device: int = 0, estimated: bool = False) -> LaunchOrder:
    """An order for a job that asks for so much GPU memory, on one of the devices."""
    order = bench.order("echo begun; sleep 600", name=name)
    wanted = job(name)
    roles = tuple(replace(role, device_memory_bytes=memory) for role in wanted.roles)
    placement = tuple(slot._replace(devices=1 << device) for slot in order.placement)
    return replace(
        order,
        job=replace(wanted, roles=roles),
        placement=placement,
        launch=replace(order.launch, estimates_gpu_memory=estimated),
    )


def test_the_first_sample_above_warns_and_the_grace_ends_it() -> None:
    limit = GpuMemoryLimit(10 * GIB, 5.0)

    assert limit.check(9 * GIB, 0.0) == ""
    assert limit.check(int(61.2 * GIB), 1.0) == (
        "uses 61.2 GiB of GPU memory; it asked for 10 GiB (gpu_memory) and is ended in 5 s unless it frees the rest"
    )
    assert (limit.check(40 * GIB, 5.9), limit.excess) == ("", "")
    assert limit.check(40 * GIB, 6.0) == ""
    assert limit.excess == "used 61.2 GiB of GPU memory; it asked for 10 GiB"


def test_memory_that_is_freed_in_time_is_forgiven() -> None:
    limit = GpuMemoryLimit(10 * GIB, 5.0)
    limit.check(11 * GIB, 0.0)
    limit.check(10 * GIB, 4.0)

    assert limit.check(12 * GIB, 8.0).startswith("uses 12 GiB")
    limit.check(12 * GIB, 9.0)
    assert limit.excess == ""


def test_a_client_of_mps_has_some_slack() -> None:
    limit = GpuMemoryLimit(10 * GIB, 0.0, slack_bytes=GIB)
    limit.check(11 * GIB, 0.0)
    assert limit.excess == ""

    limit.check(11 * GIB + 1, 1.0)

    assert limit.excess == "used 11 GiB of GPU memory; it asked for 10 GiB"


@pytest.mark.parametrize(
    ("count", "words"), [(512 * 2**20, "512 MiB"), (10 * GIB, "10 GiB"), (int(61.25 * GIB), "61.2 GiB")]
)
def test_amounts_are_written_as_people_do(count: int, words: str) -> None:
    assert amount(count) == words


@pytest.mark.parametrize(
    ("processes", "alone", "proven"),
    [
        ({ME: 4 * GIB, OTHER: 9 * GIB}, True, 4 * GIB),
        ({OTHER: 9 * GIB}, True, 0),
        ({NONE: 9 * GIB}, True, 20 * GIB),
        ({NONE: 9 * GIB}, False, 0),
    ],
    ids=["own", "another program's", "of another namespace", "of another namespace, shared"],
)
def test_only_what_is_surely_its_own_counts(processes: dict[int, int], alone: bool, proven: int) -> None:
    use = GpuUse()
    use.alone = alone
    use.add([Reading(0, {}, 0.0)], {ME}, 0.0)

    use.add([Reading(20 * GIB, processes, 0.0)], {ME}, 1.0)

    assert use.proven_bytes == proven


@pytest.mark.slow
def test_a_task_above_its_gpu_memory_is_warned_and_ended_alone(tmp_path: Path, machine: GpuMachine) -> None:
    async def course(bench: Bench) -> None:
        bench.driver.start(asking(bench, 10 * GIB))
        bench.driver.start(asking(bench, 10 * GIB, "2", device=1))
        await until(lambda: len(bench.events(Started)) == 2)
        used = int(61.2 * GIB)
        machine.change(0, used=used, processes={bench.state()["pid"]: used})
        machine.change(1, used=9 * GIB, processes={bench.state(name="2")["pid"]: 9 * GIB})
        await until(lambda: bench.events(JobEnded))

        event, detail = next(answer for answer in bench.answers if isinstance(answer[0], JobEnded))
        assert isinstance(event, JobEnded)
        assert (event.job_id, event.end) == (JobId("1"), End.FAILED)
        assert detail.failure == "gpu-out-of-memory"
        assert detail.message == "used 61.2 GiB of GPU memory; it asked for 10 GiB (permanent)"
        said = tail(bench.folder())
        assert "rota: this task uses 61.2 GiB of GPU memory; it asked for 10 GiB (gpu_memory)" in said
        assert "rota: this task was ended: it used 61.2 GiB" in said
        assert json.loads((bench.folder() / "warning.json").read_text())["code"] == "gpu-memory"
        assert bench.state(name="2")["phase"] == "running"
        bench.driver.stop(JobId("2"), Cause.CANCELLED)
        await until(lambda: bench.state(name="2").get("phase") == "ended")

    with_driver(tmp_path, course, nvml=str(machine.folder), gpu_settings=GpuSettings(memory_grace_s=0.5))


@pytest.mark.slow
def test_what_rota_estimated_does_not_limit_a_job_with_gpus_of_its_own(tmp_path: Path, machine: GpuMachine) -> None:
    async def course(bench: Bench) -> None:
        order = asking(bench, GIB, estimated=True)
        bench.driver.start(order)
        await until(lambda: bench.events(Started))
        attempt = bench.driver.attempt(JobId("1"))
        assert attempt is not None
        settings = Settings(home=bench.home, nvml=str(machine.folder))
        told = task_order(attempt, attempt.tasks[0], 0, settings, None)
        assert told["gpu_memory"] is None
        bench.driver.stop(JobId("1"), Cause.CANCELLED)
        await until(lambda: bench.state()["phase"] == "ended")

    with_driver(tmp_path, course, nvml=str(machine.folder))
