"""What is seen of GPUs, against a stand-in of NVIDIA's library: this machine has none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from drivers.local.pynvml_stand_in import Library, Look
from rota.core.model.job import JobId
from rota.drivers.local.profile import profile
from rota.drivers.local.task_runner import gpus, nvml
from rota.drivers.local.task_runner.gpus import GpuUse, GpuWatch, watch_gpus
from rota.drivers.local.task_runner.nvml import Nvml, find_nvml
from rota.store.run_folder import gpu_labels, usage

GIB = 2**30
ME = os.getpid()
OTHER = 1


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine that has NVIDIA's driver; tests bring the library."""
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(nvml, "DRIVER", str(tmp_path / "nvidiactl"))
    return monkeypatch


def used(looks: list[list[Look]], *, alone: bool = True) -> dict[str, float]:
    """What comes of looks at some devices, one a second."""
    library = Nvml(Library(*looks))
    use = GpuUse()
    use.alone = alone
    for second in range(max(map(len, looks))):
        use.add(library.look(), {ME}, float(second))
    return dict(use.summary())


def test_memory_is_that_of_own_processes_and_the_most_of_one_device() -> None:
    looks: list[list[Look]] = [
        [(9 * GIB, {OTHER: 4 * GIB}, 0.0), (9 * GIB, {OTHER: 4 * GIB, ME: 2 * GIB}, 0.0)],
        [(0, {}, 0.0), (5 * GIB, {ME: 3 * GIB}, 0.0)],
        [(7 * GIB, {OTHER: 6 * GIB}, 0.0)],
    ]

    told = used(looks, alone=False)

    assert (told["gpus"], told["gpu_memory_bytes"]) == (2, 3 * GIB)
    assert "gpu_busy_mean" not in told


def test_where_processes_are_not_named_it_is_what_came_to_the_device() -> None:
    looks: list[list[Look]] = [[(GIB, {}, 0.0), (6 * GIB, {}, 0.0), (3 * GIB, {}, 0.0)], [(GIB, {}, 0.0)]]

    told = used(looks)

    assert (told["gpus"], told["gpu_memory_bytes"], told["gpu_memory_now_bytes"]) == (1, 5 * GIB, 2 * GIB)
    assert used(looks, alone=False)["gpu_memory_bytes"] == 0


def test_utilisation_is_that_of_the_time_from_first_to_last_busy() -> None:
    busy = [0.0, 10.0, 80.0, 5.0, 90.0, 12.0, 0.0]
    looks: list[list[Look]] = [[(GIB, {ME: GIB}, each) for each in busy]]

    told = used(looks)

    assert told["gpu_busy_mean"] == pytest.approx((80 + 5 + 90) / 3)
    assert told["gpu_busy_std"] == pytest.approx(37.9, abs=0.1)
    labels = gpu_labels(told, -3.0, 9.0)
    assert (labels["load_s"], labels["train_s"], labels["save_s"]) == (5.0, 2.0, 5.0)
    assert (labels["gpus"], labels["gpu_memory_mb"]) == (1.0, 1024.0)


def test_a_library_that_fails_is_as_if_there_were_no_gpus(driver: pytest.MonkeyPatch) -> None:
    library = Library([(GIB, {ME: GIB}, 50.0)])
    driver.setitem(sys.modules, "pynvml", library)
    found = find_nvml()
    assert found is not None
    library.is_lost = True

    assert found.look() == []
    assert find_nvml() is None
    assert used([[(0, {}, 0.0)]]) == used([[(0, {}, 0.0)]] * 2)


def test_without_a_driver_nothing_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nvml, "DRIVER", str(tmp_path / "none"))
    monkeypatch.setitem(sys.modules, "pynvml", Library([(0, {}, 0.0)]))

    assert find_nvml() is None
    assert watch_gpus({"gpus": [0], "nvml": None, "token": "t"}) is None


def test_a_watch_writes_what_a_task_uses_until_others_share_its_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "runs" / "7" / "1" / "0"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    task = subprocess.Popen(["sleep", "60"], start_new_session=True)
    parts = ((GIB, 40.0), (2 * GIB, 60.0), (2 * GIB, 100.0))
    watch = GpuWatch(Nvml(Library([(9 * GIB, {task.pid: used, OTHER: GIB}, busy) for used, busy in parts])), "t")
    try:
        watch.look(task.pid)
        watch.look(task.pid)
        assert json.loads((folder / "gpus.json").read_text())["gpu_busy_now"] == 60.0
        (folder / "shared").touch()
        watch.look(task.pid)
    finally:
        task.kill()
        task.wait()

    (folder / "exit.json").write_text('{"cpu_s": 1.0, "memory_bytes": 5}')
    found = usage(tmp_path, JobId("7"), 1)
    assert found is not None
    assert (found["gpus"], found["gpu_memory_bytes"], found["gpu_busy_mean"]) == (1.0, 2 * GIB, 50.0)


@pytest.mark.slow
def test_profile_measures_gpus(driver: pytest.MonkeyPatch) -> None:
    looks: list[Look] = [(GIB, {}, 0.0), (4 * GIB, {}, 70.0), (4 * GIB, {}, 90.0), (4 * GIB, {}, 0.0)]
    driver.setitem(sys.modules, "pynvml", Library(looks))

    row, code = profile(["sleep", "0.8"], 10.0)

    assert code == 0
    assert (row["gpus"], row["gpu_memory_mb"], row["gpu_util_mean"]) == (1.0, 3072.0, 80.0)
    assert row["load_s"] + row["train_s"] + row["save_s"] == pytest.approx(row["duration_s"], abs=0.01)


def test_a_task_has_loaded_a_sample_after_it_was_seen_with_a_gpu_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of the driver that are not a GPU, such as nvidiactl, don't count."""
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(gpus, "DEVICE_FILES", str(tmp_path / "nvidia"))
    watch = GpuWatch(Nvml(Library([(0, {}, 0.0)])), "token")
    assert watch.loads

    with open(tmp_path / "nvidiactl", "w"):
        assert [watch.has_loaded([ME, 2**22]) for _ in range(3)] == [False] * 3
    with open(tmp_path / "nvidia0"):
        assert [watch.has_loaded([ME]) for _ in range(3)] == [False, True, False]
    assert not watch.loads


def test_on_a_machine_without_device_files_no_task_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "DEVICE_FILES", str(tmp_path / "nvidia"))

    assert not GpuWatch(Nvml(Library([(0, {}, 0.0)])), "token").loads
