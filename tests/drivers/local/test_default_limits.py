"""What tasks get that ask for none, and the parts of the disk that jobs may fill."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.drivers.local.confinement.default_limits import DefaultLimits, default_limits, disk_part
from rota.files.shape import checked
from rota.files.up_file import UpFile

GIB = 1 << 30
MACHINE = {"machine_memory_bytes": 1000 * GIB, "machine_cpu_milli": 100_000, "machine_devices": 8}


@pytest.mark.parametrize(
    ("memory_bytes", "device_milli", "expected"),
    [
        pytest.param(None, 2000, 225 * GIB, id="two of eight GPUs: a quarter of nine tenths"),
        pytest.param(None, 500, 56.25 * GIB, id="half of a GPU"),
        pytest.param(None, 0, 9 * GIB, id="no GPU: as for one CPU"),
        pytest.param(None, 64_000, 900 * GIB, id="more GPUs than the machine has"),
        pytest.param(4 * GIB, 2000, 8 * GIB, id="an amount for each GPU"),
        pytest.param(4 * GIB, 0, 4 * GIB, id="an amount, once without GPUs"),
        pytest.param(0, 2000, 0, id="none"),
    ],
)
def test_memory_of_a_task_that_asks_for_none(memory_bytes: int | None, device_milli: int, expected: float) -> None:
    assert DefaultLimits(memory_bytes=memory_bytes, **MACHINE).memory(device_milli) == int(expected)


def test_small_shares_suffice_for_a_training() -> None:
    laptop = DefaultLimits(
        memory_bytes=None, machine_memory_bytes=8 * GIB, machine_cpu_milli=16_000, machine_devices=64
    )
    tiny = DefaultLimits(memory_bytes=None, machine_memory_bytes=GIB, machine_cpu_milli=4000)

    assert laptop.memory(0) == laptop.memory(1000) == 2 * GIB
    assert tiny.memory(0) == tiny.tasks_bytes == 768 << 20, "never more than all tasks together may have"


def test_cpus_are_shared_unless_they_are_limited() -> None:
    shared = DefaultLimits(cpu_milli=None, **MACHINE)
    limited = DefaultLimits(cpu_milli=4000, **MACHINE)

    assert (shared.cpus(2000), shared.cpu_share(2000), shared.cpu_share(0)) == (0, 25_000, 1000)
    assert (limited.cpus(2000), limited.cpus(0), limited.cpu_share(0)) == (8000, 4000, 0)


def test_this_machine_has_a_default() -> None:
    found = default_limits("share", "share", devices=0)

    assert 0 < found.memory(0) <= found.tasks_bytes < found.machine_memory_bytes
    assert default_limits("2", "3Gi", devices=4).memory(1000) == 3 * GIB
    assert default_limits("none", "none", devices=4).memory(1000) == 0


def test_parts_of_the_disk(tmp_path: Path) -> None:
    total = shutil.disk_usage(tmp_path).total

    assert disk_part("share", 10, tmp_path / "not" / "there") == total // 10
    assert disk_part("none", 10, tmp_path) == 0
    assert disk_part("5Gi", 10, tmp_path) == 5 * GIB


@pytest.mark.parametrize("field", ["default_cpus", "default_memory", "scratch", "keep_size"])
@pytest.mark.parametrize("value", ["much", "0", -1, True, None, "9" * 70])
def test_settings_that_are_no_amounts_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(RotaError, match=field):
        checked(UpFile, {field: value}, Path("rota.yaml"))
