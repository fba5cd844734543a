"""Sketches of runs as lines of text on one axis: completion times, and allocation over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rota.cli.human import duration
from rota.report.sketch import Sketch

BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII = " .:-=+*#@"
WIDTH = 60
NAME_WIDTH = 32
FEW = 0.01
"""The share of jobs that may be complete before the axis begins."""
_TICKS_S = (0.01, 0.1, 1, 10, 60, 600, 3_600, 36_000, 86_400, 864_000, 8_640_000, 86_400_000)


def sketch_lines(runs: Mapping[str, Sketch], *, encoding: str) -> list[str]:
    """The lines, in characters that the encoding has."""
    known = [sketch for sketch in runs.values() if sketch.jct_s.size]
    if not known:
        return []
    marks = marks_for(encoding)
    names = [name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 3] + "..." for name in runs]
    indent = max(map(len, names)) + 2
    within_s = _log_axis(known)
    first_s, last_s = min(s.first_s for s in known), max(s.last_s for s in known)
    edges_s = np.linspace(first_s, max(last_s, first_s + 1e-9), WIDTH + 1)
    lines = ["", "cumulative share of jobs by completion time"]
    for name, sketch in zip(names, runs.values(), strict=True):
        lines.append(name.ljust(indent) + bars(sketch.complete_within(within_s).tolist(), marks))
    lines.append(" " * indent + _tick_line(within_s.tolist()))
    lines += ["", "allocated devices over time"]
    for name, sketch in zip(names, runs.values(), strict=True):
        lines.append(name.ljust(indent) + bars(sketch.allocation_between(edges_s).tolist(), marks))
    lines.append(" " * indent + "0" + duration(last_s - first_s).rjust(WIDTH - 1))
    return [line.rstrip() for line in lines]


def bars(shares: Sequence[float], marks: str = BLOCKS) -> str:
    """One character for each share: blank only for 0, and full only for 1."""
    top = len(marks) - 1
    return "".join(
        marks[top] if share >= 1 - 1e-9 else marks[math.ceil(min(max(share, 0.0), 1.0) * (top - 1) - 1e-9)]
        for share in shares
    )


def marks_for(encoding: str) -> str:
    """The characters to draw with: blocks, or plain ones where the encoding has none."""
    try:
        BLOCKS.encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return BLOCKS


def _log_axis(sketches: Sequence[Sketch]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    longest_s = max(float(sketch.jct_s[-1]) for sketch in sketches)
    shortest_s = min(float(sketch.jct_s[np.searchsorted(sketch.share, FEW)]) for sketch in sketches)
    shortest_s = max(shortest_s, longest_s / 1e6, 1e-3)
    axis = np.geomspace(shortest_s, max(longest_s, shortest_s * 1.01), WIDTH)
    axis[-1] = max(longest_s, axis[-1])
    return axis


def _tick_line(axis_s: Sequence[float]) -> str:
    """Round times below the columns that first reach them, as many as fit."""
    line = ""
    for tick_s in _TICKS_S:
        column = next((index for index, at_s in enumerate(axis_s) if at_s >= tick_s), None)
        if column is None or tick_s < axis_s[0]:
            continue
        text = duration(tick_s)
        if column >= len(line) + bool(line) and column + len(text) <= WIDTH:
            line = line.ljust(column) + text
    return line
