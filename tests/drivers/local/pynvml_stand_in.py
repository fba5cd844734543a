"""What `pynvml` answers on a machine with GPUs, which this one has not: memory, processes and use as a test says.

For each GPU a list of looks, the last of which stays: bytes in use, bytes by process, percent busy.
"""

# ruff: noqa: N802 - the names are the library's

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

Look = tuple[int, dict[int, int | None], float]


class NVMLError(Exception):
    """As the library's own."""


class Library:
    """The functions that Rota calls."""

    NVMLError = NVMLError

    def __init__(self, *gpus: list[Look]) -> None:
        self._gpus = gpus
        self._looks = [0] * len(gpus)
        self.is_lost = False

    def nvmlInit(self) -> None:
        if self.is_lost:
            raise NVMLError("driver not loaded")

    def nvmlDeviceGetCount(self) -> int:
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(used=self._now(handle)[0])

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=int(self._now(handle)[2]), memory=0)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        """The last question of a look: the next look sees what comes next."""
        if self.is_lost:
            raise NVMLError("GPU is lost")
        by_process = self._now(handle)[1]
        self._looks[handle] = min(self._looks[handle] + 1, len(self._gpus[handle]) - 1)
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in by_process.items()]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        raise NVMLError("not supported")

    def _now(self, handle: int) -> Look:
        return self._gpus[handle][self._looks[handle]]
