"""Runs a training command for a while and writes down what it uses: GPUs by NVML where there are any, CPU and memory by
the kernel's books, step time and phases by what the SDK reports.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError
from rota.drivers.local.folder import read_json
from rota.drivers.local.use import use_of_sessions

EVERY_S = 0.1
GRACE_S = 10.0
MB = 2**20
BUSY = 15.0
"""A GPU that is busier than this, in percent, trains; before it loads, after it saves."""
_NOT_PROGRESS = (OSError, ValueError, KeyError, TypeError)


@dataclass(slots=True)
class _Samples:
    """What was seen, again and again, while the command ran."""

    at_s: list[float] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    gpu_bytes: list[int] = field(default_factory=list)
    gpu_busy: list[float] = field(default_factory=list)
    gpus: int = 0


class Gpus:
    """The machine's GPUs as NVML sees them; none where there is no driver."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        if not Path("/dev/nvidiactl").exists():
            return
        import pynvml

        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
        self._before = [self._used(handle) for handle in self._handles]

    def look(self) -> tuple[int, float, int] | None:
        """Memory since the beginning and busiest percentage of the GPUs that are in use, and how many are."""
        if not self._handles:
            return None
        import pynvml

        more = [max(self._used(each) - before, 0) for each, before in zip(self._handles, self._before, strict=True)]
        busy = [
            float(pynvml.nvmlDeviceGetUtilizationRates(each).gpu)
            for each, used in zip(self._handles, more, strict=True)
            if used
        ]
        return max(more), max(busy, default=0.0), sum(used > 0 for used in more)

    def _used(self, handle: Any) -> int:
        import pynvml

        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)


def profile(command: Sequence[str], most_s: float) -> tuple[dict[str, float], int | None]:
    """Run a command for at most so long; what it used, and its exit code (None if it was stopped)."""
    gpus = Gpus()
    with tempfile.TemporaryDirectory(prefix="rota-profile-") as folder:
        env = {**os.environ, "ROTA_RUN_DIR": folder}
        begun_s, received, sent = time.time(), *_network()
        try:
            child = subprocess.Popen(command, env=env, start_new_session=True)
        except OSError as error:
            raise RotaError(f"can't run {command[0]!r}: {error.strerror}") from error
        seen = _Samples()
        try:
            code = _watch(child, seen, gpus, begun_s + most_s)
        finally:
            _end(child)
        ended_s = time.time()
        told = _progress(Path(folder), begun_s, ended_s)
    passed_s = ended_s - begun_s
    now_received, now_sent = _network()
    row = {
        "duration_s": passed_s,
        "cpu_cores": max(seen.cpu_s, default=0.0) / passed_s,
        "host_memory_mb": max(seen.memory_bytes, default=0) / MB,
        "net_received_mb_s": (now_received - received) / MB / passed_s,
        "net_sent_mb_s": (now_sent - sent) / MB / passed_s,
    }
    return row | _of_gpus(seen, begun_s, ended_s) | told, code


def _watch(child: subprocess.Popen[bytes], seen: _Samples, gpus: Gpus, until_s: float) -> int | None:
    while time.time() < until_s:
        _sample(child.pid, seen, gpus)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(EVERY_S)
    _sample(child.pid, seen, gpus)
    return None


def _sample(pid: int, seen: _Samples, gpus: Gpus) -> None:
    cpu_s, memory_bytes = use_of_sessions({str(pid)})
    seen.at_s.append(time.time())
    seen.cpu_s.append(cpu_s)
    seen.memory_bytes.append(memory_bytes)
    if (found := gpus.look()) is not None:
        seen.gpu_bytes.append(found[0])
        seen.gpu_busy.append(found[1])
        seen.gpus = max(seen.gpus, found[2])


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask it to stop, as a manager would, and end what has not stopped by then; its session with it."""
    for number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        if child.poll() is None or number is signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(wait_s)


def _progress(folder: Path, begun_s: float, ended_s: float) -> dict[str, float]:
    """Step time and phases, if the command tells the SDK of its steps."""
    try:
        told = read_json(folder / "progress-0.json")
        if told is None:
            return {}
        last_s, steps, speed = float(told["at_s"]), int(told["step"]), float(told["steps_per_s"])
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


def _of_gpus(seen: _Samples, begun_s: float, ended_s: float) -> dict[str, float]:
    """Memory and utilisation; utilisation and phases are those of the time in which a GPU was busy."""
    if not seen.gpu_bytes:
        return {}
    row = {"gpus": float(seen.gpus), "gpu_memory_mb": max(seen.gpu_bytes) / MB}
    busy = [index for index, part in enumerate(seen.gpu_busy) if part > BUSY]
    if not busy:
        return row
    parts = seen.gpu_busy[busy[0] : busy[-1] + 1]
    first_s, last_s = seen.at_s[busy[0]], seen.at_s[busy[-1]]
    phases = {"load_s": first_s - begun_s, "train_s": last_s - first_s, "save_s": ended_s - last_s}
    return row | phases | {"gpu_util_mean": statistics.fmean(parts), "gpu_util_std": statistics.pstdev(parts)}


def _network() -> tuple[int, int]:
    """Bytes that this machine has received and sent so far, over all but the loopback."""
    received = sent = 0
    for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines()[2:]:
        name, _, numbers = line.partition(":")
        if name.strip() != "lo":
            fields = numbers.split()
            received, sent = received + int(fields[0]), sent + int(fields[8])
    return received, sent
