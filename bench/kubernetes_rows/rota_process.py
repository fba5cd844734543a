"""A process of Rota on a cluster: started, timed until it schedules, looked at, and stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from e2e.kubernetes.bed import Bed

ROTA = [sys.executable, "-c", "from rota.cli.main import run; run()"]


def tree_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and those below it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_s(pid) + sum(tree_cpu_s(int(child)) for child in children)


def pass_ms(log: str) -> float:
    """Return the mean time of a step of the engine, planning included."""
    url = log.split("answers at ")[1].split(";")[0]
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[:1] != "#")
    return 1000 * float(lines["rota_step_seconds_sum"]) / max(float(lines["rota_step_seconds_count"]), 1.0)


def start_rota(bed: Bed, config: Path, folder: Path, data: str = "data") -> subprocess.Popen[bytes]:
    command = [*ROTA, "k8s", "run", "--kubeconfig", str(bed.kubeconfig("admin-token")), "--config", str(config)]
    with (folder / "rota.log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--no-leader-election", "--port", "0", "--data", str(folder / data)], stdout=log, stderr=log
        )


def start_s(bed: Bed, config: Path, folder: Path, data: str = "data") -> float:
    """Return the seconds from the start of a process until it schedules, with all pods bound."""
    log = folder / "rota.log"
    before = log.stat().st_size
    begun = time.perf_counter()
    process = start_rota(bed, config, folder, data)
    while "rota schedules" not in log.read_text()[before:]:
        if process.poll() is not None:
            raise SystemExit(log.read_text()[-2000:])
        time.sleep(0.02)
    took = time.perf_counter() - begun
    stop(process)
    return took


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait()
