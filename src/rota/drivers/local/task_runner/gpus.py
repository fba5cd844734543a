"""GPU usage of a task, from samples while it runs."""

from __future__ import annotations

import contextlib
import os
import time

from rota.drivers.local.task_runner.clock import now_s
from rota.drivers.local.task_runner.files import write
from rota.drivers.local.task_runner.gpu_energy import GpuEnergy
from rota.drivers.local.task_runner.gpu_limit import GpuMemoryLimit, gpu_limit_of
from rota.drivers.local.task_runner.nvml import find_nvml
from rota.drivers.local.task_runner.processes import belongs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.drivers.local.task_runner.files import Json
    from rota.drivers.local.task_runner.nvml import Nvml, Reading

EVERY_S = 1.0
DEVICE_FILES = "/dev/nvidia"
"""Where the driver's device files are, each with the index of its GPU; other files of the driver have names here."""
BUSY = 15.0
"""GPUs busier than this, in percent, train; before that a task loads, afterwards it saves (Gu et al., TPDS 2022)."""


class GpuUse:
    """Memory, utilisation and phases so far; utilisation is that of the time from first to last busy.

    Memory is that of the task's own processes where the library names them, otherwise what came to the device since
    the first look. On devices that are shared, the utilisation of each task is unknown and left out.
    """

    def __init__(self) -> None:
        self.alone = True
        """Whether no other job has shared the devices so far."""
        self._before: list[int] = []
        self._used: set[int] = set()
        self._peak_bytes = self._bytes = 0
        self.proven_bytes = 0
        """What the task surely holds of one device now: a process outside of Rota is never counted as its own."""
        self._busy = 0.0
        self._sums = (0, 0.0, 0.0)
        self._idle = (0, 0.0, 0.0)
        """Samples since it was last busy: they count if it is busy again."""
        self._first_s: float | None = None
        self._last_s = 0.0

    def add(self, readings: Sequence[Reading], mine: set[int], now_s: float) -> None:
        """Take a sample of all devices of the task, whose processes are `mine`."""
        if not readings:
            return
        self._before = self._before or [each.memory_bytes for each in readings]
        by_device = [self._own(each, mine, before) for each, before in zip(readings, self._before, strict=True)]
        self._used.update(index for index, used in enumerate(by_device) if used)
        self._bytes = max(by_device)
        is_seen = [bool(mine & each.bytes_by_process.keys()) or each.hides_processes for each in readings]
        self.proven_bytes = max((used for used, seen in zip(by_device, is_seen, strict=True) if seen), default=0)
        self._peak_bytes = max(self._peak_bytes, self._bytes)
        if self.alone and self._used:
            self._busy = sum(readings[index].busy for index in self._used) / len(self._used)
            self._note_busy(self._busy, now_s)

    def _own(self, reading: Reading, mine: set[int], before: int) -> int:
        named = mine & reading.bytes_by_process.keys()
        if named:
            return sum(reading.bytes_by_process[pid] for pid in named)
        return max(reading.memory_bytes - before, 0) if self.alone else 0

    def _note_busy(self, busy: float, now_s: float) -> None:
        sample = (1, busy, busy * busy)
        if busy > BUSY:
            self._sums = _added(_added(self._sums, self._idle), sample)
            self._idle = (0, 0.0, 0.0)
            self._first_s = now_s if self._first_s is None else self._first_s
            self._last_s = now_s
        elif self._first_s is not None:
            self._idle = _added(self._idle, sample)

    def summary(self) -> Json:
        """Return the usage in GPUs, bytes and percent; unknown values are left out."""
        found: Json = {
            "gpus": len(self._used),
            "gpu_memory_bytes": self._peak_bytes,
            "gpu_memory_now_bytes": self._bytes,
        }
        count, total, squares = self._sums
        if self.alone:
            found["gpu_busy_now"] = self._busy
        if count and self._first_s is not None:
            mean = total / count
            found["gpu_busy_mean"] = mean
            found["gpu_busy_std"] = max(squares / count - mean * mean, 0.0) ** 0.5
            found["busy_from_s"], found["busy_until_s"] = self._first_s, self._last_s
        return found


def _added(one: tuple[int, float, float], other: tuple[int, float, float]) -> tuple[int, float, float]:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def has_device_files() -> bool:
    """Return whether GPUs have files of their own here, by which it can be seen what uses them."""
    folder, _, start = DEVICE_FILES.rpartition("/")
    with contextlib.suppress(OSError):
        return any(name.startswith(start) and name[len(start) :].isdigit() for name in os.listdir(folder))
    return False


def opens_gpu(pid: int) -> bool:
    """Return whether a process has a GPU open; True where that can't be seen."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except FileNotFoundError:
        return False
    except OSError:
        return True
    for name in names:
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/{pid}/fd/{name}")
            if path.startswith(DEVICE_FILES) and path[len(DEVICE_FILES) :].isdigit():
                return True
    return False


class GpuWatch:
    """Samples a task's GPUs at intervals, and keeps `gpus.json` in its folder up to date."""

    def __init__(self, nvml: Nvml, token: str, limit: GpuMemoryLimit | None = None) -> None:
        self._nvml = nvml
        self._token = token
        self._limit = limit
        self._use = GpuUse()
        self._energy = GpuEnergy()
        self._due = time.monotonic()
        self.holders: dict[int, int] = {}
        """The task's processes that hold GPU memory, and how many bytes of it on all GPUs, in the last sample."""
        self.loads = has_device_files()
        """Whether no process of the task has opened a GPU yet: it imports libraries and reads data."""
        self._opened = False

    def has_loaded(self, pids: Sequence[int]) -> bool:
        """Look whether a task that loads has opened a GPU; return True once, a sample after the first that sees it.

        By then its context is made: a process is not to be paused while other processes wait for that.
        """
        if self.loads and self._opened:
            self.loads = False
            return True
        self._opened = self.loads and any(opens_gpu(pid) for pid in pids)
        return False

    def due_in_s(self, now: float) -> float:
        """Return how long until the next sample."""
        return self._due - now

    @property
    def excess(self) -> str:
        """Why the task is to be ended for its GPU memory; empty while it is not."""
        return "" if self._limit is None else self._limit.excess

    def look(self, session: int, *, rests: bool = False) -> str:
        """Take a sample; return a warning for the task, usually none. Ignore a full disk.

        While the task rests, its GPUs may be another's: their energy does not count.
        """
        self._due = time.monotonic() + EVERY_S
        self._use.alone = self._use.alone and not os.path.exists("shared")
        readings = self._nvml.look()
        named = {pid for reading in readings for pid in reading.bytes_by_process}
        mine = {pid for pid in named if belongs(pid, session, self._token)}
        self.holders = {pid: sum(reading.bytes_by_process.get(pid, 0) for reading in readings) for pid in mine}
        self._use.add(readings, mine, now_s())
        self._energy.add([] if rests else readings, self._use.alone, now_s())
        warning = "" if self._limit is None else self._limit.check(self._use.proven_bytes, now_s())
        with contextlib.suppress(OSError):
            write("gpus.json", self._use.summary())
            if self._energy.is_known:
                write("energy.json", self._energy.summary())
            if warning:
                write("warning.json", {"at_s": now_s(), "code": "gpu-memory", "text": warning})
        return warning


def watch_gpus(task: Json) -> GpuWatch | None:
    """Return the watcher of a task's GPUs; None if it has none, or none that can be sampled."""
    if not task.get("gpus"):
        return None
    found = find_nvml(task["gpus"], task.get("nvml"))
    return None if found is None else GpuWatch(found, task["token"], gpu_limit_of(task))
