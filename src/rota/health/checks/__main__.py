"""Run one check: `python -m rota.health.checks NAME [FOLDER]`. Exits 0, 1 or 2 and prints one line of JSON."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from rota.health.checks.result import CheckResult
from rota.health.node_state import Severity

DCGM_S = 60.0


def run_check(name: str, folder: str) -> CheckResult:
    """Run a check by its name."""
    if name not in CHECKS:
        known = ", ".join(CHECKS)
        return CheckResult(check=name, severity=Severity.WARNING, text=f"there is no check {name!r}; there are {known}")
    return CHECKS[name](folder)


def _module(name: str) -> Any:
    return importlib.import_module(f"rota.health.checks.{name}")


def _gpu(folder: str) -> CheckResult:
    where = os.environ.get("ROTA_NVML")
    if where:
        sys.path.insert(0, where)
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        return CheckResult(check="gpu", text="pynvml is not installed")
    try:
        library.nvmlInit()
    except library.NVMLError:
        if os.environ.get("ROTA_GPUS_EXPECTED", "0") == "0":
            return CheckResult(check="gpu", text="no NVIDIA driver")
    result: CheckResult = _module("gpu").check_gpus(library)
    return result


def _dcgm(folder: str) -> CheckResult:
    """DCGM's own health checks, where it is installed."""
    program = shutil.which("dcgmi")
    if program is None:
        return CheckResult(check="dcgm", text="DCGM is not installed")
    subprocess.run([program, "health", "-s", "a"], capture_output=True, timeout=DCGM_S, check=False)
    told = subprocess.run([program, "health", "-c"], capture_output=True, text=True, timeout=DCGM_S, check=False)
    if "Failure" in told.stdout:
        return CheckResult(check="dcgm", severity=Severity.SEVERE, text="DCGM reports a failure")
    if "Warning" in told.stdout:
        return CheckResult(check="dcgm", severity=Severity.WARNING, text="DCGM reports a warning")
    return CheckResult(check="dcgm")


CHECKS: Mapping[str, Callable[[str], CheckResult]] = {
    "disk": lambda folder: _module("machine").check_disk(folder),
    "memory": lambda folder: _module("machine").check_memory(),
    "time": lambda folder: _module("machine").check_time(),
    "cgroup": lambda folder: _module("machine").check_cgroup(),
    "gpu": _gpu,
    "dcgm": _dcgm,
    "matmul": lambda folder: _module("self_test").check_matmul(),
    "bandwidth": lambda folder: _module("self_test").check_bandwidth(),
    "all-reduce": lambda folder: _module("self_test").check_all_reduce(),
}
"""Every check by its name; modules are imported only for the check that is run."""


def main(arguments: list[str]) -> int:
    """Run the check that is named, print its result, and return the exit code."""
    name, folder = (*arguments, "", "")[:2]
    result = run_check(name, folder or os.getcwd())
    sys.stdout.write(result.encode() + "\n")
    return result.severity.value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
