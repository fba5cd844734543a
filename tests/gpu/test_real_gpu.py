"""The same code on a real GPU, by the CUDA driver alone: `make test-gpu`. Skipped where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from builders import job
from gpu.machines import GIB
from local_drivers import Bench, until, with_driver
from managers import eventually
from rota.core.messages.events import JobEnded
from rota.drivers.local.gpu.abilities import gpu_abilities
from rota.drivers.local.gpu.mps import MpsDaemons, MpsKey
from rota.drivers.local.gpu.sensors import GpuSensors, find_sensors
from rota.drivers.local.gpu.settings import GpuSettings
from rota.drivers.local.machine import nvml_folder, this_machine, topology
from rota.drivers.local.task_runner.nvml import DRIVER, find_nvml
from rota.drivers.local.task_runner.resting import Copy
from rota.store.run_folder import tail

FOLDER = nvml_folder() if os.path.exists(DRIVER) else None
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(FOLDER is None, reason=f"there is no NVIDIA GPU here: no {DRIVER}, or no pynvml"),
]
HOLD = """
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit("CUDA out of memory" if code == 2 else f"{name} answered {code}")
call("cuInit", 0)
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(int(float(sys.argv[1]) * 2**30)))
print("holds", flush=True)
time.sleep(60)
"""
"""Holds so many GiB of the first GPU that it sees."""


@pytest.fixture
def sensors() -> GpuSensors:
    found = find_sensors(FOLDER)
    assert found is not None
    return found


@pytest.fixture
def hold(tmp_path: Path) -> str:
    path = tmp_path / "hold.py"
    path.write_text(HOLD)
    return str(path)


@pytest.fixture
def mps(tmp_path: Path, sensors: GpuSensors) -> Iterator[MpsDaemons]:
    daemons = MpsDaemons(tmp_path, [gpu.uuid for gpu in sensors.gpus])
    if not daemons.is_there:
        pytest.skip("nvidia-cuda-mps-control is not installed")
    yield daemons
    daemons.end(MpsKey(0, os.geteuid()))


def test_a_real_gpu_tells_what_the_pages_show(sensors: GpuSensors) -> None:
    sample = sensors.look(0.0)[0]

    assert sample is not None
    power, temperature, clock = (sample.value(name) for name in ("power_w", "temperature_c", "sm_mhz"))
    assert power is not None and 10 < power < 2000  # noqa: PT018
    assert temperature is not None and 10 < temperature < 110  # noqa: PT018
    assert clock is not None and 100 < clock < 5000  # noqa: PT018
    assert sample.energy_mj is not None
    eventually(lambda: (sensors.look(1.0)[0] or sample).energy_mj != sample.energy_mj)
    assert sensors.xids() == []


def test_the_machine_has_its_gpus_where_they_are_attached(sensors: GpuSensors) -> None:
    node = this_machine().nodes[0]

    assert node.devices == len(sensors.gpus)
    assert (node.device_memory_bytes or 0) > GIB
    assert sum(len(group) for group in topology().groups) == len(sensors.gpus)


def test_memory_of_a_real_process_is_seen(hold: str) -> None:
    nvml = find_nvml([0], FOLDER)
    assert nvml is not None
    before = nvml.look()[0].memory_bytes
    child = subprocess.Popen([sys.executable, hold, "2"], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "holds\n"
        reading = nvml.look()[0]
    finally:
        child.kill()
        child.communicate()

    assert reading.memory_bytes - before >= 2 * GIB
    assert reading.hides_processes or reading.bytes_by_process[child.pid] >= 2 * GIB


def test_memory_of_a_real_process_goes_to_the_host_and_back(hold: str) -> None:
    abilities, nvml = gpu_abilities(), find_nvml([0], FOLDER)
    if abilities is None:
        pytest.skip("the driver can't suspend processes")
    assert nvml is not None
    child = subprocess.Popen([sys.executable, hold, "2"], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "holds\n"
        held = [nvml.look()[0].memory_bytes]
        for action in ("probe", "swap out", "swap in"):
            assert Copy(abilities.library, action, (child.pid,)).outcome()[0] is None
            held.append(nvml.look()[0].memory_bytes)
        assert child.poll() is None
    finally:
        child.kill()
        child.communicate()

    before, probed, out, back = held
    assert probed - out >= 2 * GIB
    assert min(before, back) - out >= 2 * GIB


def test_a_real_task_above_its_gpu_memory_is_ended(tmp_path: Path, hold: str) -> None:
    async def course(bench: Bench) -> None:
        order = bench.order(f"exec {sys.executable} {hold} 3")
        wanted = job("1")
        roles = tuple(replace(role, device_memory_bytes=GIB) for role in wanted.roles)
        bench.driver.start(replace(order, job=replace(wanted, roles=roles)))
        await until(lambda: bench.events(JobEnded), within_s=60)
        detail = next(each for event, each in bench.answers if isinstance(event, JobEnded))
        assert detail.failure == "gpu-out-of-memory"
        assert detail.message.startswith("used 3.")
        assert "it asked for 1 GiB" in tail(bench.folder())

    with_driver(tmp_path, course, nvml=FOLDER, gpu_settings=GpuSettings(memory_grace_s=1.0))


def test_mps_refuses_an_allocation_above_the_limit_and_lets_a_smaller_one_pass(mps: MpsDaemons, hold: str) -> None:
    env = {**os.environ, **mps.variables(0, None, 500, 4 * GIB)}

    too_much = subprocess.run([sys.executable, hold, "8"], env=env, capture_output=True, text=True, timeout=60)
    fits = subprocess.Popen([sys.executable, hold, "1"], env=env, stdout=subprocess.PIPE, text=True)
    assert fits.stdout is not None
    said = fits.stdout.readline()
    fits.kill()
    fits.communicate()

    assert (too_much.returncode, too_much.stderr.strip()) == (1, "CUDA out of memory")
    assert said == "holds\n"
