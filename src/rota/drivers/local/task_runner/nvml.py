"""The part of NVML that supervisors need; `drivers/local/gpu` has what else the manager asks.

A supervisor's interpreter knows no installed packages, so it is given the folder of `pynvml`.
"""

from __future__ import annotations

import contextlib
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

DRIVER = "/dev/nvidiactl"
"""There where NVIDIA's driver runs."""


class Reading:
    """What one GPU shows at a moment: memory in use, by process where known, how busy it is in percent, and the energy
    that it has taken since the driver was loaded, in millijoules, where it counts that."""

    __slots__ = ("busy", "bytes_by_process", "energy_mj", "memory_bytes")

    def __init__(
        self, memory_bytes: int, bytes_by_process: dict[int, int], busy: float, energy_mj: int | None = None
    ) -> None:
        self.memory_bytes = memory_bytes
        self.bytes_by_process = bytes_by_process
        self.busy = busy
        self.energy_mj = energy_mj

    @property
    def hides_processes(self) -> bool:
        """Whether its processes have numbers of another process namespace, as seen from inside a container."""
        return any(not os.path.exists(f"/proc/{pid}") for pid in self.bytes_by_process)


class Nvml:
    """Some GPUs of this machine, or all of them."""

    def __init__(self, library: Any, indexes: Sequence[int] | None = None) -> None:
        library.nvmlInit()
        count = int(library.nvmlDeviceGetCount())
        wanted = range(count) if indexes is None else [index for index in indexes if index < count]
        self._library = library
        self._handles = [library.nvmlDeviceGetHandleByIndex(index) for index in wanted]

    def __len__(self) -> int:
        return len(self._handles)

    def about(self) -> tuple[str, int]:
        """The first one's name and how much memory it has."""
        name = self._library.nvmlDeviceGetName(self._handles[0])
        total = int(self._library.nvmlDeviceGetMemoryInfo(self._handles[0]).total)
        return name if isinstance(name, str) else name.decode(), total

    def totals(self) -> list[int]:
        """How much memory each has."""
        return [int(self._library.nvmlDeviceGetMemoryInfo(handle).total) for handle in self._handles]

    def minor_numbers(self) -> list[int]:
        """The number of each one's device node; its index if the library does not know."""
        numbers = []
        for index, handle in enumerate(self._handles):
            try:
                numbers.append(int(self._library.nvmlDeviceGetMinorNumber(handle)))
            except self._library.NVMLError:
                numbers.append(index)
        return numbers

    def uuids(self) -> list[str]:
        """The name of each one that stays the same."""
        found = [self._library.nvmlDeviceGetUUID(handle) for handle in self._handles]
        return [each if isinstance(each, str) else each.decode() for each in found]

    def release(self) -> int:
        """The driver's release: 580 of 580.95.05."""
        version = self._library.nvmlSystemGetDriverVersion()
        return int((version if isinstance(version, str) else version.decode()).partition(".")[0])

    def look(self) -> list[Reading]:
        """Return a reading of each; empty if the library does not answer."""
        with contextlib.suppress(self._library.NVMLError):
            return [self._read(handle) for handle in self._handles]
        return []

    def _read(self, handle: Any) -> Reading:
        used = int(self._library.nvmlDeviceGetMemoryInfo(handle).used)
        busy = float(self._library.nvmlDeviceGetUtilizationRates(handle).gpu)
        running = self._library.nvmlDeviceGetComputeRunningProcesses(handle)
        by_process = {int(each.pid): int(each.usedGpuMemory or 0) for each in running}
        return Reading(used, by_process, busy, self._energy_mj(handle))

    def _energy_mj(self, handle: Any) -> int | None:
        try:
            return int(self._library.nvmlDeviceGetTotalEnergyConsumption(handle))
        except (self._library.NVMLError, AttributeError):  # before Volta, in a part of a GPU, or by an older library
            return None


def find_nvml(indexes: Sequence[int] | None = None, folder: str | None = None) -> Nvml | None:
    """The GPUs, all or some; None where there is no driver or no `pynvml`.

    A folder that is named holds the `pynvml` to use. It need not be that of NVIDIA, so no driver is looked for.
    """
    if folder is None and not os.path.exists(DRIVER):
        return None
    library = load_pynvml(folder)
    if library is None:
        return None
    try:
        found = Nvml(library, indexes)
    except library.NVMLError:
        return None
    return found if len(found) else None


def load_pynvml(folder: str | None = None) -> Any:
    """The module, of a folder if one is named; None if there is none."""
    if folder is not None:
        sys.path.insert(0, folder)
    try:
        import pynvml
    except ImportError:
        return None
    finally:
        if folder is not None:
            sys.path.remove(folder)
    return pynvml
