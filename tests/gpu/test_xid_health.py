"""Critical errors of a stand-in's GPUs: the documented action follows, and the verdict of the job names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu.machines import GpuMachine
from managers import Manager, eventually

pytestmark = pytest.mark.slow


def test_xid_that_asks_for_a_reboot_drains_and_one_that_asks_for_a_restart_does_not(tmp_path: Path) -> None:
    machine = GpuMachine(tmp_path / "nvml", 2, busy=90)
    (tmp_path / "rota.yaml").write_text("gpu: {nvml: nvml, sample: 0.2s}\nhealth: {every: 0s}\n")
    manager = Manager(tmp_path, "--config", str(tmp_path / "rota.yaml")).start(within_s=120)
    try:
        job_id = manager.submit("while [ ! -e end ]; do sleep 0.1; done; exit 1", resources={"gpus": 2}, max_restarts=0)
        manager.wait(job_id, "running")
        machine.change(0, xid=[13])
        eventually(lambda: manager.client.job_gpus(job_id)["warnings"])
        assert [node["health"] for node in manager.client.nodes()] == ["healthy"]

        machine.change(0, xid=[13, 79])
        node = eventually(lambda: next((n for n in manager.client.nodes() if n["state"] != "up"), None))
        (tmp_path / "end").touch()
        ended = manager.wait(job_id)

        assert node is not None
        assert (node["health"], node["state"]) == ("draining", "drained")
        assert node["health_why"] == "GPU 0 reported Xid 79: reboot the node"
        verdict = manager.client.why(job_id)["verdicts"][-1]
        assert (ended["failure"], verdict["blame"], verdict["evidence"]) == ("gpu-lost", "node", "Xid 79")
    finally:
        manager.clean_up()
