"""What the driver of this machine's GPUs can do beyond running programs."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from rota.drivers.local.task_runner.nvml import find_nvml

LIBRARY = "libcuda.so.1"
_MOVES_SINCE = 580
"""The release from which memory can be restored onto other GPUs than it came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAbilities:
    """The library that suspends processes, and the GPUs' names by index."""

    library: str
    uuids: tuple[str, ...] = ()


def gpu_abilities() -> GpuAbilities | None:
    """Return what the driver can do; None if it can't suspend processes, or a resumed job might get another GPU."""
    found = find_nvml()
    if found is None:
        return None
    try:
        ctypes.CDLL(LIBRARY).cuCheckpointProcessLock  # noqa: B018  # from release 570 on
    except (OSError, AttributeError):
        return None
    uuids = tuple(found.uuids())
    if len(uuids) > 1 and found.release() < _MOVES_SINCE:
        return None
    return GpuAbilities(library=LIBRARY, uuids=uuids)
