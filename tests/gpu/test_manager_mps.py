"""A manager that shares GPUs through MPS (stand-ins of both): its death and that of a daemon disturb no job."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu.machines import GpuMachine
from gpu.mps_stand_in import mps_program
from managers import Manager, eventually
from rota.drivers.local.gpu.mps import PID_FILE

pytestmark = pytest.mark.slow


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """A manager of one GPU whose packed jobs are clients of MPS."""
    machine = GpuMachine(tmp_path / "nvml", 1)
    mps_program(tmp_path)
    (tmp_path / "rota.yaml").write_text(f"gpu: {{nvml: {machine.folder}, sample: 0.2s, mps: packed}}\n")
    made = Manager(tmp_path, "--config", str(tmp_path / "rota.yaml"))
    made.env["PATH"] = f"{tmp_path}:{made.env['PATH']}"
    yield made.start(within_s=120)
    made.clean_up()
    for path in made.home.glob(f"mps/*/pipe/{PID_FILE}"):
        os.kill(int(path.read_text()), signal.SIGKILL)


def test_jobs_go_on_when_the_manager_is_killed_and_a_dead_daemon_is_started_again(manager: Manager) -> None:
    run = "echo $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT; sleep 120"
    job_id = manager.submit(run, resources={"gpus": 0.3, "gpu_memory": "10Gi"})
    manager.wait(job_id, "running", within_s=60)
    assert eventually(lambda: manager.said(job_id)) == "30 0=10240M\n"
    path = next(manager.home.glob(f"mps/0-*/pipe/{PID_FILE}"))
    before = path.read_text()

    manager.kill()
    manager.start(within_s=120)

    assert manager.state(job_id) == "running"
    assert path.read_text() == before
    os.kill(int(before), signal.SIGKILL)
    eventually(lambda: path.read_text() != before, within_s=60)
    assert manager.state(job_id) == "running"
