"""MPS daemons are started once for each GPU and user, watched, started again and ended; the program is a stand-in."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpu.mps_stand_in import mps_program
from local_drivers import Bench, until, with_driver
from rota.core.messages.decisions import Cause
from rota.core.messages.events import Started
from rota.core.model.job import OPPORTUNISTIC, JobId
from rota.drivers.local.failure import FailureClass, classify
from rota.drivers.local.gpu.abilities import GpuAbilities
from rota.drivers.local.gpu.mps import IDLE_S, PID_FILE, MpsDaemons, MpsKey
from rota.drivers.local.gpu.settings import GpuSettings, MpsUse
from rota.store.run_folder import tail

pytestmark = pytest.mark.slow
UUIDS = ("GPU-a", "GPU-b")
ME = os.geteuid()


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[[], MpsDaemons]]:
    """Makes the daemons of a manager; all are ended afterwards."""
    program = mps_program(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    yield lambda: MpsDaemons(home, UUIDS, program)
    for path in home.glob(f"mps/*/pipe/{PID_FILE}"):
        try:
            os.kill(int(path.read_text()), signal.SIGKILL)
        except ProcessLookupError:
            continue


def pid_of(daemons: MpsDaemons, gpu: int) -> int:
    return int((daemons.home / "mps" / f"{gpu}-{ME}" / "pipe" / PID_FILE).read_text())


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def test_a_client_gets_its_daemon_its_memory_and_its_threads(made: Callable[[], MpsDaemons]) -> None:
    daemons = made()

    first = daemons.variables(1, None, 300, 10 * 2**30)
    pid = pid_of(daemons, 1)
    second = daemons.variables(1, None, 700, 0)

    folder = daemons.home / "mps" / f"1-{ME}"
    assert first == {
        "CUDA_VISIBLE_DEVICES": "GPU-b",
        "CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"),
        "CUDA_MPS_LOG_DIRECTORY": str(folder / "log"),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=10240M",
    }
    assert second["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "70"
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in second
    assert pid_of(daemons, 1) == pid
    assert (folder / "log" / "control.log").read_text() == "GPU-b\n"


def test_a_daemon_that_dies_is_started_again_only_where_jobs_need_it(made: Callable[[], MpsDaemons]) -> None:
    daemons = made()
    for gpu in (0, 1):
        daemons.variables(gpu, None, 500, 0)
    before = pid_of(daemons, 0)
    for gpu in (0, 1):
        os.kill(pid_of(daemons, gpu), signal.SIGKILL)
        assert gone(pid_of(daemons, gpu))

    assert daemons.watch([0], 0.0) == [MpsKey(0, ME)]
    assert pid_of(daemons, 0) != before
    assert daemons.watch([0], 1.0) == []


def test_the_next_manager_finds_the_daemon(made: Callable[[], MpsDaemons]) -> None:
    made().variables(0, None, 500, 0)
    pid = pid_of(made(), 0)

    again = made()
    again.variables(0, None, 500, 0)

    assert pid_of(again, 0) == pid
    assert again.watch([0], 0.0) == []
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    assert made().watch([0], 1.0) == [MpsKey(0, ME)]


def test_a_daemon_without_jobs_is_ended_after_a_while(made: Callable[[], MpsDaemons]) -> None:
    daemons = made()
    daemons.variables(0, None, 500, 0)
    pid = pid_of(daemons, 0)
    daemons.watch([], 0.0)
    daemons.watch([], IDLE_S - 1)
    os.kill(pid, 0)

    daemons.watch([], IDLE_S)

    assert gone(pid)


@pytest.mark.parametrize(
    "said",
    [
        "RuntimeError: CUDA error: the remote procedural call between the MPS server and the MPS client failed",
        "CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server",
        "cudaErrorMpsClientTerminated",
    ],
)
def test_clients_that_fall_with_their_server_are_tried_again(said: str) -> None:
    failure = classify(1, None, said)

    assert (failure.kind, failure.cause) == (FailureClass.TRANSIENT, "the MPS server of its GPU failed")


@pytest.mark.parametrize(("use", "clients"), [(MpsUse.PACKED, "TFF"), (MpsUse.ALL, "TFT")])
def test_tasks_that_share_a_gpu_are_clients(
    tmp_path: Path, made: Callable[[], MpsDaemons], use: MpsUse, clients: str
) -> None:
    async def course(bench: Bench) -> None:
        for number, (part, in_turn) in enumerate([(300, False), (300, True), (1000, False)], start=1):
            order = bench.order("env; sleep 600", name=str(number))
            placement = tuple(slot._replace(milli=part, in_turn=in_turn, devices=1) for slot in order.placement)
            bench.driver.start(replace(order, placement=placement))
        await until(lambda: len(bench.events(Started)) == 3)
        await until(lambda: all("ROTA_TASK_TOKEN" in tail(bench.folder(name=name), 65536) for name in "123"))
        said = {name: tail(bench.folder(name=name), 65536) for name in "123"}
        assert ["FT"["CUDA_MPS_PIPE_DIRECTORY" in said[name]] for name in "123"] == list(clients)
        assert "CUDA_VISIBLE_DEVICES=GPU-a\n" in said["1"]
        assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100\n" in said["1"]
        for name in "123":
            bench.driver.stop(JobId(name), Cause.CANCELLED)
        await until(lambda: all(bench.state(name=name).get("phase") == "ended" for name in "123"))

    with_driver(tmp_path, course, mps=made(), gpu_settings=GpuSettings(mps=use))


@pytest.mark.parametrize(
    ("bound", "priority", "first"), [(0.95, OPPORTUNISTIC, False), (0.95, 0, True), (0.0, OPPORTUNISTIC, True)]
)
def test_opportunistic_clients_come_second_where_a_bound_holds(
    tmp_path: Path, made: Callable[[], MpsDaemons], bound: float, priority: int, first: bool
) -> None:
    async def course(bench: Bench) -> None:
        order = bench.order("env; sleep 600")
        placement = tuple(slot._replace(milli=500, devices=1) for slot in order.placement)
        bench.driver.start(replace(order, job=replace(order.job, priority=priority), placement=placement))
        await until(lambda: "ROTA_TASK_TOKEN" in tail(bench.folder(), 65536))
        assert ("CUDA_MPS_CLIENT_PRIORITY=1\n" in tail(bench.folder(), 65536)) is not first
        bench.driver.stop(JobId("1"), Cause.CANCELLED)
        await until(lambda: bench.state().get("phase") == "ended")

    with_driver(tmp_path, course, mps=made(), gpu_settings=GpuSettings(mps=MpsUse.PACKED, bound=bound))


def test_the_launcher_of_several_processes_starts_tasks_but_no_clients(
    tmp_path: Path, made: Callable[[], MpsDaemons]
) -> None:
    launcher = tmp_path / "cuda-checkpoint"
    launcher.write_text('#!/bin/sh\necho "launched by $1"\nshift\nexec "$@"\n')
    launcher.chmod(0o755)

    async def course(bench: Bench) -> None:
        for name, milli in (("1", 1000), ("2", 500)):
            order = bench.order("echo runs; sleep 600", name=name)
            placement = tuple(slot._replace(milli=milli, devices=1) for slot in order.placement)
            bench.driver.start(replace(order, placement=placement))
        await until(lambda: all("runs\n" in tail(bench.folder(name=name)) for name in "12"))
        assert [tail(bench.folder(name=name)) for name in "12"] == ["launched by --launch-job\nruns\n", "runs\n"]
        for name in "12":
            bench.driver.stop(JobId(name), Cause.CANCELLED)
        await until(lambda: all(bench.state(name=name).get("phase") == "ended" for name in "12"))

    abilities = GpuAbilities(library="libcuda.so.1", launcher=str(launcher))
    with_driver(tmp_path, course, mps=made(), gpu_settings=GpuSettings(mps=MpsUse.PACKED), gpu=abilities)
