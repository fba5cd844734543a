"""The checks of nodes on a real GPU: they run, and find nothing wrong where nothing is. `make test-gpu`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rota.drivers.local.machine import nvml_folder
from rota.drivers.local.task_runner.nvml import DRIVER

FOLDER = nvml_folder() if os.path.exists(DRIVER) else None
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(FOLDER is None, reason=f"there is no NVIDIA GPU here: no {DRIVER}, or no pynvml"),
]


def run_check(name: str, folder: Path) -> tuple[int, dict[str, Any], str]:
    """Run a check as a manager does: its exit code, its verdict, and its errors."""
    command = [sys.executable, "-m", "rota.health.checks", name, str(folder)]
    env = {**os.environ, "ROTA_NVML": FOLDER or "", "ROTA_GPUS_EXPECTED": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    return done.returncode, json.loads(lines[-1]), done.stderr


@pytest.mark.parametrize("name", ["gpu", "xid"])
def test_checks_of_the_driver_find_nothing_wrong(name: str, tmp_path: Path) -> None:
    code, verdict, said = run_check(name, tmp_path)

    assert (code, verdict["status"]) == (0, 0), (verdict, said)
    if "can't be read" in str(verdict["text"]):
        pytest.skip(str(verdict["text"]))
    assert verdict["text"] == ""
    assert set(verdict["values"]) == {"gpus" if name == "gpu" else "xids"}, verdict
    again = run_check(name, tmp_path)  # it compares NVLinks and the kernel's log with what it saw before
    assert again[0] == 0, again


@pytest.mark.parametrize("name", ["matmul", "bandwidth", "all-reduce"])
def test_self_tests_find_nothing_wrong(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="the self-tests use PyTorch, which is not installed")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    code, verdict, said = run_check(name, tmp_path)

    assert (code, verdict["status"]) == (0, 0), (verdict, said)
