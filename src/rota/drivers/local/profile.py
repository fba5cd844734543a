"""Runs a training command for a while and writes down what it uses: GPUs by NVML where there are any, CPU and memory by
the kernel's books, step time and phases by what the SDK reports.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rota.core.errors import RotaError
from rota.drivers.local.task_runner.gpus import GpuUse
from rota.drivers.local.task_runner.nvml import Nvml, find_nvml
from rota.drivers.local.task_runner.processes import TaskProcesses, belongs, started
from rota.drivers.local.task_usage import use_of_sessions
from rota.store import clock
from rota.store.run_folder import gpu_labels, read_json

EVERY_S = 0.1
GRACE_S = 10.0
MB = 2**20
CUT_SHORT = frozenset({"duration_s", "train_s", "save_s"})
"""Labels that a stopped run has no values for."""
_NOT_PROGRESS = (OSError, ValueError, KeyError, TypeError)


@dataclass(slots=True)
class _Samples:
    """Samples taken while the command ran."""

    memory_bytes: list[int] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    gpus: GpuUse = field(default_factory=GpuUse)


def profile(command: Sequence[str], most_s: float) -> tuple[dict[str, float], int | None]:
    """Run a command for a limited time; return usage and exit code. A stopped one has neither code nor durations."""
    nvml = find_nvml()
    with tempfile.TemporaryDirectory(prefix="rota-profile-") as folder:
        env = {**os.environ, "ROTA_RUN_DIR": folder}
        begun_s, received, sent = clock.now_s(), *_network()
        try:
            child = subprocess.Popen(command, env=env, start_new_session=True)
        except OSError as error:
            raise RotaError(f"can't run {command[0]!r}: {error.strerror}") from error
        seen, own = _Samples(), TaskProcesses(child.pid, started(child.pid), "")
        try:
            code = _watch(child, own, seen, nvml, begun_s + most_s)
        finally:
            _end(child, own)
        ended_s = clock.now_s()
        progress = _progress(Path(folder), begun_s, ended_s)
    passed_s = ended_s - begun_s
    now_received, now_sent = _network()
    row = {
        "duration_s": passed_s,
        "cpu_cores": max(seen.cpu_s, default=0.0) / passed_s,
        "host_memory_mb": max(seen.memory_bytes, default=0) / MB,
        "net_received_mb_s": (now_received - received) / MB / passed_s,
        "net_sent_mb_s": (now_sent - sent) / MB / passed_s,
    }
    found = row | _of_gpus(seen.gpus, begun_s, ended_s) | progress
    return found if code is not None else {name: value for name, value in found.items() if name not in CUT_SHORT}, code


def _watch(
    child: subprocess.Popen[bytes], own: TaskProcesses, seen: _Samples, nvml: Nvml | None, until_s: float
) -> int | None:
    while clock.now_s() < until_s:
        own.find()  # what is in its session now can still be told from others when the command has ended
        _sample(child.pid, seen, nvml)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(EVERY_S)
    _sample(child.pid, seen, nvml)
    return None


def _sample(pid: int, seen: _Samples, nvml: Nvml | None) -> None:
    cpu_s, memory_bytes = use_of_sessions({str(pid)})
    seen.cpu_s.append(cpu_s)
    seen.memory_bytes.append(memory_bytes)
    if nvml is not None:
        readings = nvml.look()
        named = {each for reading in readings for each in reading.bytes_by_process}
        seen.gpus.add(readings, {each for each in named if belongs(each, pid, "")}, clock.now_s())


def _end(child: subprocess.Popen[bytes], own: TaskProcesses) -> None:
    """Ask it to stop, as a manager would, and end what has not stopped by then; its session with it."""
    if child.poll() is None:
        own.signal_group(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)
    own.end()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_S)


def _progress(folder: Path, begun_s: float, ended_s: float) -> dict[str, float]:
    """Step time and phases, if the command tells the SDK of its steps."""
    try:
        progress = read_json(folder / "progress-0.json")
        if progress is None:
            return {}
        last_s, steps, speed = float(progress["at_s"]), int(progress["step"]), float(progress["steps_per_s"])
    except (*_NOT_PROGRESS, json.JSONDecodeError):
        return {}
    if not (steps > 0 and speed > 0 and math.isfinite(speed)):
        return {}
    first_s = last_s - steps / speed
    return {
        "step_s": 1 / speed,
        "load_s": max(first_s - begun_s, 0.0),
        "train_s": last_s - first_s,
        "save_s": max(ended_s - last_s, 0.0),
    }


def _of_gpus(use: GpuUse, begun_s: float, ended_s: float) -> dict[str, float]:
    """Memory and utilisation; utilisation and phases are those of the time in which a GPU was busy."""
    summary = use.summary()
    return gpu_labels(summary, begun_s, ended_s) if summary["gpus"] else {}


def _network() -> tuple[int, int]:
    """Bytes that this machine has received and sent so far, over all but the loopback."""
    received = sent = 0
    for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines()[2:]:
        name, _, numbers = line.partition(":")
        if name.strip() != "lo":
            fields = numbers.split()
            received, sent = received + int(fields[0]), sent + int(fields[8])
    return received, sent
