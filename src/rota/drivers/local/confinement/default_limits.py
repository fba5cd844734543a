"""The limits of tasks that ask for no CPUs or no memory, and the parts of the disk that jobs may fill by default."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from rota.core.errors import RotaError
from rota.core.model.job import WHOLE
from rota.files.quantities import parse_bytes, parse_cpus

SHARE = "share"
NONE = "none"
FOR_TASKS = 0.9
"""The fraction of the machine's memory that tasks have together; the rest is the manager's and the system's."""
LEAST_RESERVE_BYTES = 256 << 20
LEAST_MEMORY_BYTES = 2 << 30
"""The smallest share of a task, on machines that have as much: the libraries of a training take about half of it."""
SCRATCH_PART = 10
"""A job may fill this part of the disk by default: a tenth."""
KEPT_PART = 2
"""Folders of ended jobs may fill this part of the disk by default: half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultLimits:
    """What a task gets that asks for none. None means its share of the machine, 0 no limit.

    A share of memory is a limit. A share of the CPUs is none: while others leave CPUs idle, a task may use them.
    """

    memory_bytes: int | None = 0
    cpu_milli: int | None = 0
    machine_memory_bytes: int = 0
    machine_cpu_milli: int = 0
    machine_devices: int = 0

    def memory(self, device_milli: int) -> int:
        """Return the memory limit of a task with so many devices that asks for no memory; 0 is none."""
        if self.memory_bytes is not None:
            return self.memory_bytes * _parts(device_milli) // WHOLE
        share = int(self.tasks_bytes * self._part(device_milli))
        return max(share, min(LEAST_MEMORY_BYTES, self.tasks_bytes))

    def cpus(self, device_milli: int) -> int:
        """Return the CPU limit of a task that asks for no CPUs, in thousandths; 0 is none."""
        return 0 if self.cpu_milli is None else self.cpu_milli * _parts(device_milli) // WHOLE

    def cpu_share(self, device_milli: int) -> int:
        """Return how many CPUs a task that asks for none has when all want some, in thousandths; 0: as others."""
        return int(self.machine_cpu_milli * self._part(device_milli)) if self.cpu_milli is None else 0

    @property
    def tasks_bytes(self) -> int:
        """What all tasks have together; 0 where the machine's memory is not known."""
        return int(min(self.machine_memory_bytes * FOR_TASKS, max(self.machine_memory_bytes - LEAST_RESERVE_BYTES, 0)))

    def _part(self, device_milli: int) -> float:
        """The part of the machine that is a task's: by its devices, or one CPU's part without any."""
        if device_milli and self.machine_devices:
            return min(device_milli / (self.machine_devices * WHOLE), 1.0)
        return min(1000 / self.machine_cpu_milli, 1.0) if self.machine_cpu_milli else 1.0


def _parts(device_milli: int) -> int:
    """How often a task gets what is for each GPU, in thousandths; a task without GPUs once."""
    return device_milli or WHOLE


def default_limits(cpus: str, memory: str, devices: int) -> DefaultLimits:
    """Return the limits by the settings of a manager whose machine has so many devices."""
    memory_bytes, cpu_count = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), len(os.sched_getaffinity(0))
    return DefaultLimits(
        memory_bytes=None if memory == SHARE else 0 if memory == NONE else parse_bytes(memory),
        cpu_milli=None if cpus == SHARE else 0 if cpus == NONE else parse_cpus(cpus),
        machine_memory_bytes=memory_bytes,
        machine_cpu_milli=cpu_count * 1000,
        machine_devices=devices,
    )


def disk_part(wanted: str, part: int, home: Path) -> int:
    """Return the bytes that a setting means: an amount, `share` for a part of the disk, or `none` for no limit (0)."""
    if wanted == NONE:
        return 0
    if wanted != SHARE:
        return parse_bytes(wanted)
    folder = next((each for each in (home, *home.parents) if each.exists()), Path("/"))
    try:
        return shutil.disk_usage(folder).total // part
    except OSError as error:
        raise RotaError(f"{folder}: the size of the disk can't be found out: {error.strerror}") from error
