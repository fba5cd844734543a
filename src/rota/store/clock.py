"""The manager's clock: the kernel's time since boot plus a fixed offset, so that setting the date changes nothing.

Limits, leases and retries are moments of this clock. When the manager first runs after a boot, the offset makes its
time the date; later steps of the wall clock do not move it. The offset is kept beside the database with the id of the
boot, so that a restarted manager goes on with the same clock, and a rebooted machine begins with the date again.
Moments are moved by the steps of the wall clock since then only where they are shown.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_FILE = "clock.json"
VARIABLE = "ROTA_CLOCK_OFFSET_S"
"""The environment variable through which the manager gives its clock to its worker processes."""


def _since_boot_s() -> float:
    """Seconds since boot, including those in which the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


_offset_s = float(os.environ.get(VARIABLE) or time.time() - _since_boot_s())


def now_s() -> float:
    """Return the present moment; it never steps, and equals the date unless that was set since the boot."""
    return _since_boot_s() + _offset_s


def offset_s() -> float:
    """Return what to add to the seconds since boot."""
    return _offset_s


def shift_s() -> float:
    """Return by how much the wall clock was set since the clock began, in whole seconds."""
    return float(round(time.time() - now_s()))


def shown_s(at_s: float) -> float:
    """Return a moment of this clock as the wall clock has it."""
    return at_s + shift_s()


def from_wall_s(at_s: float) -> float:
    """Return a moment of the wall clock, such as a date that a user wrote, as this clock has it."""
    return at_s - shift_s()


def go_on(home: Path, least_s: float = 0.0) -> None:
    """Use the clock of a manager's folder: that of this boot if one is kept, else one that begins with the date.

    It is never before `least_s`, the last moment on record, even if the date is.
    """
    global _offset_s
    boot, path = boot_id(), home / _FILE
    kept = _read(path, boot)
    _offset_s = time.time() - _since_boot_s() if kept is None else kept
    _offset_s = max(_offset_s, least_s - _since_boot_s())
    if _offset_s != kept:
        draft = path.with_name(f".{_FILE}.{os.getpid()}")
        draft.write_text(json.dumps({"boot": boot, "offset_s": _offset_s}), encoding="ascii")
        draft.replace(path)


def boot_id() -> str:
    """Return the kernel's id of this boot; empty where it has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _read(path: Path, boot: str) -> float | None:
    """Return the offset that was kept in this boot; None if there is none, or the file can't be understood."""
    try:
        kept = json.loads(path.read_bytes())
        return float(kept["offset_s"]) if kept["boot"] == boot else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
