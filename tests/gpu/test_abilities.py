"""What the driver's release and installed programs allow: suspension, other GPUs, several processes of a job."""

from __future__ import annotations

import ctypes
import logging
import shutil
from types import SimpleNamespace
from typing import Any

import pytest

from rota.drivers.local.gpu import abilities
from rota.drivers.local.gpu.abilities import gpu_abilities


def on_machine(
    monkeypatch: pytest.MonkeyPatch, release: int, gpus: int = 1, *, calls: bool = True, launcher: str | None = None
) -> None:
    """A machine with a driver; `calls`: whether its library has those that suspend."""
    uuids = tuple(f"GPU-{index}" for index in range(gpus))
    found = SimpleNamespace(release=lambda: release, uuids=lambda: uuids)
    library: Any = SimpleNamespace(cuCheckpointProcessLock=None) if calls else SimpleNamespace()
    monkeypatch.setattr(abilities, "find_nvml", lambda: found)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(shutil, "which", lambda name: launcher)


def test_an_old_driver_suspends_nothing_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    on_machine(monkeypatch, 550, calls=False)

    with caplog.at_level(logging.WARNING):
        assert gpu_abilities() is None

    assert [vars(each)["why"] for each in caplog.records] == [
        "the driver 550 can't suspend processes: 570 or later is needed"
    ]


def test_below_580_a_machine_of_several_gpus_suspends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    on_machine(monkeypatch, 575, gpus=2)

    with caplog.at_level(logging.WARNING):
        assert gpu_abilities() is None

    assert "can't move processes between 2 GPUs" in vars(caplog.records[0])["why"]
    on_machine(monkeypatch, 575, gpus=1)
    assert gpu_abilities() is not None


@pytest.mark.parametrize(
    ("release", "program", "launcher", "why"),
    [
        (580, "/bin/cuda-checkpoint", None, "the driver 580 suspends one process of a job only, 590 or later several"),
        (590, None, None, "cuda-checkpoint is not installed, with which jobs of several processes must be started"),
        (590, "/bin/cuda-checkpoint", "/bin/cuda-checkpoint", None),
    ],
)
def test_several_processes_need_a_driver_and_a_launcher(
    monkeypatch: pytest.MonkeyPatch, release: int, program: str | None, launcher: str | None, why: str | None
) -> None:
    on_machine(monkeypatch, release, launcher=program)

    found = gpu_abilities()

    assert found is not None
    assert (found.launcher, found.several) == (launcher, why)
