"""What this machine has, as NVIDIA's library tells it. Only the library's own functions are stood in for."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pynvml
import pytest

from rota.drivers.local.machine import nvml_folder, this_machine
from rota.drivers.local.task_runner import nvml

MEMORY = 150_754_820_096


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine on which NVIDIA's driver is loaded, with two GPUs."""
    monkeypatch.setattr(nvml, "DRIVER", os.devnull)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda handle: "NVIDIA H200")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda handle: SimpleNamespace(total=MEMORY))
    return monkeypatch


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("NVIDIA H200", "H200"),
        (b"NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA TITAN", "NVIDIA-TITAN"),
    ],
)
def test_gpus_are_found_and_named_as_people_write_them(
    driver: pytest.MonkeyPatch, name: str | bytes, shown: str
) -> None:
    driver.setattr(pynvml, "nvmlDeviceGetName", lambda handle: name)

    (node,) = this_machine().nodes

    assert (node.device_type, node.devices, node.device_memory_bytes) == (shown, 2, MEMORY)
    assert nvml_folder() == os.path.dirname(pynvml.__file__)
    assert node.cpu_milli == len(os.sched_getaffinity(0)) * 1000


def test_driver_that_does_not_answer_leaves_the_cpus(driver: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    driver.setattr(pynvml, "nvmlInit", fail)

    (node,) = this_machine().nodes

    assert (node.device_type, node.devices, nvml_folder()) == ("gpu", 0, None)
    assert node.memory_bytes
