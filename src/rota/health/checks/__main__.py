"""Run one check: `python -m rota.health.checks NAME [FOLDER]`. Prints one line of JSON.

Exits 0 (good), 1 (warning), 2 (severe), or 3 where it can't tell.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from rota.health.checks.result import CheckResult, broken_check
from rota.health.node_state import Severity

DCGM_S = 60.0


def run_check(name: str, folder: str) -> CheckResult:
    """Run a check by its name."""
    if name not in CHECKS:
        known = ", ".join(CHECKS)
        return broken_check(name, f"there is no check {name!r}; there are {known}")
    return CHECKS[name](folder)


def _module(name: str) -> Any:
    return importlib.import_module(f"rota.health.checks.{name}")


def _self_test(name: str) -> CheckResult:
    module = _module("self_test")
    result: CheckResult = module.on_gpus(name, getattr(module, f"check_{name.replace('-', '_')}"))
    return result


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
    result: CheckResult = _module("gpu").check_gpus(library, folder)
    return result


def _dcgm(folder: str) -> CheckResult:
    """DCGM's own health checks, where it is installed."""
    program = shutil.which("dcgmi")
    if program is None:
        return CheckResult(check="dcgm", text="DCGM is not installed")
    _dcgmi(program, "health", "-s", "a")
    told = _dcgmi(program, "health", "-c")
    if told is None:
        return broken_check("dcgm", "dcgmi does not answer: is its host engine running?")
    for word, severity in (("Failure", Severity.SEVERE), ("Warning", Severity.WARNING)):
        if word in told:
            return CheckResult(check="dcgm", severity=severity, text=f"DCGM: {_lines_with(told, word)}")
    return CheckResult(check="dcgm")


def _dcgm_diag(folder: str) -> CheckResult:
    """DCGM's short diagnosis, where it is installed."""
    program = shutil.which("dcgmi")
    if program is None:
        return CheckResult(check="dcgm-diag", text="DCGM is not installed")
    told = _dcgmi(program, "diag", "-r", "1")
    if told is None:
        return broken_check("dcgm-diag", "dcgmi does not answer: is its host engine running?")
    if "Fail" in told:
        return CheckResult(check="dcgm-diag", severity=Severity.SEVERE, text=f"DCGM: {_lines_with(told, 'Fail')}")
    return CheckResult(check="dcgm-diag")


def _dcgmi(program: str, *arguments: str) -> str | None:
    """The tables that dcgmi prints; None where it prints none, as without a host engine or the library."""
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, errors="replace", timeout=DCGM_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 or "|" in done.stdout else None


def _lines_with(told: str, word: str) -> str:
    """The rows of a table that have a word, without its lines."""
    rows = [" ".join(line.replace("|", " ").split()) for line in told.splitlines() if word in line]
    return "; ".join(rows)[:400]


CHECKS: Mapping[str, Callable[[str], CheckResult]] = {
    "disk": lambda folder: _module("machine").check_disk(folder),
    "memory": lambda folder: _module("machine").check_memory(),
    "time": lambda folder: _module("machine").check_time(),
    "cgroup": lambda folder: _module("machine").check_cgroup(),
    "gpu": _gpu,
    "xid": lambda folder: _module("kernel_log").check_xids(folder),
    "dcgm": _dcgm,
    "dcgm-diag": _dcgm_diag,
    "matmul": lambda folder: _self_test("matmul"),
    "bandwidth": lambda folder: _self_test("bandwidth"),
    "all-reduce": lambda folder: _self_test("all-reduce"),
}
"""Every check by its name; modules are imported only for the check that is run."""


def main(arguments: list[str]) -> int:
    """Run the check that is named, print its result, and return the exit code."""
    name, folder = (*arguments, "", "")[:2]
    result = run_check(name, folder or os.getcwd())
    sys.stdout.write(result.encode() + "\n")
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
