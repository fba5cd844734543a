"""Tables of measured all-reduces: CSV with a size in bytes and a time, such as those that `rota net bench` writes."""

from __future__ import annotations

import csv
from pathlib import Path

from rota.core.errors import RotaError
from rota.files.document import read_text
from rota.network.calibration import TimedSize

_SIZES = {"size(b)": 1.0, "size": 1.0, "bytes": 1.0, "size_bytes": 1.0}
_TIMES = {"time(ns)": 1e-9, "time(us)": 1e-6, "time(ms)": 1e-3, "time(s)": 1.0, "time_s": 1.0, "seconds": 1.0}
MOST_ROWS = 1_000_000


def read_measured_table(path: Path) -> tuple[TimedSize, ...]:
    """Return sizes and times of a table; the first column of each kind counts."""
    rows = list(csv.reader(read_text(path).splitlines()[:MOST_ROWS]))
    if not rows:
        raise RotaError(f"{path}: the table is empty; its first line names the columns")
    names = [name.strip().lower() for name in rows[0]]
    size = next((place for place, name in enumerate(names) if name in _SIZES), None)
    time = next((place for place, name in enumerate(names) if name in _TIMES), None)
    if size is None or time is None:
        raise RotaError(
            f"{path}: its columns are {', '.join(names[:8])}; it needs one of {', '.join(_SIZES)} "
            f"and one of {', '.join(_TIMES)}"
        )
    found = []
    for line, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        try:
            point = float(row[size]), float(row[time]) * _TIMES[names[time]]
        except (ValueError, IndexError):
            raise RotaError(f"{path}: line {line} is {','.join(row)[:60]!r}; size and time must be numbers") from None
        if not (0 < point[0] < 1e18 and 0 < point[1] < 1e9):
            raise RotaError(f"{path}: line {line}: {point[0]:g} bytes in {point[1]:g} s; both must be above 0")
        found.append(point)
    if len(found) < 2:
        raise RotaError(f"{path}: it has {len(found)} measured sizes; a curve needs at least 2")
    return tuple(found)
