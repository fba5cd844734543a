"""The manager's clock as a supervisor sees it: the time since boot plus the offset that came with the task's order."""

from __future__ import annotations

import time

_offset_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def use(offset_s: float | None) -> None:
    """Take over the manager's offset; without one, that of the present date stays."""
    global _offset_s
    if offset_s is not None:
        _offset_s = offset_s


def now_s() -> float:
    """Return the present moment, which no setting of the date changes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) + _offset_s
