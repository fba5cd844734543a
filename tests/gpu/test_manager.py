"""A manager on a machine with GPUs (a stand-in's): what it shows of them, and what it does about idle jobs."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu.machines import GIB, GpuMachine
from managers import Manager, eventually
from rota.web.parts.gpus import facts_of

pytestmark = pytest.mark.slow
SETTINGS = """
gpu:
  nvml: nvml
  sample: 0.2s
  memory_grace: 1s
  energy_price: 0.5
  currency: EUR
  idle: {below: 5, for: 2s, then: stop, after: 1s}
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> GpuMachine:
    """A machine of two busy GPUs."""
    return GpuMachine(tmp_path_factory.mktemp("gpus") / "nvml", 2, busy=90)


@pytest.fixture(scope="module")
def manager(machine: GpuMachine) -> Iterator[Manager]:
    """A manager of it."""
    folder: Path = machine.folder.parent
    (folder / "rota.yaml").write_text(SETTINGS)
    made = Manager(folder, "--config", str(folder / "rota.yaml")).start(within_s=120)
    yield made
    made.clean_up()


def test_a_job_has_its_gpus_over_time_and_its_energy(manager: Manager, machine: GpuMachine) -> None:
    job_id = manager.submit("sleep 600", resources={"gpus": 1})
    manager.wait(job_id, "running")
    gpu = eventually(lambda: next((each for each in manager.client.gpus() if each["jobs"] == [job_id]), None))
    assert gpu is not None
    index = gpu["gpu"]
    machine.change(index, energy_mj=1_000_000)
    eventually(lambda: manager.client.job_gpus(job_id)["energy"])
    machine.change(index, energy_mj=1_000_000 + 3_600_000_000, power_mw=300_000)
    energy = eventually(lambda: (manager.client.job_gpus(job_id)["energy"] or {}).get("cost"), within_s=60)

    assert energy == pytest.approx(0.5)
    series = eventually(lambda: manager.client.job_gpus(job_id)["series"])
    assert series["fields"][:3] == ["at", "busy", "memory_busy"]
    assert {point[1] for point in series["gpus"][0]["points"]} == {90.0}
    shown = manager.rota("show", job_id).stdout
    assert "1.0000 kWh, 0.50 EUR" in shown
    assert "NVIDIA H200" in manager.rota("top").stdout
    facts = facts_of({"warnings": [], **manager.client.job_gpus(job_id)})
    assert any("Energy 1.000 kWh, cost 0.50 EUR" in fact for fact in facts)
    assert "NVIDIA H200" in urllib.request.urlopen(f"{manager.client.url}/cluster").read().decode()
    manager.client.act(job_id, "cancel")
    manager.wait(job_id, "cancelled")
    assert eventually(lambda: manager.client.job_gpus(job_id)["series"])["gpus"]
    (used,) = manager.client.usage("type")["rows"]
    assert used["energy_kwh"] == pytest.approx(1.0), "the accounts have the energy of the job"


def test_prometheus_has_the_names_of_dcgm_exporter(manager: Manager) -> None:
    text = urllib.request.urlopen(f"{manager.client.url}/metrics").read().decode()

    lines = {line.split("{")[0] for line in text.splitlines() if line.startswith("DCGM")}
    assert {
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_FB_FREE",
        "DCGM_FI_DEV_POWER_USAGE",
        "DCGM_FI_DEV_GPU_TEMP",
        "DCGM_FI_DEV_SM_CLOCK",
        "DCGM_FI_DEV_MEM_CLOCK",
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "DCGM_FI_DEV_XID_ERRORS",
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "DCGM_FI_PROF_PCIE_RX_BYTES",
        "DCGM_FI_PROF_PCIE_TX_BYTES",
    } <= lines
    assert 'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-00000000-0000-0000-0000-000000000000",device="nvidia0",gpu="0"' in text


def test_memory_above_the_request_fails_the_job_with_both_amounts(manager: Manager, machine: GpuMachine) -> None:
    job_id = manager.submit("sleep 600", resources={"gpus": 1, "gpu_memory": "10Gi"})
    manager.wait(job_id, "running")
    index = next(each["gpu"] for each in manager.client.gpus() if each["jobs"] == [job_id])
    pid = _task(manager, job_id)
    machine.change(index, used=61 * GIB, processes={pid: 61 * GIB})

    ended = manager.wait(job_id, "failed", within_s=60)
    machine.change(index, used=0, processes={})

    assert ended["message"] == "used 61 GiB of GPU memory; it asked for 10 GiB (permanent)"
    assert ended["failure"] == "gpu-out-of-memory"
    assert "this task uses 61 GiB of GPU memory" in manager.said(job_id)
    assert manager.client.job_gpus(job_id)["warnings"][0]["code"] == "gpu-memory"


def test_idle_gpus_are_warned_of_and_then_stopped(manager: Manager, machine: GpuMachine) -> None:
    for index in range(2):
        machine.change(index, busy=1)
    job_id = manager.submit("sleep 600", resources={"gpus": 1})

    ended = manager.wait(job_id, "cancelled", within_s=90)

    assert ended["message"].startswith("stopped: its GPUs were idle: busy for 1.0% of the time")
    texts = [each["text"] for each in manager.client.job_gpus(job_id)["warnings"]]
    assert texts[0].startswith("its GPUs were busy for 1.0% of the last 2 s, less than 5%; it is stopped in 1 s")
    users = manager.client.gpu_users(1)
    assert users[0]["idle_gpu_hours"] > 0
    assert "idle part" in manager.rota("gpus", "--users").stdout


def _task(manager: Manager, job_id: str) -> int:
    """The process of a job's only task."""
    return int(json.loads((manager.home / "runs" / job_id / "1" / "0" / "state.json").read_text())["pid"])
